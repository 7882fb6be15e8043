"""The command line: one file for each command, which is imported when the command is used."""

from __future__ import annotations

import textwrap

import click

from attnbench import __version__
from attnbench.cli.group import LazyGroup
from attnbench.cli.output import loudness_options
from attnbench.cli.parameters import plugin_option
from attnbench.cli.process import prepare_process
from attnbench.types.exit_status import EXIT_STATUS

_STATUS_WIDTH = 76


def _exit_status() -> str:
    """Return the lines of help on the exit status."""
    return "\n".join(
        textwrap.fill(text, _STATUS_WIDTH, initial_indent=f"  {status:<5}", subsequent_indent=" " * 7)
        for status, text in EXIT_STATUS.items()
    )


EPILOG = f"""\b
Exit status:
{_exit_status()}

\b
Environment:
  ATTNBENCH_PLUGINS         files and modules to load, as with --plugin
  ATTNBENCH_LOAD_PLUGINS    installed plugins to load, by name; default: all
  ATTNBENCH_STRICT_PLUGINS  end the command at the first fault of a plugin
  ATTNBENCH_TRACE_PLUGINS   print the time of each import and hook
  ATTNBENCH_TRACEBACK       print the traceback of an unexpected failure
  NO_COLOR                  print no colours
"""


@click.group(
    cls=LazyGroup,
    sections={
        "Measure": {
            "run": "Check and time backends on cases.",
            "check": "Check backends against the oracle, without timing.",
            "list": "List rules, backends, suites, cases and other parts of plugins.",
            "suite": "Make a suite from the config.json of a model.",
            "capture": "Run a program, and write a suite of its attention calls.",
            "doctor": "Find what would disturb a run on this machine.",
            "fleet": "List the devices that run --on can use.",
        },
        "Compare": {
            "report": "Print the results of stored runs.",
            "compare": "Compare two runs, two commits, or the backends of one run.",
            "history": "Show how times changed from run to run.",
            "merge": "Put several runs into one file.",
            "choose": "Write a table of the backends proved faster than torch's own.",
        },
        "Learn": {
            "explain": "Compute attention step by step on small inputs.",
            "compare-rules": "Compare rules by their effect on weights, without timing.",
        },
        "Extend": {
            "new": "Write a complete package for your own backend.",
            "plugins": "List plugins, what each adds, and what failed to load.",
        },
    },
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EPILOG,
)
@plugin_option
@loudness_options
@click.version_option(__version__, prog_name="attnbench", message="%(prog)s %(version)s")
def attnbench() -> None:
    """Benchmark ways to compute attention. An independent oracle checks every output.

    \b
    attnbench run                      the suite smoke, all backends, a minute
    attnbench run gpt2 --backend eager --backend sdpa_flash
    attnbench check edges              right or wrong, without timing
    attnbench list suites
    attnbench --quiet run --format csv > smoke.csv
    """


def main() -> None:
    """Run the command line of this process, then exit."""
    prepare_process()
    attnbench(prog_name="attnbench")
