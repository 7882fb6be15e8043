"""The command line: one file for each command, which is imported when the command is used."""

from __future__ import annotations

import click

from attnbench import __version__
from attnbench.cli.group import LazyGroup
from attnbench.cli.output import loudness_options
from attnbench.cli.parameters import plugin_option
from attnbench.cli.process import prepare_process

EPILOG = """\b
Exit status:
  0    success
  1    a check or a gate failed, or the doctor found a problem
  2    wrong usage, or a file that cannot be read or compared
  3    a backend crashed, hung, ran out of memory or could not be measured,
       or a backend named by --backend did not succeed on any case
  130  interrupted by Ctrl-C
  141  the reader of stdout closed it

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
