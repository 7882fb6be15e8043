"""Attention in parts, and mistakes: each exchanges one part for a wrong one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from attnbench.kit.dtypes import case_dtype, softmax_dtype
from attnbench.kit.layer import for_operation, repeat_heads
from attnbench.kit.scores import derived, scores_of
from attnbench.testing.mistakes.masks import Added, added_mask
from attnbench.types.backend import Setup
from attnbench.types.case import Case

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from attnbench.types.backend import Call
    from attnbench.types.rule import Scoring

Prepare = Callable[[Setup], "Callable[..., Any]"]


def right_spread(setup: Setup, x: Tensor) -> Tensor:
    """(B, Hkv, L, D) to (B, H, L, D)."""
    return repeat_heads(x, setup.case.H)


def right_scores(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    """(B, H, Lq, Lk) in the dtype of q; k has all H heads."""
    return scores_of(setup.scoring, scale_queries=False)(q, k, slice(0, setup.case.Lk))


def right_weights(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    """The weights in the dtype of the scores, computed in that of ``added``."""
    return normalised(setup, scores.to(added.dtype) + added).to(scores.dtype)


def right_mix(setup: Setup, weights: Tensor, v: Tensor) -> Tensor:
    """Weighted values; v has all H heads."""
    return weights @ v


def normalised(setup: Setup, scores: Tensor) -> Tensor:
    """The softmax with the rule's sink; 0 in rows that keep no key, with finite gradients there too."""
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


@dataclass(frozen=True)
class Form:
    """The parts of attention. Each has the arguments and shapes of the right one, which is the default.

    setup: changes the setup first, such as the parameters of the rule or the projections of the layer. mask:
    the numbers that a case's mask adds to the scores, float64 (B, 1 or H, Lq, Lk).
    """

    setup: Callable[[Setup], Setup] = lambda setup: setup
    spread: Callable[[Setup, Tensor], Tensor] = right_spread
    scores: Callable[[Setup, Tensor, Tensor], Tensor] = right_scores
    mask: Callable[[Case], Added] = added_mask
    weights: Callable[[Setup, Tensor, Tensor], Tensor] = right_weights
    mix: Callable[[Setup, Tensor, Tensor], Tensor] = right_mix


RIGHT = Form()


@dataclass(frozen=True)
class Mistake:
    """A mistake that kernels make.

    name: its name. summary: the mistake in a few words. advice: what to do about it. made: attention with the
    wrong part, or the ``prepare`` of a backend. rules: the rules that it concerns, all where empty.
    by_rounding: whether it is one of precision, and shows only in the case's own dtype.
    """

    name: str
    summary: str
    advice: str
    made: Form | Prepare
    rules: tuple[str, ...] = ()
    by_rounding: bool = False

    def prepare(self, setup: Setup) -> Call:
        """Make the wrong function; raises any exception where the mistake can't be made in the case."""
        return built(self.made, setup) if isinstance(self.made, Form) else self.made(setup)


def wide_dtype(setup: Setup) -> torch.dtype:
    """float64 for float64, float32 for all others."""
    return softmax_dtype(case_dtype(setup.case))


def mask_of(form: Form, setup: Setup) -> Tensor:
    """The form's mask alone, in the wide dtype on the case's device."""
    import torch

    return torch.from_numpy(form.mask(setup.case)).to(setup.case.device, wide_dtype(setup))


def plus_bias(setup: Setup, mask: Tensor) -> Tensor:
    """The mask with the rule's bias added."""
    bias = setup.scoring.bias
    return mask if bias is None else mask + bias(slice(0, setup.case.Lq), slice(0, setup.case.Lk)).to(mask)


def heads_of(form: Form, setup: Setup) -> Call:
    """The function of q, k, v of a form."""
    return _heads(form, form.setup(setup), mask_of(form, setup))


def _heads(form: Form, setup: Setup, mask: Tensor) -> Call:
    # With a backward pass the bias is made anew in each call, since its graph is used up.
    once = plus_bias(setup, mask) if setup.case.pass_ == "forward" else None

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        added = plus_bias(setup, mask) if once is None else once
        weights = form.weights(setup, form.scores(setup, q, form.spread(setup, k)), added)
        return form.mix(setup, weights, form.spread(setup, v))

    return attend


def built(form: Form, setup: Setup) -> Call:
    """The function of a form for either operation."""
    mask = mask_of(form, setup)

    def made(setup: Setup) -> Call:
        changed = form.setup(setup)
        return for_operation(_heads(form, changed, mask), changed)

    return derived(setup, made)


def weighed(function: Callable[[Setup, Tensor], Tensor]) -> Form:
    """A form whose weights are a function of the masked scores in the wide dtype."""

    def weights(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
        return function(setup, scores.to(added.dtype) + added).to(scores.dtype)

    return Form(weights=weights)


def with_scoring(change: Callable[[Scoring], Scoring]) -> Form:
    """A form with another binding of the rule."""
    return Form(setup=lambda setup: replace(setup, scoring=change(setup.scoring)))


def with_parameter(name: str, change: Callable[[Case, Tensor], Tensor]) -> Form:
    """A form whose rule is bound with one parameter changed."""

    def changed(setup: Setup) -> Setup:
        parameters = {**setup.rule_parameters, name: change(setup.case, setup.rule_parameters[name])}
        return replace(setup, scoring=setup.rule.bind(setup.case, parameters), rule_parameters=parameters)

    return Form(setup=changed)


def with_projections(change: Callable[[dict[str, Tensor], Case], dict[str, Tensor]]) -> Form:
    """A form with other projections of the layer. change: gives the changed ones of all projections."""

    def changed(setup: Setup) -> Setup:
        every = dict(setup.projections)
        return replace(setup, projections=every | change(every, setup.case))

    return Form(setup=changed)
