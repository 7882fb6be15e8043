"""``--benchmark-json``: a run in pytest-benchmark's format too, and what could not stand in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from attnbench.cli.loudness import note
from attnbench.types.errors import BadInput
from attnbench.types.words import count_of

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
        from attnbench.stored.to_pytest_benchmark import check_target

        check_target(path)


def write_benchmark_json(stored: Sequence[Path], path: Path) -> None:
    """Write the run of a file, and say what has no time to show.

    Raises:
        BadInput: there are several runs, or the file can't be written.
    """
    from attnbench.stored.read import read_side
    from attnbench.stored.to_pytest_benchmark import is_benchmark, write_pytest_benchmark

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
