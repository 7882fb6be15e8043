"""Mutants: backends known to be right, or wrong in one way; and attention in parts, which they exchange."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from attnbench.kit.dtypes import case_dtype, softmax_dtype
from attnbench.kit.layer import for_operation
from attnbench.kit.scores import map_keys, map_queries, soft_cap
from attnbench.testing.mutants.masks import Added, added
from attnbench.types.backend import Layout, Setup
from attnbench.types.case import DTYPES, Case, Dtype, Pass
from attnbench.types.rule import Rule

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from attnbench.types.backend import Call

Trait = Literal["value", "shape", "timed", "state", "gradient"]
"""What shows a mistake. value: the output of any call, on inputs that reach it. shape: outputs of other
sizes than the case has. timed: outputs of many calls on one storage whose contents change. state: what a
call leaves behind besides the values of its output. gradient: gradients; its outputs are right."""

Applies = Callable[[Case, Rule], bool]
BOTH: tuple[str, ...] = ("attention", "multihead")


@dataclass(frozen=True)
class Mutant:
    """One backend that is known to be wrong in one way, or to be right.

    name: without the word that says which of both. summary: what it does, one line. prepare: as of a backend.
    applies: where its mistake can show; for a right one, the cases it is written for. trait: what shows it;
    ``value`` for a right one. operations, dtypes, passes, layout: as of a backend.
    """

    name: str
    summary: str
    prepare: Callable[[Setup], Call]
    applies: Applies
    trait: Trait = "value"
    right: bool = False
    operations: tuple[str, ...] = BOTH
    dtypes: tuple[Dtype, ...] = DTYPES
    passes: tuple[Pass, ...] = ("forward",)
    layout: Layout = "BHLD"

    @property
    def backend_name(self) -> str:
        """Its name as a backend."""
        return f"{'right' if self.right else 'wrong'}_{self.name}"

    def runs(self, case: Case, rule: Rule) -> bool:
        """Return whether it is declared for a case and its mistake can show there."""
        return (
            case.operation in self.operations
            and case.dtype in self.dtypes
            and case.pass_ in self.passes
            and self.applies(case, rule)
        )


def right_spread(setup: Setup, x: Tensor) -> Tensor:
    """(B, Hkv, L, D) to (B, H, L, D)."""
    return x.repeat_interleave(setup.case.group, dim=1)


def right_scores(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    """(B, H, Lq, Lk) in the dtype of q; k has all H heads."""
    dot, free = setup.scoring.dot, setup.scoring.scores
    if dot is None:
        assert free is not None
        return free(q, k, slice(0, setup.case.Lk))
    return soft_cap(dot, map_queries(dot, q) @ map_keys(dot, k).mT * dot.scale)


def right_bias(setup: Setup) -> Tensor | None:
    """(H, Lq, Lk), or None."""
    bias = setup.scoring.bias
    return None if bias is None else bias(slice(0, setup.case.Lq), slice(0, setup.case.Lk))


def right_weights(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    """Weights in the dtype of the scores; computed in float32 or wider."""
    return normalised(setup, scores.to(added.dtype) + added).to(scores.dtype)


def normalised(setup: Setup, scores: Tensor) -> Tensor:
    """The softmax with the rule's sink, 0 in rows that keep no key; finite gradients there too."""
    import torch

    if setup.scoring.sink is not None:
        both = torch.cat((scores, sink_column(setup, scores)), -1)
        return both.softmax(-1)[..., :-1]
    empty = scores.isneginf().all(-1, keepdim=True)
    return scores.masked_fill(empty, 0).softmax(-1).masked_fill(empty, 0)


def sink_column(setup: Setup, scores: Tensor) -> Tensor:
    """One more column of scores: the sink's, -inf where the rule has none."""
    sink = setup.scoring.sink
    if sink is None:
        return scores.new_full((*scores.shape[:-1], 1), -float("inf"))
    return sink.to(scores)[:, None, None].expand(*scores.shape[:-1], 1)


def right_mix(setup: Setup, weights: Tensor, v: Tensor) -> Tensor:
    """Weighted values; v has all H heads."""
    return weights @ v


@dataclass(frozen=True)
class Form:
    """The parts of attention; a mutant exchanges one. Each has the arguments and shapes of the right one.

    mask: what a case's mask adds to the scores, float64 (B, 1, Lq, Lk).
    """

    spread: Callable[[Setup, Tensor], Tensor] = right_spread
    scores: Callable[[Setup, Tensor, Tensor], Tensor] = right_scores
    mask: Callable[[Case], Added] = added
    bias: Callable[[Setup], Tensor | None] = right_bias
    weights: Callable[[Setup, Tensor, Tensor], Tensor] = right_weights
    mix: Callable[[Setup, Tensor, Tensor], Tensor] = right_mix


RIGHT = Form()


def wide_dtype(setup: Setup) -> torch.dtype:
    """float64 for float64, float32 for all others."""
    return softmax_dtype(case_dtype(setup.case))


def mask_of(form: Form, setup: Setup) -> Tensor:
    """The form's mask alone, in the wide dtype on the case's device."""
    import torch

    return torch.from_numpy(form.mask(setup.case)).to(setup.case.device, wide_dtype(setup))


def plus_bias(form: Form, setup: Setup, mask: Tensor) -> Tensor:
    """The mask with the form's bias added."""
    bias = form.bias(setup)
    return mask if bias is None else mask + bias.to(mask)


def heads_of(form: Form, setup: Setup) -> Call:
    """The function of q, k, v of a form. With a backward pass the bias is made anew in each call."""
    mask = mask_of(form, setup)
    once = plus_bias(form, setup, mask) if setup.case.pass_ == "forward" else None

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        added = plus_bias(form, setup, mask) if once is None else once
        weights = form.weights(setup, form.scores(setup, q, form.spread(setup, k)), added)
        return form.mix(setup, weights, form.spread(setup, v))

    return attend


def built(form: Form, setup: Setup) -> Call:
    """The function of a form for either operation."""
    return for_operation(heads_of(form, setup), setup)


def of_form(form: Form) -> Callable[[Setup], Call]:
    """The ``prepare`` of a form."""
    return lambda setup: built(form, setup)


def mistaken(name: str, summary: str, form: Form, applies: Applies, **declared: Any) -> Mutant:
    """A wrong mutant: the form with a part exchanged. declared: further fields of the mutant."""
    return Mutant(name, summary, of_form(form), applies, **declared)


def around_call(
    name: str,
    summary: str,
    around: Callable[[Setup, Call], Call],
    trait: Trait,
    applies: Applies,
    **declared: Any,
) -> Mutant:
    """A wrong mutant: the right function with something wrong around it. declared: further fields."""
    return Mutant(name, summary, lambda setup: around(setup, built(RIGHT, setup)), applies, trait, **declared)
