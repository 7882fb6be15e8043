"""How run and check work and end: devices, formats, files, exit status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from attnbench.cli.options import options_of, selected
from attnbench.cli.output import note, print_records, print_text
from attnbench.cli.plugins_here import load_plugins
from attnbench.cli.progress import plan_words, print_plan, progress, warn_of_busy_cores
from attnbench.types.errors import BadInput, Interrupted, PluginFailed
from attnbench.types.formats import FORMATS, Format
from attnbench.types.words import count_of

if TYPE_CHECKING:
    from attnbench.cases.select import Selection
    from attnbench.plugins.registry import Entry, Registry
    from attnbench.reports.run import Run
    from attnbench.runner.progress import Progress
    from attnbench.types.extensions import Reporter


Command = TypeVar("Command", bound=Callable[..., Any])


def benchmark_json_option(command: Command) -> Command:
    """Give a command the option."""
    return click.option(
        "--benchmark-json", type=click.Path(path_type=Path), metavar="FILE",
        help="Write the run to this file too, as pytest-benchmark compare reads it.",
    )(command)  # fmt: skip


def check_benchmark_json(path: Path | None) -> None:
    """Raise :class:`BadInput` where the file can't be written: before anything is measured for it."""
    if path is not None:
        from attnbench.results.to_pytest_benchmark import check_target

        check_target(path)


def write_benchmark_json(stored: Sequence[Path], path: Path) -> None:
    """Write the run of a file, and say what has no time to show.

    Raises:
        BadInput: there are several runs, or the file can't be written.
    """
    from attnbench.results.read import read_side
    from attnbench.results.to_pytest_benchmark import is_benchmark, write_pytest_benchmark

    runs = read_side(list(dict.fromkeys(stored)))
    if len(runs) != 1:
        raise BadInput(f"--benchmark-json: a file of pytest-benchmark is one run, and here are {len(runs)}")
    write_pytest_benchmark(runs[0], path)
    left_out = Counter(cell.status for cell in runs[0].cells if not is_benchmark(cell))
    written = sum(is_benchmark(cell) for cell in runs[0].cells)
    said = f"{count_of(written, 'benchmark')} written to {path}"
    if left_out:
        kinds = ", ".join(
            f"{count} {'without a time' if status == 'ok' else status.replace('_', ' ')}"
            for status, count in left_out.items()
        )
        said += f"; no benchmarks, but listed in it with their reasons: {kinds}"
    note(said)


def record_format(ctx: click.Context, word: str, registry: Registry) -> Format | Entry[Reporter]:
    """The format that a word asks for; a usage error with the nearest where there is none."""
    if word in FORMATS:
        return word
    try:
        return registry.reporter(word)
    except BadInput as unknown:
        option = next(param for param in ctx.command.params if param.name == "format_")
        raise click.BadParameter(str(unknown), ctx, option) from unknown


def own_format(word: str, what: str) -> Format:
    """The format that a word asks for where no records are printed.

    Raises:
        BadInput: it is a plugin's, which prints records only.
    """
    if word not in FORMATS:
        raise BadInput(
            f"--format {word}: {what}, and formats of plugins print records; there are {', '.join(FORMATS)}"
        )
    return word


def print_run(run: Run, format_: Format | Entry[Reporter], *, trace: bool) -> None:
    """Print the records of a run, or of several as one.

    Raises:
        PluginFailed: the reporter of a plugin failed.
    """
    if isinstance(format_, str):
        print_records(run.judged, format_, trace=trace)
        return
    from attnbench.reports.columns import record_row
    from attnbench.reports.render import reported, run_facts

    facts = run_facts(run.manifests, run.paths, run.unfinished)
    print_text(reported(format_, [record_row(one) for one in run.judged], facts))


def measure(
    ctx: click.Context,
    chosen: dict[str, Any],
    *,
    timed: bool,
    benchmark_json: Path | None = None,
    instead: Callable[..., NoReturn] | None = None,
) -> None:
    """Run what the options of a command ask for, print its records, and exit with what they amount to.

    benchmark_json: where to write the run in pytest-benchmark's format too. instead: what to do in place of a
    run of cases, with the context, the options of the command, the registry, the options of the run, and the
    format.
    """
    registry = load_plugins()
    printed = record_format(ctx, chosen["format_"], registry)
    if chosen["resume"] is not None:
        start = resumed(ctx, chosen["resume"], registry)
    else:
        from attnbench import api
        from attnbench.runner.forecast import plan_run
        from attnbench.runner.run import check_plan

        options = options_of(chosen, timed=timed)
        if instead is not None:
            instead(ctx, chosen, registry, options, printed)
        registry.backend(options.baseline)
        selection = selected(registry, chosen, timed=timed)
        check_devices(selection)
        plan = plan_run(selection, chosen["backends"], registry, options)
        check_plan(plan, chosen["out"])
        if chosen["plan"]:
            print_plan(plan.forecast, options, own_format(chosen["format_"], "--plan prints no records"))
            return
        if timed:
            note(plan_words(plan.forecast, options))
            warn_of_busy_cores(selection.cases)
        start = partial(api.start, plan, chosen["out"])
    try:
        with progress() as tell:
            run = start(tell)
    except Interrupted as stop:
        from attnbench.api import loaded

        try:
            print_run(loaded(stop.path, registry), printed, trace=chosen["trace"])
        except PluginFailed as failure:
            click.echo(f"attnbench: {failure}", err=True)
        raise
    try:
        print_run(run, printed, trace=chosen["trace"])
    finally:
        # Last, where it's still seen: the table of a suite is longer than a terminal.
        note(f"stored in {run.path}")
        if benchmark_json is not None:
            write_benchmark_json(run.paths, benchmark_json)
    ctx.exit(run.exit_code)


def resumed(ctx: click.Context, path: Path, registry: Registry) -> Callable[[Progress], Run]:
    """Return what goes on with the run in a file.

    Raises:
        UsageError: an option changes more than how records are printed.
    """
    from attnbench.api import go_on
    from attnbench.results.format import read_run

    said = [
        name
        for name in ctx.params
        if name not in ("resume", "format_", "trace", "benchmark_json")
        and ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT
    ]
    if said:
        words = {p.name: p.opts[0] if isinstance(p, click.Option) else "cases" for p in ctx.command.params}
        leave_out = ", ".join(words[name] for name in said)
        raise click.UsageError(f"--resume goes on with a run as it was begun: leave out {leave_out}", ctx)
    if read_run(path).torn:
        click.echo(f"{path}: its last line was cut off and is dropped", err=True)
    return lambda tell: go_on(path, registry, tell)


def check_devices(selection: Selection) -> None:
    """Raise :class:`BadInput` where all cases need a CUDA device and there is none."""
    if {case.device for case in selection.cases} == {"cuda"}:
        check_device("cuda")


def check_device(device: str) -> None:
    """Raise :class:`BadInput` for ``cuda`` where there is no CUDA device."""
    if device == "cuda" and not _has_cuda():
        raise BadInput("device 'cuda': torch finds no CUDA device on this machine; there is cpu")


def _has_cuda() -> bool:
    """Asked in another process: this one, which measures, never loads torch."""
    import subprocess
    import sys

    question = "import sys, torch; sys.exit(0 if torch.cuda.is_available() else 1)"
    return subprocess.run([sys.executable, "-c", question], capture_output=True, check=False).returncode == 0
