"""A chart: a Vega-Lite specification, the views that a reader chooses among, and the same as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from attnbench.reports.html.shown import Shown

Row = dict[str, Any]
Spec = dict[str, Any]

COLOURS = (
    "#4c72e0", "#e0503c", "#2f9a45", "#b87d00", "#a463f2", "#1c968c", "#e0559a", "#9c6b4e", "#3b97c4",
    "#808590",
)  # fmt: skip
"""Each at a contrast of 3 or more to a light page and to a dark one (WCAG 2.2, 1.4.11); shapes tell the same
for those who don't see colours."""
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")


@dataclass(frozen=True)
class Table:
    """Rows for those who read numbers: columns by (key, head).

    rows: None for those of the chart itself; where they have a ``kind``, the points. open: stands there,
    rather than unfolds.
    """

    caption: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[Row, ...] | None = None
    open: bool = False


@dataclass(frozen=True)
class View:
    """One choice of what a chart shows.

    label: as it stands in the list. about: what is seen, for those who don't see it. values: the rows of the
    chart. holds: what else the specification takes from it. tables: what stands under the chart.
    """

    label: str
    about: str
    values: tuple[Row, ...]
    holds: Mapping[str, Any] = field(default_factory=dict)
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True)
class Chart:
    """A chart of a page. name: unique among them. lead: how to read it. choice: what views differ by.

    nothing: what stands there instead where there are no views. wide: scrolls on narrow screens.
    """

    name: str
    title: str
    lead: str
    choice: str
    spec: Spec
    views: tuple[View, ...]
    nothing: str
    wide: bool = False


class Marks:
    """The colour and shape of each backend, the same in all charts of a page.

    backends: those that have most to show first, since after so many colours begin again.
    """

    def __init__(self, backends: Iterable[str]) -> None:
        self._place = {name: place for place, name in enumerate(dict.fromkeys(backends))}

    def scales(self, names: Sequence[str]) -> dict[str, Any]:
        """What ``colour`` and ``shape`` of a specification take from a view that shows these backends."""
        places = [self._place[name] for name in names]
        return {
            "names": list(names),
            "colours": [COLOURS[place % len(COLOURS)] for place in places],
            "shapes": [SHAPES[(place + place // len(COLOURS)) % len(SHAPES)] for place in places],
        }

    def ordered(self, names: Iterable[str]) -> list[str]:
        """Names in the order of the page."""
        return sorted(set(names), key=self._place.__getitem__)


def by_run(runs: Sequence[Shown], made: Callable[[Shown], Iterable[View]]) -> tuple[View, ...]:
    """The views that ``made`` makes of each run; where there are several runs, labels say of which."""
    if len(runs) == 1:
        return tuple(made(runs[0]))
    return tuple(replace(view, label=f"run {run.number}: {view.label}") for run in runs for view in made(run))
