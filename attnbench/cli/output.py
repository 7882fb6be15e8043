"""Data on stdout, notes on stderr: how much, how wide, in which colours and in which format."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from attnbench.plugins.calling import TRACE
from attnbench.types.errors import BadInput
from attnbench.types.words import FORMATS, Format, count_of, printable

if TYPE_CHECKING:
    from attnbench.plugins.registry import Entry, Registry
    from attnbench.reports.run import Run
    from attnbench.reports.table import View
    from attnbench.types.compared import Measured
    from attnbench.types.extensions import Reporter, Suite


Command = TypeVar("Command", bound=Callable[..., Any])
Loudness = Literal["quiet", "normal", "verbose"]

_LOUDNESS = "attnbench.loudness"
PIPE_WIDTH = 120


def loudness_options(command: Command) -> Command:
    """Give the group ``--quiet`` and ``--verbose``."""
    quiet = click.option(
        "--quiet", "-q", "quiet", is_flag=True, expose_value=False, callback=_choose,
        help="Print only errors and warnings on stderr.",
    )  # fmt: skip
    verbose = click.option(
        "--verbose", "-v", "verbose", is_flag=True, expose_value=False, callback=_choose,
        help="Print each step, the loading time of each plugin, and tracebacks on stderr.",
    )  # fmt: skip
    return quiet(verbose(command))


def _choose(ctx: click.Context, param: click.Parameter, chosen: bool) -> None:
    if not chosen:
        return
    if _LOUDNESS in ctx.meta:
        raise click.UsageError("--quiet and --verbose: give only one of them", ctx)
    ctx.meta[_LOUDNESS] = param.name
    if param.name == "verbose" and TRACE not in os.environ:
        # Loading knows no command line; the variable lasts as long as the command.
        os.environ[TRACE] = "1"
        ctx.call_on_close(lambda: os.environ.pop(TRACE, None))


def loudness() -> Loudness:
    """Return what this command line asked for."""
    ctx = click.get_current_context(silent=True)
    chosen: Loudness = "normal" if ctx is None else ctx.meta.get(_LOUDNESS, "normal")
    return chosen


def note(text: str) -> None:
    """Print on stderr what is neither an error nor a warning, unless --quiet was given."""
    if loudness() != "quiet":
        say(text, err=True)


def next_notes(file: Path, suite: Suite, *, worth: bool = True) -> None:
    """Print how to run a suite of a model or program, so that calls find memory as they do there.

    A program of several layers finds the keys and values of a decode in no cache, and gives freed memory back
    between the calls of a prompt. file: of the suite. worth: whether a faster attention can be seen in the
    program.
    """
    from attnbench.cases.suites import TORCHS
    from attnbench.types.mask import mask_text

    name = f"./{file}" if str(file).startswith("-") else str(file)
    run, out = ["attnbench", "run", name], name.removesuffix(".toml") + ".jsonl"
    on_host = [case for case in suite.cases if case.on_host]
    if on_host and all(case.pass_ == "forward" for case in on_host):
        run += ["--cache", "rotating"] if any(case.is_decode for case in on_host) else []
        run += [] if all(case.is_decode for case in on_host) else ["--allocator", "default"]
    every = "all backends run, of which those that compile take minutes, unless --backend names some"
    if suite.baseline == TORCHS:
        # It compiles, which pays where a mask lets it leave out what torch's function computes and drops.
        windows = any(mask_text(case.mask) not in ("none", "causal") for case in suite.cases)
        last = "flex" if windows and all(case.pass_ == "forward" for case in suite.cases) else "eager"
        run += [word for name in (TORCHS, "bmm", last) for word in ("--backend", name)]
        every = "without --backend all backends run, of which those that compile take minutes"
    note(f"{'next' if worth else 'to go on all the same'}: {shlex.join([*run, '--out', out])}")
    if suite.baseline == TORCHS:
        note(f"then: {shlex.join(['attnbench', 'choose', out])}")
    note(f"{every}; --plan says how long a run takes")


def say(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text that may hold foreign words: the door through which every command prints.

    Names of files, words of the command line and messages of plugins change no terminal.
    """
    click.echo(printable(text), err=err, nl=nl)


def width() -> int:
    """Return the columns of the terminal, or of COLUMNS; 120 where stdout is neither."""
    return shutil.get_terminal_size((PIPE_WIDTH, 24)).columns


def colourful() -> bool:
    """Return whether stdout is a terminal whose user has not asked for no colour (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def print_text(text: str) -> None:
    """Print a text that ends in its own newline. It may have colours, so data in it is printable already."""
    click.echo(text if colourful() else printable(text), nl=False)


def print_listing(rows: Sequence[dict[str, Any]], columns: Sequence[str], format_: Format) -> None:
    """Print rows; a table shows ``columns``."""
    from attnbench.reports.formats import listing

    print_text(listing(rows, columns, format_, width=width(), colour=colourful()))


def view_of(chosen: dict[str, Any]) -> View:
    """Return how the options of a command ask to show records."""
    from attnbench.reports.table import View

    asked = {name: chosen[name] for name in ("trace", "details", "legend", "summary")}
    return View(width(), colourful(), **asked)


def record_format(word: str, registry: Registry) -> Format | Entry[Reporter]:
    """Return the format that a word asks for; raises :class:`BadInput` with the nearest if it is unknown."""
    return word if word in FORMATS else registry.reporter(word)


def own_format(word: str, reason: str) -> Format:
    """Return the format that a word asks for where no records are printed.

    Raises:
        BadInput: it is a plugin's, which prints records only.
    """
    if word not in FORMATS:
        raise BadInput(f"--format {word}: {reason}; give one of {', '.join(FORMATS)}")
    return word


def print_run(run: Run, format_: Format | Entry[Reporter], view: View) -> None:
    """Print the records of a run, or of several.

    Raises:
        PluginFailed: the reporter of a plugin failed.
    """
    from attnbench.reports.answer import SUMMARY
    from attnbench.reports.columns import record_row
    from attnbench.reports.render import render_run, reported, run_facts

    if not isinstance(format_, str):
        print_text(reported(format_, [record_row(one) for one in run.judged], run_facts(run)))
    elif view.summary and format_ in ("json", "csv"):
        print_listing(run.summary_rows, list(SUMMARY), format_)
    else:
        print_text(render_run(run, format_, view))


def told_side(files: Sequence[Path]) -> list[Measured]:
    """Read the runs of files, and print on stderr what a reader must know of them."""
    from attnbench.results.read import read_side

    runs = read_side(files)
    for run in runs:
        for problem in run.problems:
            say(problem, err=True)
    return runs


def benchmark_text(stored: Sequence[Path], path: Path) -> tuple[str, list[str]]:
    """Return the run of a file in the format of pytest-benchmark, and what is to be said when it is written.

    Raises:
        BadInput: there are several runs.
    """
    from attnbench.results.pytest_benchmark import is_benchmark, pytest_benchmark_text
    from attnbench.results.read import read_side

    runs = read_side(list(dict.fromkeys(stored)))
    if len(runs) != 1:
        raise BadInput(f"--benchmark-json writes one run, and these are {len(runs)}: give one")
    cells = runs[0].cells
    words = [f"{count_of(sum(map(is_benchmark, cells)), 'benchmark')} written to {path}"]
    left_out = Counter(cell.status for cell in cells if not is_benchmark(cell))
    kinds = [f"{n} {'without a time' if kind == 'ok' else kind}" for kind, n in left_out.items()]
    if kinds:
        words.append(f"left out, with their reasons in the file: {', '.join(kinds)}")
    return pytest_benchmark_text(runs[0]), words
