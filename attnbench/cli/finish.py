"""How run and check go about their work and end, whatever they did before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from attnbench.cli.benchmark_json import write_benchmark_json
from attnbench.cli.output import print_records
from attnbench.cli.progress import progress
from attnbench.types.errors import BadInput, Interrupted

if TYPE_CHECKING:
    from attnbench.api import Run
    from attnbench.cases.select import Selection
    from attnbench.reports.formats import Format
    from attnbench.runner.moment import Progress

MOST_GIB = 2**30


def finish(
    ctx: click.Context,
    start: Callable[[Progress], Run],
    format_: Format,
    *,
    trace: bool,
    benchmark_json: Path | None = None,
) -> NoReturn:
    """Start or go on with a run, print its records, and exit with what they amount to.

    benchmark_json: where to write it in pytest-benchmark's format too. After Ctrl-C, prints what was measured
    before it goes on to end the command.
    """
    from attnbench.api import load

    try:
        with progress() as tell:
            run = start(tell)
    except Interrupted as stop:
        print_records(load(stop.path).judged, format_, trace=trace)
        raise
    click.echo(f"stored in {run.path}", err=True)
    print_records(run.judged, format_, trace=trace)
    if benchmark_json is not None:
        write_benchmark_json(run.paths, benchmark_json)
    ctx.exit(run.exit_code)


def resumed(ctx: click.Context, path: Path) -> Callable[[Progress], Run]:
    """Going on with the run in a file; a usage error where anything but how to print was said."""
    from attnbench.api import resume
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
    return lambda tell: resume(path, progress=tell)


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
