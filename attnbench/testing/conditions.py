"""The condition of a fault: what all failing cases have, and no other case has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from attnbench.cases.ids import parse_case
from attnbench.types.case import Case

MOST_SHARED = 2
"""Properties that are told where each alone is the condition."""
MOST_TOGETHER = 3
BLOCK = 16
"""A fault from one past a multiple of this on is most likely at a boundary of blocks."""


@dataclass(frozen=True)
class Property:
    """A property of cases. words: after "with" or "without". code: what ``supports`` tests."""

    words: str
    code: str
    holds: Callable[[Case], bool]
    boundary: int = 0


def condition(
    failing: Iterable[str],
    others: Iterable[str],
    *,
    small: str = "",
    least: Mapping[str, int] | None = None,
    right: bool = True,
) -> str:
    """Say in one sentence which cases fail; "" where no condition fits all of them.

    failing, others: ids of all cases of a check. small: the smallest case that fails, if one was sought: what
    it has not is not needed. least: sizes from which on it fails. right: whether all others are right; else
    some fail otherwise.
    """
    wrong, fine = [[parse_case(case) for case in ids] for ids in (failing, others)]
    if not wrong or not fine:
        return ""
    known = [one for one in _sizes(least or {}) if all(map(one.holds, wrong))]
    there = [_property(words, code) for words, code in properties(wrong[0]).items()]
    known += [
        one for one in there if all(map(one.holds, wrong)) and (not small or one.holds(parse_case(small)))
    ]
    if small:
        seen = dict.fromkeys(words for case in fine for words in properties(case))
        known += [one for one in map(_without, seen) if all(map(one.holds, wrong))]
    found = _least_sets(known, fine, MOST_TOGETHER if small else 1)
    if not found:
        return ""
    together = [" and ".join(dict.fromkeys(_told(one) for one in each)) for each in found]
    words = f"{'with ' if not together[0].startswith('without') else ''}{', or '.join(together)}"
    rest = "is right in all others" if right else "so in no other"
    boundary = max((one.boundary for each in found for one in each), default=0)
    block = f" Look at the boundary of blocks at {boundary}." if boundary else ""
    return f"It fails in all cases {words}, and {rest}.{block}"


def _least_sets(known: Sequence[Property], fine: Sequence[Case], most: int) -> list[tuple[Property, ...]]:
    """Return the smallest sets of properties that no other case has together; single ones may be several."""
    among = {one: {at for at, case in enumerate(fine) if one.holds(case)} for one in known}
    for count in range(1, most + 1):
        found = [
            each for each in combinations(known, count) if not set.intersection(*(among[one] for one in each))
        ]
        if found:
            return found[: MOST_SHARED if count == 1 else 1]
    return []


def _told(one: Property) -> str:
    return f"{one.words} ({one.code})" if one.code else one.words


def _property(words: str, code: str) -> Property:
    return Property(words, code, lambda case: words in properties(case))


def _without(words: str) -> Property:
    return Property(f"without {words}", "", lambda case: words not in properties(case))


def _sizes(least: Mapping[str, int]) -> list[Property]:
    found = []
    for names, size in least.items():
        for name in reversed(names.split(" = ")):
            boundary = size - 1 if size - 1 >= BLOCK and (size - 1) % BLOCK == 0 else 0
            found.append(Property(f"{name} > {size - 1}", "", _above(name, size), boundary))
    return found


def _above(name: str, size: int) -> Callable[[Case], bool]:
    return lambda case: bool(getattr(case, name) >= size)


def properties(case: Case) -> dict[str, str]:
    """Return what kernels treat specially in a case: in words, with the condition that ``supports`` tests."""
    mask = case.mask
    found = [
        (case.Hkv < case.H, "fewer key/value heads than query heads", "case.Hkv != case.H"),
        (case.Lq != case.Lk, "different lengths of queries and keys", "case.Lq != case.Lk"),
        (case.Lq == 1, "one query", "case.Lq == 1"),
        (case.Dv != case.D, "values of another width than keys", "case.Dv != case.D"),
        (case.D % 8, "a number of features that is not a multiple of 8", "case.D % 8"),
        (case.B > 1, "several batch elements", "case.B > 1"),
        (not mask.is_none, "a mask", "not case.mask.is_none"),
        (mask.causal, "a causal mask", "case.mask.causal is not None"),
        (mask.causal, f"a causal mask aligned {mask.causal}", f"case.mask.causal == {mask.causal!r}"),
        (mask.window, "a window", "case.mask.window is not None"),
        (mask.padding, "padding", "case.mask.padding is not None"),
        (mask.explicit, "an explicit mask", "case.mask.explicit is not None"),
        (mask.explicit, f"a {mask.explicit} mask", f"case.mask.explicit == {mask.explicit!r}"),
        (mask.per_head, "a mask of its own for each head", "case.mask.per_head"),
        (case.layer is not None, "a layer", "case.layer is not None"),
        (case.pass_ != "forward", "gradients", "case.pass_ != 'forward'"),
        (case.dropout, "dropout", "case.dropout"),
        (case.batch, "a batch", "case.batch"),
        (case.batch, f"the storage {case.storage}", f"case.storage == {case.storage!r}"),
        ("lse" in case.returns, "a log-sum-exp", "'lse' in case.returns"),
        (max(case.Lq, case.Lk) > 128, "long sequences", "max(case.Lq, case.Lk) > 128"),
        (True, f"the dtype {case.dtype}", f"case.dtype == {case.dtype!r}"),
        (True, f"the rule {case.rule}", f"case.rule == {case.rule!r}"),
    ]
    return {words: code for there, words, code in found if there}
