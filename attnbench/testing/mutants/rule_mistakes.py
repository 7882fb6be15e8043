"""Mistakes in what one rule has and others have not: caps, sinks, slopes, maps, joined vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from attnbench.testing.mutants.mutant import (
    Applies,
    Form,
    Mutant,
    mistaken,
    normalised,
    right_bias,
    right_scores,
    right_weights,
)
from attnbench.testing.mutants.where import both, drops, named, several_heads
from attnbench.types.backend import Setup
from attnbench.types.case import Case
from attnbench.types.rule import DotForm, Rule

if TYPE_CHECKING:
    from torch import Tensor


ADDITIVE = ("additive", "additive_sum")


def with_dot(change: Callable[[DotForm], DotForm]) -> Form:
    """Scores of another dot form."""

    def scores(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
        assert setup.scoring.dot is not None
        other = replace(setup.scoring, dot=change(setup.scoring.dot))
        return right_scores(replace(setup, scoring=other), q, k)

    return Form(scores=scores)


def _cap(setup: Setup) -> float:
    assert setup.scoring.dot is not None
    assert setup.scoring.dot.cap is not None
    return setup.scoring.dot.cap


def _cap_before_scale(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    assert setup.scoring.dot is not None
    return _cap(setup) * (q @ k.mT / _cap(setup)).tanh() * setup.scoring.dot.scale


def _cap_after_mask(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    """Uncapped once more, then capped with the mask: dropped keys get -cap."""
    cap = _cap(setup)
    plain = cap * (scores.to(added.dtype) / cap).clamp(-0.9999, 0.9999).atanh()
    return normalised(setup, cap * ((plain + added) / cap).tanh()).to(scores.dtype)


def _with_sink(change: Callable[[Tensor, Setup], Tensor | None]) -> Form:
    def weights(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
        assert setup.scoring.sink is not None
        sink = change(setup.scoring.sink, setup)
        return right_weights(replace(setup, scoring=replace(setup.scoring, sink=sink)), scores, added)

    return Form(weights=weights)


def _sink_to_a_value(setup: Setup, scores: Tensor, added: Tensor) -> Tensor:
    import torch

    weights = right_weights(setup, scores, added)
    rest = 1 - weights.sum(-1, keepdim=True)
    return torch.cat((weights[..., :1] + rest, weights[..., 1:]), -1)


def _with_bias(change: Callable[[Tensor], Tensor]) -> Form:
    def bias(setup: Setup) -> Tensor | None:
        made = right_bias(setup)
        return None if made is None else change(made)

    return Form(bias=bias)


def _from_the_first_key(setup: Setup) -> Tensor | None:
    """Distances as if query 0 stood at key 0."""
    import torch

    case, slope = setup.case, setup.rule_parameters["slope"]
    rows = torch.arange(case.Lq, device=slope.device)[:, None]
    distance = (rows - torch.arange(case.Lk, device=slope.device)).abs()
    return -slope[:, None, None] * distance


def _by_columns(bias: Tensor) -> Tensor:
    """Memory of (Lq, Lk) read as (Lk, Lq)."""
    heads, rows, columns = bias.shape
    return bias.reshape(heads, columns, rows).mT


def _general_transposed(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    return (q @ setup.rule_parameters["w"].mT) @ k.mT


def _additive(setup: Setup, q: Tensor, k: Tensor, linear: int, with_bias: bool) -> Tensor:
    """Additive scores of which the last ``linear`` features have no tanh."""
    import torch

    p = setup.rule_parameters
    from_k = k @ p["w_key"].mT
    from_k = from_k + p["bias"][:, None] if with_bias else from_k
    hidden = (q @ p["w_query"].mT)[:, :, :, None] + from_k[:, :, None]
    split = setup.case.D - linear
    hidden = torch.cat((hidden[..., :split].tanh(), hidden[..., split:]), -1)
    return (hidden @ p["v"][:, None, :, None])[..., 0] if "v" in p else hidden.sum(-1)


def _tail_linear(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    return _additive(setup, q, k, linear=max(1, setup.case.D % 8), with_bias=True)


def _no_bias(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    return _additive(setup, q, k, linear=0, with_bias=False)


def _additive_exchanged(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    assert setup.scoring.scores is not None
    return setup.scoring.scores(k, q, slice(0, setup.case.Lq)).mT


def _joined_exchanged(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    assert setup.scoring.scores is not None
    return setup.scoring.scores(k, q, slice(0, setup.case.Lk))


def _joined_without_bias(setup: Setup, q: Tensor, k: Tensor) -> Tensor:
    return right_scores(setup, q, k) - setup.rule_parameters["bias"][:, None]


def _many_features(case: Case, rule: Rule) -> bool:
    return case.D > 1


def _moved(case: Case, rule: Rule) -> bool:
    """Query 0 stands elsewhere than at key 0, and some query sees keys on both sides."""
    return case.query_offset != 0 and case.mask.causal is None and min(case.Lq, case.Lk) > 1


def _not_square(case: Case, rule: Rule) -> bool:
    return case.Lq != case.Lk and min(case.Lq, case.Lk) > 1


KINDS: dict[str, tuple[str, Form, Applies]] = {
    "cap_forgotten": ("no cap", with_dot(lambda dot: replace(dot, cap=None)), named("softcap")),
    "cap_before_scale": (
        "capped, then divided by √D",
        Form(scores=_cap_before_scale),
        both(named("softcap"), _many_features),
    ),
    "cap_after_mask": (
        "capped with the mask: dropped keys get -cap",
        Form(weights=_cap_after_mask),
        both(named("softcap"), drops),
    ),
    "sink_forgotten": ("no sink", _with_sink(lambda sink, setup: None), named("sinks")),
    "sink_of_other_heads": (
        "sinks in reversed order",
        _with_sink(lambda sink, setup: sink.flip(0)),
        both(named("sinks"), several_heads),
    ),
    "sink_divided_by_root": (
        "the sink divided by √D too",
        _with_sink(lambda sink, setup: sink * setup.case.D**-0.5),
        both(named("sinks"), _many_features),
    ),
    "sink_added_to_values": (
        "the first value gets the sink's weight",
        Form(weights=_sink_to_a_value),
        named("sinks"),
    ),
    "slopes_reversed": (
        "slopes in reversed order",
        _with_bias(lambda bias: bias.flip(0)),
        both(named("alibi"), several_heads),
    ),
    "slopes_negated": ("far keys are favoured", _with_bias(lambda bias: -bias), named("alibi")),
    "slopes_forgotten": ("no distances", Form(bias=lambda setup: None), named("alibi")),
    "distances_from_the_first_key": (
        "as if query 0 stood at key 0",
        Form(bias=_from_the_first_key),
        both(named("alibi"), _moved),
    ),
    "bias_by_columns": (
        "the memory of the bias read the other way round",
        _with_bias(_by_columns),
        both(named("alibi"), _not_square),
    ),
    "general_transposed": (
        "Wᵀ for W",
        Form(scores=_general_transposed),
        both(named("general"), _many_features),
    ),
    "general_without_matrix": ("no W", with_dot(lambda dot: DotForm()), named("general")),
    "cosine_of_keys_as_they_are": (
        "keys are not normalised",
        with_dot(lambda dot: replace(dot, map_k=None)),
        named("cosine"),
    ),
    "cosine_of_queries_as_they_are": (
        "queries are not normalised",
        with_dot(lambda dot: replace(dot, map_q=None)),
        named("cosine"),
    ),
    "additive_exchanged": ("q takes the part of k", Form(scores=_additive_exchanged), named(*ADDITIVE)),
    "additive_linear_tail": ("no tanh on the last features", Form(scores=_tail_linear), named(*ADDITIVE)),
    "additive_without_bias": ("no bias in the tanh", Form(scores=_no_bias), named(*ADDITIVE)),
    "joined_in_wrong_order": ("[k ; q] for [q ; k]", Form(scores=_joined_exchanged), named("concat_linear")),
    "joined_without_bias": (
        "no bias in the logits",
        Form(scores=_joined_without_bias),
        named("concat_linear"),
    ),
}

MUTANTS: tuple[Mutant, ...] = tuple(
    mistaken(name, words, form, applies) for name, (words, form, applies) in KINDS.items()
)
