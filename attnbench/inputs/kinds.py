"""The kinds of inputs of a check: ordinary draws, and stress inputs that each show a kind of mistake."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from attnbench.inputs import large_logits, near_duplicate, one_hot, unlikely_values
from attnbench.inputs.draw import Stored, draw_activations
from attnbench.types.case import Case, output_shape
from attnbench.types.operation import operation_of
from attnbench.types.rule import Rule

Triple = tuple[Stored, Stored, Stored]

NORMAL = "normal"
"""The kind of ordinary inputs."""

STRIDED, GRADED = "strided", "graded"
"""Kinds of ordinary numbers that are passed in another way; see :mod:`attnbench.worker.prepared`."""

DELIVERIES = (STRIDED, GRADED)

LARGEST_GRADED = 2**26
"""The most elements of scores for inputs that require gradients: a graph keeps several such arrays."""

_AFTER_NORMAL = 1000


@dataclass(frozen=True)
class Family:
    """A kind of inputs.

    name: in records and options. summary: what it detects. applies: whether it makes sense for a case. draw:
    ``draw(case, rule, entropy, index)``. fewest: draws of a large case. Small cases have more, until about
    ``elements`` output elements are compared, but at most ``most``.
    """

    name: str
    summary: str
    applies: Callable[[Case, Rule], bool]
    draw: Callable[[Case, Rule, int, int], Triple]
    fewest: Callable[[Case], int]
    elements: int
    most: int


def _has_room_for_a_graph(case: Case, rule: Rule) -> bool:
    scores = case.B * case.H * case.Lq * case.Lk * rule.score_elements(case)
    return case.pass_ == "forward" and scores <= LARGEST_GRADED


def _draw_after_normal(number: int, case: Case, rule: Rule, entropy: int, index: int) -> Triple:
    """Draw ordinary inputs that no ``normal`` draw has; ``number`` separates the kinds."""
    return draw_activations(case, rule, entropy, _AFTER_NORMAL * number + index)


FAMILIES: tuple[Family, ...] = (
    Family(
        NORMAL,
        "standard normal numbers",
        applies=lambda case, rule: True,
        draw=draw_activations,
        fewest=lambda case: 2,
        elements=4096,
        most=16,
    ),
    Family(
        "deep_change",
        "the draw before with two elements inside v or inside k changed, sums kept",
        applies=near_duplicate.applies,
        draw=near_duplicate.draw,
        fewest=lambda case: 2,
        elements=1024,
        most=8,
    ),
    Family(
        "one_key",
        "all weight on the first, the last or a far key",
        applies=one_hot.applies,
        draw=one_hot.draw,
        fewest=lambda case: math.ceil(len(one_hot.PLACES) / (case.B * case.Hkv)),
        elements=1024,
        most=8,
    ),
    Family(
        "loud",
        "scores up to ±1000, tied or far apart",
        applies=large_logits.applies,
        draw=large_logits.draw,
        fewest=lambda case: 1,
        elements=1024,
        most=4,
    ),
    Family(
        "quiet",
        "values on the unlikely keys, which a wrong scale changes most",
        applies=unlikely_values.applies,
        draw=unlikely_values.draw,
        fewest=lambda case: 1,
        elements=256,
        most=2,
    ),
    Family(
        STRIDED,
        "ordinary numbers as views with strides of their own",
        applies=lambda case, rule: True,
        draw=partial(_draw_after_normal, 1),
        fewest=lambda case: 1,
        elements=256,
        most=2,
    ),
    Family(
        GRADED,
        "ordinary numbers that require gradients, in a forward pass",
        applies=_has_room_for_a_graph,
        draw=partial(_draw_after_normal, 2),
        fewest=lambda case: 1,
        elements=256,
        most=2,
    ),
)
"""``normal`` comes first. ``deep_change`` with some number follows the ``normal`` draw of that number."""

_BY_NAME = {family.name: family for family in FAMILIES}


def families_of(case: Case, rule: Rule) -> tuple[str, ...]:
    """Return the names of the kinds that make sense for a case, ``normal`` first."""
    if operation_of(case).heads is None:
        return (NORMAL,)
    return tuple(family.name for family in FAMILIES if family.applies(case, rule))


def family_draws(case: Case, family: str) -> int:
    """Return how many draws of a kind a case is checked on."""
    chosen = _BY_NAME[family]
    needed = math.ceil(chosen.elements / math.prod(output_shape(case)))
    return max(chosen.fewest(case), min(chosen.most, needed))


def draw_family(case: Case, rule: Rule, family: str, entropy: int, index: int) -> Triple:
    """Draw inputs number ``index`` of a kind: q, k, v, or the sources of queries, keys and values, as stored.

    Seeded as :func:`attnbench.inputs.draw.draw_activations`; a source that serves twice is one array. In some
    kinds the values also depend on the mask.

    Raises:
        KeyError: there is no such kind.
        ValueError: it makes no sense for the case (:func:`families_of`).
    """
    return _BY_NAME[family].draw(case, rule, entropy, index)
