"""The built-in suites: TOML files in ``data``, in the format of a user's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from attnbench.cases.suites import read_suite
from attnbench.hookspecs import hookimpl
from attnbench.types.extensions import Suite

DATA = Path(__file__).parent / "data"
FIRST, LAST = ("smoke", "textbook"), "edges"


@hookimpl
def attnbench_suites() -> Iterator[Suite]:
    """Bring the suites: the default first, then by name, the one for checking alone last."""
    files = sorted(
        DATA.glob("*.toml"), key=lambda path: (path.stem not in FIRST, path.stem == LAST, path.stem)
    )
    for path in files:
        yield read_suite(path)
