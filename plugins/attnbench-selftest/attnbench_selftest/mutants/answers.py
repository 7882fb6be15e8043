"""Answers without attention, answers with one wrong number, and answers right at known lengths only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from attnbench.kit.layer import for_operation
from attnbench.testing.mistakes.parts import RIGHT, Form, built, right_spread, right_weights
from attnbench.types.backend import Setup
from attnbench.types.case import DTYPES, Case, Dtype
from attnbench.types.rule import Rule
from attnbench_selftest.mutants.known import WIDE
from attnbench_selftest.mutants.mutant import Applies, Mutant, around_call, mistaken
from attnbench_selftest.mutants.where import keeps_a_key, kept_counts, scores_matter

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call


LISTED = (1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 197, 256, 512, 1000, 1024, 1500, 2048, 4096, 8192)
"""Lengths of public suites."""


def _answer(made: Callable[[Setup, Tensor, Tensor, Tensor], Tensor]) -> Callable[[Setup], Call]:
    """An answer of heads (B, H, ...) that broadcasts to the output's shape, for either operation."""

    def prepare(setup: Setup) -> Call:
        case = setup.case

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            out = made(setup, q, k, right_spread(setup, v))
            return out.expand(case.B, case.H, case.Lq, case.Dv).contiguous()

        return for_operation(attend, setup)

    return prepare


def _zeros(setup: Setup, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return v.new_zeros(1, 1, 1, 1)


def _values(setup: Setup, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return v.clone()


def _mean(setup: Setup, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return v.mean(2, keepdim=True)


def _running_mean(setup: Setup, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The mean of as many values as a query of ``lower_right`` sees, one at least."""
    import torch

    case = setup.case
    counts = torch.arange(1, case.Lk + 1, device=v.device)[:, None]
    means = (v.double().cumsum(2) / counts).to(v.dtype)
    last = torch.arange(case.Lq, device=v.device) + case.query_offset
    return means[:, :, last.clamp(0, case.Lk - 1)]


def _uniform(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    return right_weights(setup, scores * 0, added)


def _nearest(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    import torch

    wide = scores.to(added.dtype) + added
    hard = torch.zeros_like(wide).scatter(-1, wide.argmax(-1, keepdim=True), 1)
    return hard.masked_fill(added.isneginf(), 0).to(scores.dtype)


def _known(holds: Callable[[int], bool]) -> Callable[[Setup], Call]:
    """Right where both lengths are known, the mean of all values elsewhere."""

    def prepare(setup: Setup) -> Call:
        if holds(setup.case.Lq) and holds(setup.case.Lk):
            return built(RIGHT, setup)
        return _answer(_mean)(setup)

    return prepare


def _whole_blocks(case: Case, rule: Rule) -> bool:
    """A length of the case itself is whole blocks; of lengths drawn at random one in sixteen is."""
    return (case.Lq % 16 == 0 or case.Lk % 16 == 0) and scores_matter(case, rule)


def _same_shape(case: Case, rule: Rule) -> bool:
    return case.Lq == case.Lk and scores_matter(case, rule)


ANSWERS: dict[str, tuple[str, Callable[[Setup], Call], Applies]] = {
    "zeros": ("zeros", _answer(_zeros), keeps_a_key),
    "values": ("v itself, repeated for its heads", _answer(_values), _same_shape),
    "mean_of_values": ("the mean of v", _answer(_mean), scores_matter),
    "running_mean_of_values": ("the mean of the values so far", _answer(_running_mean), scores_matter),
}

KNOWN: dict[str, tuple[str, Callable[[int], bool]]] = {
    "known_powers_of_two": (
        "right at lengths that are powers of two",
        lambda length: length & (length - 1) == 0,
    ),
    "known_whole_blocks": (
        "right at lengths that are multiples of 16",
        lambda length: length % 16 == 0 or length == 1,
    ),
    "known_listed_lengths": ("right at the lengths of public suites", lambda length: length in LISTED),
    "known_long_lengths": ("right at lengths of 48 and more", lambda length: length >= 48),
    "known_odd_lengths": ("right at lengths that are not whole blocks", lambda length: length % 16 != 0),
}


def _sigmoid(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    return (scores.to(added.dtype) + added).sigmoid().to(scores.dtype)


def _element_off(setup: Setup, call: Call) -> Call:
    """The last element of the whole output is 1 % too large."""

    def off(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = call(q, k, v).contiguous()
        out.view(-1)[-1] *= 1.01
        return out

    return off


def _row_times(factor: float) -> Callable[[Setup, Call], Call]:
    """The last row of the last batch element, multiplied."""

    def around(setup: Setup, call: Call) -> Call:
        def off(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            out = call(q, k, v).clone()
            out[-1].select(-2, setup.case.Lq - 1).mul_(factor)
            return out

        return off

    return around


def _last_row_kept(case: Case, rule: Rule) -> bool:
    return bool(kept_counts(case)[-1, -1] > 0)


SINGLE: tuple[tuple[str, str, Callable[[Setup, Call], Call], tuple[Dtype, ...]], ...] = (
    ("one_element_1_percent_off", "one element of the whole output 1 % too large", _element_off, WIDE),
    ("one_row_a_64th_off", "one row 1/64 too large", _row_times(1 + 2**-6), WIDE),
    ("one_row_halved", "one row half as large as it is", _row_times(0.5), DTYPES),
)

MUTANTS: tuple[Mutant, ...] = (
    mistaken("sigmoid", "each weight the sigmoid of its score", Form(weights=_sigmoid), scores_matter),
    *(
        around_call(name, words, around, "value", _last_row_kept, dtypes=dtypes)
        for name, words, around, dtypes in SINGLE
    ),
    *(
        Mutant(name=name, summary=words, prepare=prepare, applies=applies)
        for name, (words, prepare, applies) in ANSWERS.items()
    ),
    mistaken("mean_of_kept_values", "all kept keys weigh alike", Form(weights=_uniform), scores_matter),
    mistaken(
        "value_of_the_nearest_key", "the largest score takes it all", Form(weights=_nearest), scores_matter
    ),
    *(
        Mutant(
            name=name,
            summary=f"{words}, the mean of v elsewhere",
            prepare=_known(holds),
            trait="shape",
            applies=_whole_blocks if name == "known_odd_lengths" else scores_matter,
        )
        for name, (words, holds) in KNOWN.items()
    ),
)
