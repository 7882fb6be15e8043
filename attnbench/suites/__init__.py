"""The built-in suites: TOML files in ``data``, in the format of a user's own, and ``edges``, made by code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from attnbench import rules
from attnbench.cases.suites import read_suite
from attnbench.hookspecs import hookimpl
from attnbench.suites.edges import edges
from attnbench.types.extensions import Suite

DATA = Path(__file__).parent / "data"
FIRST = ("smoke", "textbook")


@hookimpl
def attnbench_suites() -> Iterator[Suite]:
    """Bring the suites: the default first, then by name, the one for checking alone last."""
    files = sorted(DATA.glob("*.toml"), key=lambda path: (path.stem not in FIRST, path.stem))
    for path in files:
        yield read_suite(path)
    # The module is imported, not its hook: this plugin would bring the rules a second time.
    yield edges(rule.name for rule in rules.attnbench_rules())
