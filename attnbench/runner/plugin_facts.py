"""What plugins know of the machine and its software, for the manifest of a run."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

from attnbench.plugins.calling import Raised, call, tell
from attnbench.plugins.registry import Entry
from attnbench.plugins.tracing import traced
from attnbench.types.fact import EnvironmentFact, FactValue
from attnbench.types.words import clean

_LARGEST = 2**63 - 1
"""Of whole numbers that a run file holds."""

_NEEDED = "a text, a finite number, true, false or None is needed"


def plugin_facts(entries: Iterable[Entry[EnvironmentFact]]) -> dict[str, dict[str, FactValue]]:
    """Read every fact: by distribution, by name. One that fails is told on stderr and left out."""
    found: dict[str, dict[str, FactValue]] = {}
    for entry in entries:
        fact, what = entry.record, f"{entry.source}: the fact {entry.record.name!r}"
        try:
            with traced(what):
                value = call(fact.read)
        except Raised as failure:
            tell(f"{what} raised {failure}; the run goes without it")
            continue
        if _is_fact(value):
            stated = clean(value) if isinstance(value, str) else value
            found.setdefault(entry.source.distribution, {})[fact.name] = stated
        else:
            tell(f"{what} gave {clean(value)}, where {_NEEDED}; the run goes without it")
    return found


def _is_fact(value: object) -> bool:
    # Of subclasses (numpy.float64, enumerations) nobody knows how a file would hold them.
    if type(value) is int:
        return abs(value) <= _LARGEST
    if type(value) is float:
        return isfinite(value)
    return value is None or type(value) in (bool, str)
