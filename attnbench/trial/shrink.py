"""From a point on which a backend is wrong to a smaller one, until every step would make it right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from attnbench.inputs.kinds import NORMAL
from attnbench.trial.point import Point, described
from attnbench.types.case import Case
from attnbench.types.errors import BadCase

Wrong = Callable[[Point], bool]
"""Tell if a backend is wrong on a point; one that it declines is not."""

MOST_TRIALS = 150
"""Points that are judged for one failure; shrinking ends there."""


@dataclass(frozen=True)
class Shrunk:
    """The smallest point. needed: what it still has that a plain case has not, in words.

    done: whether every step was tried, so that each of these is needed.
    """

    point: Point
    needed: tuple[str, ...]
    done: bool


def shrink(point: Point, is_wrong: Wrong, most: int = MOST_TRIALS) -> Shrunk:
    """Make a point smaller while the backend stays wrong on it; steps come from the greatest to the least.

    After a step that stays wrong the same kind of step is next, and all steps are tried once more in the end.
    """
    at, trials, changed = 0, 0, False
    while trials < most:
        left = list(steps(point))[at:]
        if not left and not changed:
            return Shrunk(point, needed(point), done=True)
        if not left:
            at, changed = 0, False
            continue
        trials += 1
        if is_wrong(left[0]):
            point, changed = left[0], True
        else:
            at += 1
    return Shrunk(point, needed(point), done=False)


def steps(point: Point) -> Iterator[Point]:
    """Yield points that are one step plainer or smaller."""
    case, way = point.case, point.way
    for name in reversed(way.named):
        yield replace(point, way=replace(way, **{name: ""}))
    if point.values != NORMAL:
        yield replace(point, values=NORMAL)
    for changes in _plainer(case):
        try:
            smaller = replace(case, **changes)
        except BadCase:
            continue
        # A case without gradients has none to ask for, nor one of the output.
        forward = smaller.pass_ == "forward" != case.pass_
        plainer = replace(way, grad="", upstream="") if forward else way
        if smaller.dtype != case.dtype:
            plainer = replace(plainer, autocast="")
        yield Point(smaller, point.values, plainer)


def _plainer(case: Case) -> Iterator[dict[str, Any]]:
    """Yield changes of fields: whole properties first, then sizes."""
    if case.layer is not None:
        yield {"layer": None, "operation": "attention"}
    if case.pass_ != "forward":
        yield {"pass_": "forward"}
    for mask in case.mask.plainer():
        yield {"mask": mask}
    plain = {"layout": "own", "threads": 1, "constants": ()}
    for name, value in plain.items():
        if getattr(case, name) != value:
            yield {name: value}
    if case.dtype != "float32":
        yield {"dtype": "float32"}
    if case.B > 1:
        for B in (1, 2):
            if B < case.B:
                yield {"B": B, "mask": case.mask.fitted(B, case.Lk)}
    if case.group > 1:
        yield {"Hkv": case.H}
    if case.group > 2:
        yield {"H": 2 * case.Hkv}
    if case.Hkv > 1:
        yield {"H": case.group, "Hkv": 1}
    if case.Dv != case.D:
        yield {"Dv": case.D}
    for Lq, Lk in _lengths(case):
        yield {"Lq": Lq, "Lk": Lk, "mask": case.mask.fitted(case.B, Lk)}
    for D in _sizes(case.D):
        yield {"D": D, "Dv": D if case.Dv == case.D else case.Dv}
    if case.Dv != case.D:
        yield from ({"Dv": Dv} for Dv in _sizes(case.Dv))


def _lengths(case: Case) -> Iterator[tuple[int, int]]:
    if case.Lq == case.Lk:
        yield from ((L, L) for L in _sizes(case.Lk))
        return
    yield max(case.Lq, case.Lk), max(case.Lq, case.Lk)
    yield from ((case.Lq, Lk) for Lk in _sizes(case.Lk))
    yield from ((Lq, case.Lk) for Lq in _sizes(case.Lq))


def _sizes(size: int) -> Iterator[int]:
    """Yield smaller sizes: an eighth, a half, three quarters, one less."""
    found = {max(1, size // 8), max(1, size // 2), max(1, 3 * size // 4), max(1, size - 1)}
    yield from sorted(found - {size})


def needed(point: Point) -> tuple[str, ...]:
    """Return what a point has that the plainest has not, in words."""
    case = point.case
    words = [
        (case.layer is not None, "a layer"),
        (case.pass_ != "forward", "gradients"),
        *((True, trait) for trait in case.mask.traits),
        (case.layout != "own", f"the layout {case.layout}"),
        (case.threads > 1, f"{case.threads} threads"),
        (bool(case.constants), "constants of the rule"),
        (case.dtype != "float32", f"the dtype {case.dtype}"),
        (case.B > 1, "several batch elements"),
        (case.group > 1, f"groups of {case.group} query heads"),
        (case.Hkv > 1, f"{case.Hkv} key/value heads"),
        (case.Dv != case.D, f"values of another width than keys ({case.Dv} and {case.D})"),
        (case.Lq == 1 < case.Lk, "one query"),
        (1 < case.Lq < case.Lk, "fewer queries than keys"),
        (case.Lq > case.Lk, "more queries than keys"),
        (point.values != NORMAL, f"inputs of the family {point.values}"),
    ]
    return (*(text for there, text in words if there), *map(described, point.way.words()))


def thresholds(point: Point, is_wrong: Wrong) -> str:
    """Say from which sizes on a shrunk point is wrong."""
    found = [f"{name} = {size}" for name, size in least_sizes(point, is_wrong).items()]
    return f"from {' and '.join(found)} on" if found else ""


def least_sizes(point: Point, is_wrong: Wrong) -> dict[str, int]:
    """Return the sizes of a shrunk point, by name, where one less is right and twice as much is wrong."""
    case, found = point.case, {}
    sizes = {"Lq": case.Lq, "Lk": case.Lk, "D": case.D}
    if case.Lq == case.Lk:
        sizes = {"Lq = Lk": case.Lk, "D": case.D}
    for name, size in sizes.items():
        if size <= 2:
            continue
        less, more = (_resized(point, name, other) for other in (size - 1, 2 * size + 1))
        if less is not None and more is not None and not is_wrong(less) and is_wrong(more):
            found[name] = size
    return found


def _resized(point: Point, name: str, size: int) -> Point | None:
    case = point.case
    changes: dict[str, Any] = dict.fromkeys(name.split(" = "), size)
    if name == "D":
        changes["Dv"] = size if case.Dv == case.D else case.Dv
    if "Lk" in changes:
        changes["mask"] = case.mask.fitted(case.B, size)
    try:
        return Point(replace(case, **changes), point.values, point.way)
    except BadCase:
        return None
