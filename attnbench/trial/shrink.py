"""From a point on which a backend is wrong to a smaller one, until every step would make it right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from attnbench.inputs.kinds import NORMAL
from attnbench.trial.point import Point, described
from attnbench.types.batch import batch_text, parse_batch
from attnbench.types.case import Case
from attnbench.types.errors import BadCase

Wrong = Callable[[Point], bool]
"""Tell if a backend is wrong on a point; one that it declines is not."""

MOST_TRIALS = 150
"""Points that are judged for one failure; shrinking ends there."""

PLAIN_RULE = "scaled_dot"


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
    if case.rule != PLAIN_RULE:
        yield {"rule": PLAIN_RULE, "constants": ()}
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
    if case.returns:
        yield {"returns": ()}
    if case.batch:
        yield from _plainer_batch(case)
    elif case.B > 1:
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
    if not case.batch:
        for Lq, Lk in _lengths(case.Lq, case.Lk):
            yield {"Lq": Lq, "Lk": Lk, "mask": case.mask.fitted(case.B, Lk)}
    for D in _sizes(case.D):
        yield {"D": D, "Dv": D if case.Dv == case.D else case.Dv}
    if case.Dv != case.D:
        yield from ({"Dv": Dv} for Dv in _sizes(case.Dv))


def _plainer_batch(case: Case) -> Iterator[dict[str, Any]]:
    """Yield changes of fields of a case with a batch: no batch, fewer sequences, then shorter ones."""
    lengths = parse_batch(case.batch)
    if len(lengths) == 1:
        (Lq, Lk), *_ = lengths
        yield {"batch": "", "storage": "dense", "sizes": (), "B": 1, "Lq": Lq, "Lk": Lk}
    if case.sizes:
        yield {"sizes": ()}
    half = len(lengths) // 2
    fewer = [lengths[:half], lengths[half:]] if half > 1 else []
    fewer += [lengths[:at] + lengths[at + 1 :] for at in range(len(lengths))]
    longest = max(lengths, key=lambda one: one[0] * one[1])
    shorter = [(longest,) * len(lengths)] if len(set(lengths)) > 1 else []
    shorter += [tuple((min(q, most), min(k, most)) for q, k in lengths) for most in _sizes(case.Lk)]
    for at, (queries, keys) in enumerate(lengths):
        shorter += [(*lengths[:at], other, *lengths[at + 1 :]) for other in _lengths(queries, keys)]
    for other in [one for one in (*fewer, *shorter) if one and one != lengths]:
        Lq, Lk = (max(each) for each in zip(*other, strict=True))
        mask = case.mask.fitted(len(other), max(1, Lk))
        yield {"batch": batch_text(other), "B": len(other), "Lq": Lq, "Lk": Lk, "mask": mask}
    for name, value in case.sizes:
        others = dict(case.sizes)
        yield from ({"sizes": tuple((others | {name: size}).items())} for size in _sizes(value))


def _lengths(Lq: int, Lk: int) -> Iterator[tuple[int, int]]:
    """Yield smaller numbers of queries and keys; equal ones stay equal."""
    if Lq == Lk:
        yield from ((L, L) for L in _sizes(Lk))
        return
    yield max(Lq, Lk), max(Lq, Lk)
    yield from ((Lq, Lk) for Lk in _sizes(Lk))
    yield from ((Lq, Lk) for Lq in _sizes(Lq))


def _sizes(size: int) -> Iterator[int]:
    """Yield smaller sizes: an eighth, a half, three quarters, one less; none of 0."""
    if size == 0:
        return
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
        (case.rule != PLAIN_RULE, f"the rule {case.rule}"),
        (bool(case.constants), "constants of the rule"),
        (case.dtype != "float32", f"the dtype {case.dtype}"),
        (bool(case.batch), f"the storage {case.storage}"),
        *((True, f"{name} = {size}") for name, size in case.sizes),
        *((True, f"the output {name}") for name in case.returns),
        (case.B > 1, "several sequences" if case.batch else "several batch elements"),
        (case.group > 1, f"groups of {case.group} query heads"),
        (case.Hkv > 1, f"{case.Hkv} key/value heads"),
        (case.Dv != case.D, f"values of another width than keys ({case.Dv} and {case.D})"),
        *_of_lengths(case),
        (point.values != NORMAL, f"the stress input {point.values}"),
    ]
    return (*(text for there, text in words if there), *map(described, point.way.words()))


def _of_lengths(case: Case) -> Iterator[tuple[bool, str]]:
    """Yield properties of the numbers of queries and keys, and whether a case has them."""
    if not case.batch:
        yield case.Lq == 1 < case.Lk, "one query"
        yield 1 < case.Lq < case.Lk, "fewer queries than keys"
        yield case.Lq > case.Lk, "more queries than keys"
        return
    lengths = parse_batch(case.batch)
    yield len(set(lengths)) > 1, "unlike lengths"
    yield any(queries == 1 < keys for queries, keys in lengths), "a sequence of one query"
    yield any(1 < queries < keys for queries, keys in lengths), "a sequence with fewer queries than keys"
    yield any(queries > keys > 0 for queries, keys in lengths), "a sequence with more queries than keys"
    yield any(queries > keys == 0 for queries, keys in lengths), "a sequence without keys"
    yield any(queries == 0 for queries, _ in lengths), "a sequence without queries"


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
    if case.B > 1 and case.batch:
        # Which of the sequences it is, no name of a size says.
        sizes = {"D": case.D}
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
    elif case.batch:
        Lq, Lk = changes.get("Lq", case.Lq), changes.get("Lk", case.Lk)
        changes = {"batch": batch_text(((Lq, Lk),)), "Lq": Lq, "Lk": Lk}
    if "Lk" in changes:
        changes["mask"] = case.mask.fitted(case.B, size)
    try:
        return Point(replace(case, **changes), point.values, point.way)
    except BadCase:
        return None
