"""The kinds of inputs of a check: ordinary draws, and stress inputs that each show a kind of mistake."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from attnbench.inputs import known_scores, near_duplicate
from attnbench.inputs.draw import Stored, draw_activations, store, widen
from attnbench.masks import kept_keys
from attnbench.types.case import Case, output_shape
from attnbench.types.encoding import encoding_of, is_encoded
from attnbench.types.operation import operation_of
from attnbench.types.rule import Rule

Triple = tuple[Stored, Stored, Stored]

NORMAL = "normal"
"""The kind of ordinary inputs."""

NEAR_DUPLICATE = "near_duplicate"
"""An ordinary draw that differs little from another."""

LIGHT_KEYS = "light_keys"
"""A kind that shows where a running sum is kept."""

STRIDED, SLICED, TRANSPOSED = "strided", "sliced", "transposed"
GRADED, TWO_GRAPHS, DROPPED = "graded", "two_graphs", "dropped"
"""Kinds of ordinary numbers that are passed in another way; see :mod:`attnbench.worker.prepared`."""

VIEWS = (STRIDED, SLICED, TRANSPOSED)
DELIVERIES = (*VIEWS, GRADED, TWO_GRAPHS, DROPPED)

KEPT_BY_CODES = (NORMAL, NEAR_DUPLICATE, STRIDED)
"""Kinds that mean the same in every encoding. Codes have no NaN and no gradients, nor lie in projections."""

SMALL = 2.0**-14
"""Of ordinary numbers so many times smaller the scales of llama.cpp's blocks, in float16, are subnormal."""

LARGEST_GRADED = 2**26
"""The most elements of scores for inputs that require gradients: a graph keeps several such arrays."""

_AFTER_NORMAL = 1000
_OWN_DRAWS = 2
"""The draws of a kind that an operation brings."""


@dataclass(frozen=True)
class StressInput:
    """A kind of inputs; ordinary ones (``normal``) count as one.

    name: in records and options. draw: ``draw(case, rule, entropy, index)``.
    applies: whether it makes sense for a case. elements, most: a small case has as many draws as compare
    about ``elements`` output elements, at most ``most``. fewest: the draws of a large case.
    largest_score: the largest magnitude of a score where limits must know it, else 0.
    """

    name: str
    draw: Callable[[Case, Rule, int, int], Triple]
    elements: int
    most: int
    applies: Callable[[Case, Rule], bool] = lambda case, rule: True
    fewest: Callable[[Case], int] = lambda case: 1
    largest_score: Callable[[Case], float] = lambda case: 0.0


def _has_room_for_a_graph(case: Case, rule: Rule) -> bool:
    scores = case.B * case.H * case.Lq * case.Lk * rule.score_elements(case)
    return case.pass_ == "forward" and scores <= LARGEST_GRADED


def _has_heads(case: Case, rule: Rule) -> bool:
    return case.layer is None


def _has_features_and_keys(case: Case, rule: Rule) -> bool:
    """Return whether keys can lie with their features outside, in a forward pass."""
    return case.layer is None and case.pass_ == "forward" and min(case.D, case.Lk) > 1


def _drops_keys(case: Case, rule: Rule) -> bool:
    """Return whether the mask drops a key for every query, in an ``attention`` case without gradients."""
    plain = case.layer is None and case.pass_ == "forward" and not rule.pairs_keys
    return plain and not case.mask.is_none and not kept_keys(case).all()


def _draw_after_normal(number: int, case: Case, rule: Rule, entropy: int, index: int) -> Triple:
    """Draw ordinary inputs that no ``normal`` draw has; ``number`` separates the kinds."""
    return draw_activations(case, rule, entropy, _AFTER_NORMAL * number + index)


def _has_small_scales(case: Case, rule: Rule) -> bool:
    """Return whether scales of codes follow from small numbers, whose outputs fit the dtype with all bits."""
    return is_encoded(case) and case.dtype != "float16" and not encoding_of(case).given(case)


def _draw_small_values(case: Case, rule: Rule, entropy: int, index: int) -> Triple:
    """Draw ordinary inputs with values that are :data:`SMALL` times as large."""
    q, k, v = _draw_after_normal(7, case, rule, entropy, index)
    return q, k, store(SMALL * widen(v, case.dtype), case.dtype)


