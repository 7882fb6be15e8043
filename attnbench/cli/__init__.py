"""The command line. One file for each command, imported when it's used; what costs time, in its body."""

from __future__ import annotations

import click

from attnbench import __version__
from attnbench.cli.group import LazyGroup
from attnbench.cli.output import loudness_options
from attnbench.cli.plugins_here import plugin_option
from attnbench.cli.process import (
    end_like_ctrl_c,
    forgive_stderr,
    open_missing_streams,
    tell_of_crashes,
    write_what_stdout_can,
)

EPILOG = (
    "Exit status: 0 success; 1 a check or a gate failed, or the doctor found something that would change a "
    "verdict; 2 wrong usage, or a file that cannot be read or compared; "
    "3 something crashed, hung, ran out of memory or could not be measured, or a backend that was named is "
    "ok on no case; 130 ended by Ctrl-C; 141 stdout was closed by its reader.\n\n"
    "\b\n"
    "Environment:\n"
    "  ATTNBENCH_PLUGINS         files and modules to load, as with --plugin\n"
    "  ATTNBENCH_LOAD_PLUGINS    installed plugins to load, by name; all if unset\n"
    "  ATTNBENCH_STRICT_PLUGINS  end the command at the first fault of a plugin\n"
    "  ATTNBENCH_TRACE_PLUGINS   print each import and hook with its time\n"
    "  ATTNBENCH_TRACEBACK       print the traceback of an unexpected failure\n"
    "  NO_COLOR                  no colours"
)


@click.group(
    cls=LazyGroup,
    summaries={
        "run": "Check and time backends on cases.",
        "check": "Check backends against the oracle, without timing.",
        "report": "Print the records of stored runs.",
        "compare": "Compare two stored runs, or the backends of one run.",
        "history": "Show how times changed from run to run.",
        "merge": "Put several runs into one file.",
        "explain": "Work a rule step by step on small inputs.",
        "rules": "Compare how rules distribute weights.",
        "doctor": "Find what would disturb a run on this machine.",
        "list": "List rules, backends, suites, cases and other parts of plugins.",
        "plugins": "List plugins, what each brings, and what failed to load.",
        "new": "Write a complete package for your own backend.",
    },
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EPILOG,
)
@plugin_option
@loudness_options
@click.version_option(__version__, prog_name="attnbench", message="%(prog)s %(version)s")
def attnbench() -> None:
    """Benchmark ways to compute attention; every number is checked against an independent oracle.

    \b
    attnbench run                      the suite smoke, all backends: a minute
    attnbench run gpt2 --backend eager --backend sdpa_flash
    attnbench check edges              right or wrong, without timing
    attnbench list suites
    attnbench --quiet run --format csv > smoke.csv
    """


def main() -> None:
    """Run the command line of this process; exits."""
    open_missing_streams()
    write_what_stdout_can()
    forgive_stderr()
    end_like_ctrl_c()
    tell_of_crashes()
    attnbench(prog_name="attnbench")
