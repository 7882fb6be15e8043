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
    "Exit status: 0 fine; 1 a check or a gate failed, or the doctor found what would change a "
    "verdict; 2 wrong usage, or files that can't be read or compared; "
    "3 something crashed, hung, ran out of memory or could not be measured (so too a backend asked for by "
    "name that is ok on no case); 130 ended by Ctrl-C; 141 whoever read stdout went away.\n\n"
    "\b\n"
    "Environment:\n"
    "  ATTNBENCH_PLUGINS         files and modules to load, as by --plugin\n"
    "  ATTNBENCH_LOAD_PLUGINS    the only installed plugins to load, by name\n"
    "  ATTNBENCH_STRICT_PLUGINS  a plugin's fault ends the command\n"
    "  ATTNBENCH_TRACE_PLUGINS   tell every import and hook, and how long it took\n"
    "  ATTNBENCH_TRACEBACK       show where an unexpected failure came from\n"
    "  NO_COLOR                  no colours"
)


@click.group(
    cls=LazyGroup,
    summaries={
        "run": "Check and time backends on cases.",
        "check": "Check backends against the oracle, without timing.",
        "report": "Print the records of stored runs.",
        "compare": "Compare two stored sides, or the backends of a run with one of them.",
        "history": "Show how times changed from run to run.",
        "merge": "Put runs of several machines into one file.",
        "explain": "Work a rule step by step on small inputs.",
        "rules": "Compare rules by what they do to weights.",
        "doctor": "Look for what would disturb a run on this machine.",
        "list": "List rules, backends, suites, cases and what else plugins bring.",
        "plugins": "List plugins, what each brings, and what failed to load.",
        "new": "Write a complete package for a backend of your own.",
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
