"""The built-in suites: TOML files in ``data``, in the format of a user's own."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from attnbench.cases.suites import read_suite
from attnbench.hookspecs import hookimpl
from attnbench.types.extensions import Suite

DATA = Path(__file__).parent / "data"
FIRST, LAST = ("smoke", "textbook"), "edges"


@hookimpl
def attnbench_suites() -> tuple[Suite, ...]:
    """Bring the suites: the default first, then by name, the one for checking alone last."""
    return _suites()


@cache
def _suites() -> tuple[Suite, ...]:
    files = sorted(
        DATA.glob("*.toml"), key=lambda path: (path.stem not in FIRST, path.stem == LAST, path.stem)
    )
    return tuple(map(read_suite, files))
