"""The kinds of inputs of a check: ordinary draws, and stress inputs that each show a kind of mistake."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from attnbench.inputs import large_logits as loud
from attnbench.inputs import near_duplicate as deep_change
from attnbench.inputs import one_hot as one_key
from attnbench.inputs import unlikely_values as quiet
from attnbench.inputs.draw import Stored, draw_activations
from attnbench.types.case import Case, output_shape
from attnbench.types.operation import operation_of
from attnbench.types.rule import Rule

Triple = tuple[Stored, Stored, Stored]

NORMAL = "normal"
"""The family of ordinary inputs."""

STRIDED, GRADED = "strided", "graded"
"""Families of ordinary numbers that arrive in another way; see :mod:`attnbench.worker.prepared`."""

DELIVERIES = (STRIDED, GRADED)

LARGEST_GRADED = 2**26
"""Elements of scores up to which inputs that require gradients are asked for: a graph keeps several such."""

_AFTER_NORMAL = 1000


@dataclass(frozen=True)
class Family:
    """A way to draw the inputs of a case.

    name, summary: what it is called and what it shows. applies: whether it makes sense of a case.
    draw: ``draw(case, rule, entropy, index)``. fewest: draws that are needed however large the case is; small
    cases have more, until about ``elements`` output elements are compared, and ``most`` at most.
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
    """Further draws of ``normal``, those of each delivery its own."""
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
        applies=deep_change.applies,
        draw=deep_change.draw_deep_change,
        fewest=lambda case: 2,
        elements=1024,
        most=8,
    ),
    Family(
        "one_key",
        "all weight on the first, the last or a far key",
        applies=one_key.applies,
        draw=one_key.draw_one_key,
        fewest=lambda case: math.ceil(len(one_key.PLACES) / (case.B * case.Hkv)),
        elements=1024,
        most=8,
    ),
    Family(
        "loud",
        "scores up to ±1000, tied or far apart",
        applies=loud.applies,
        draw=loud.draw_loud,
        fewest=lambda case: 1,
        elements=1024,
        most=4,
    ),
    Family(
        "quiet",
        "values on the unlikely keys, which a wrong scale changes most",
        applies=quiet.applies,
        draw=quiet.draw_quiet,
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
"""``normal`` is the first; ``deep_change`` follows the draw of the same number of ``normal``."""

_BY_NAME = {family.name: family for family in FAMILIES}


def families_of(case: Case, rule: Rule) -> tuple[str, ...]:
    """Names of the families that make sense of a case, ``normal`` first."""
    if operation_of(case).heads is None:
        return (NORMAL,)
    return tuple(family.name for family in FAMILIES if family.applies(case, rule))


def family_draws(case: Case, family: str) -> int:
    """How many draws of a family a case is checked on."""
    chosen = _BY_NAME[family]
    needed = math.ceil(chosen.elements / math.prod(output_shape(case)))
    return max(chosen.fewest(case), min(chosen.most, needed))


def draw_family(case: Case, rule: Rule, family: str, entropy: int, index: int) -> Triple:
    """Draw number ``index`` of a family: q, k, v, or the sources of queries, keys and values, as stored.

    As :func:`attnbench.inputs.draw.draw_activations`: seeded by entropy and the case's sizes; one source that
    serves twice is one array. Where values must stand also depends on the mask.

    Raises:
        KeyError: there is no such family.
        ValueError: it makes no sense of the case (:func:`families_of`).
    """
    return _BY_NAME[family].draw(case, rule, entropy, index)
