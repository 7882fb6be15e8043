"""How run and check go about their work and end, whatever they did before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from attnbench.cli.benchmark_json import write_benchmark_json
from attnbench.cli.loudness import note
from attnbench.cli.progress import progress
from attnbench.cli.record_format import print_run
from attnbench.types.errors import BadInput, Interrupted, PluginFailed

if TYPE_CHECKING:
    from attnbench.cases.select import Selection
    from attnbench.plugins.registry import Entry, Registry
    from attnbench.reports.run import Run
    from attnbench.runner.moment import Progress
    from attnbench.types.formats import Format
    from attnbench.types.reporter import Reporter

MOST_GIB = 2**30


def finish(
    ctx: click.Context,
    start: Callable[[Progress], Run],
    format_: Format | Entry[Reporter],
    registry: Registry,
    *,
    trace: bool,
    benchmark_json: Path | None = None,
) -> NoReturn:
    """Start or go on with a run, print its records, and exit with what they amount to.

    benchmark_json: where to write it in pytest-benchmark's format too. After Ctrl-C, prints what was measured
    before it goes on to end the command.
    """
    from attnbench.api import loaded

    try:
        with progress() as tell:
            run = start(tell)
    except Interrupted as stop:
        try:
            print_run(loaded(stop.path, registry), format_, trace=trace)
        except PluginFailed as failure:
            click.echo(f"attnbench: {failure}", err=True)
        raise
    try:
        print_run(run, format_, trace=trace)
    finally:
        # Last, where it's still seen: the table of a suite is longer than a terminal.
        note(f"stored in {run.path}")
        if benchmark_json is not None:
            write_benchmark_json(run.paths, benchmark_json)
    ctx.exit(run.exit_code)


def resumed(ctx: click.Context, path: Path, registry: Registry) -> Callable[[Progress], Run]:
    """Going on with the run in a file; a usage error where anything but how to print was said."""
    from attnbench.api import go_on
    from attnbench.runner.run_file import read_run

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


def gib(amount: float | None) -> int | None:
    """GiB as bytes.

    Raises:
        BadInput: more than any machine has.
    """
    if amount is not None and amount > MOST_GIB:
        raise BadInput(f"{amount:g} GiB: more than {MOST_GIB} GiB is more than any machine has")
    return None if amount is None else int(amount * 2**30)