STRESS_INPUTS: tuple[StressInput, ...] = (
    # Standard normal numbers.
    StressInput(NORMAL, draw_activations, elements=4096, most=16, fewest=lambda case: 2),
    # The draw before with two elements inside v or inside k changed, sums kept.
    StressInput(
        NEAR_DUPLICATE,
        near_duplicate.draw,
        elements=1024,
        most=8,
        applies=near_duplicate.applies,
        fewest=lambda case: 2,
    ),
    # All weight on the first, the last or a far key.
    StressInput(
        "one_hot",
        known_scores.draw_one_hot,
        elements=1024,
        most=8,
        applies=known_scores.one_hot_applies,
        fewest=lambda case: math.ceil(len(known_scores.PLACES) / (case.B * case.Hkv)),
    ),
    # Scores up to ±1000, tied or far apart.
    StressInput(
        "large_logits",
        known_scores.draw_large_logits,
        elements=1024,
        most=4,
        applies=known_scores.large_logits_apply,
        largest_score=known_scores.largest_logit,
    ),
    # Values on the unlikely keys, which a wrong scale changes most.
    StressInput(
        "unlikely_values",
        known_scores.draw_unlikely_values,
        elements=256,
        most=2,
        applies=known_scores.unlikely_values_apply,
    ),
    # 15 keys share all the weight, which bfloat16 can't hold; in float16 alone.
    StressInput(
        "even",
        known_scores.draw_even_weights,
        elements=256,
        most=2,
        applies=known_scores.even_weights_apply,
    ),
    # One heavy key and many light ones, of which a running sum in half precision loses all.
    StressInput(
        LIGHT_KEYS,
        known_scores.draw_light_keys,
        elements=256,
        most=2,
        applies=known_scores.light_keys_apply,
    ),
    # Values whose scales are tiny, which a scale in float16 without subnormal numbers loses; of codes alone.
    StressInput("small_values", _draw_small_values, elements=256, most=2, applies=_has_small_scales),
    # Ordinary numbers as views with strides of their own.
    StressInput(STRIDED, partial(_draw_after_normal, 1), elements=256, most=2),
    # q, k and v as slices of one tensor, as one projection makes them.
    StressInput(SLICED, partial(_draw_after_normal, 4), elements=1, most=1, applies=_has_heads),
    # Keys whose features lie further apart than their positions: a cache of (B, H, D, L).
    StressInput(
        TRANSPOSED, partial(_draw_after_normal, 5), elements=1, most=1, applies=_has_features_and_keys
    ),
    # Ordinary numbers that require gradients, in a forward pass.
    StressInput(GRADED, partial(_draw_after_normal, 2), elements=256, most=2, applies=_has_room_for_a_graph),
    # The second backward pass of a graph, after that of another call on other numbers.
    StressInput(
        TWO_GRAPHS,
        partial(_draw_after_normal, 6),
        elements=1,
        most=1,
        applies=lambda case, rule: case.pass_ == "both",
    ),
    # Ordinary numbers, but NaN in keys and infinity in values that the mask drops for every query.
    StressInput(DROPPED, partial(_draw_after_normal, 3), elements=1, most=1, applies=_drops_keys),
)
"""``normal`` comes first. ``near_duplicate`` with some number follows the ``normal`` draw of that number."""

SEARCHED: tuple[StressInput, ...] = (
    # All scores of a row alike, far below zero: a running maximum that starts too high leaves nothing.
    StressInput(
        "far_below",
        known_scores.draw_far_below,
        elements=1024,
        most=2,
        applies=known_scores.large_logits_apply,
        largest_score=known_scores.farthest_below,
    ),
    # All keys of a head alike: equal scores.
    StressInput("equal", known_scores.draw_equal, elements=1024, most=2, applies=known_scores.equal_applies),
    # Numbers below the smallest normal one among ordinary ones.
    StressInput(
        "subnormal",
        known_scores.draw_subnormal,
        elements=1024,
        most=2,
        applies=known_scores.subnormal_applies,
    ),
    # Values whose sum does not fit float16, though their mean does; in float16 alone.
    StressInput(
        "large_values",
        known_scores.draw_large_values,
        elements=256,
        most=2,
        applies=known_scores.large_values_apply,
    ),
)
"""Kinds that a search asks besides."""

_BY_NAME = {stress.name: stress for stress in (*STRESS_INPUTS, *SEARCHED)}


def stress_inputs_of(case: Case, rule: Rule) -> tuple[str, ...]:
    """Return the names of the kinds that make sense for a case, ``normal`` first."""
    operation = operation_of(case)
    if operation.heads is None:
        return (NORMAL, *operation.stress(case, rule))
    return tuple(stress.name for stress in STRESS_INPUTS if _makes_sense(stress, case, rule))


def _makes_sense(stress: StressInput, case: Case, rule: Rule) -> bool:
    """Return whether a kind makes sense for a case and is kept by its encoding."""
    if is_encoded(case) and stress.name not in (*KEPT_BY_CODES, *encoding_of(case).keeps):
        return False
    return stress.applies(case, rule)


def applies(case: Case, rule: Rule, stress: str) -> bool:
    """Return whether a kind makes sense for a case."""
    if operation_of(case).heads is None:
        return stress in stress_inputs_of(case, rule)
    return _makes_sense(_BY_NAME[stress], case, rule)


def stress_draws(case: Case, stress: str, share: int = 1) -> int:
    """Return how many draws of a kind a case is checked on, where so many cases share them."""
    if stress not in _BY_NAME:
        return _OWN_DRAWS
    chosen = _BY_NAME[stress]
    needed = math.ceil(chosen.elements / math.prod(output_shape(case)))
    return max(chosen.fewest(case), math.ceil(min(chosen.most, needed) / share))


def largest_score(case: Case, stress: str) -> float:
    """Return the largest magnitude of a score in a kind of inputs, where limits must know it, else 0."""
    return _BY_NAME[stress].largest_score(case) if stress in _BY_NAME else 0.0


def draw_stress_input(case: Case, rule: Rule, stress: str, entropy: int, index: int) -> Triple:
    """Draw inputs number ``index`` of a kind: q, k, v, or the sources of queries, keys and values, as stored.

    Seeded as :func:`attnbench.inputs.draw.draw_activations`; a source that serves twice is one array. In some
    kinds the values also depend on the mask. stress: one of :func:`stress_inputs_of`.
    """
    return _BY_NAME[stress].draw(case, rule, entropy, index)
