"""Mistakes in updates of a state: the plain recurrence of changed inputs, or with a changed answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import log
from typing import TYPE_CHECKING, Any

from attnbench.kit.recurrence import prepare
from attnbench.testing.mistakes.parts import Mistake
from attnbench.types.operation import operation_of

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Setup

    Named = dict[str, Tensor]
    Change = Callable[[Named], Named]
    Answer = tuple[Tensor, Tensor]
    Ending = Callable[[Named, Tensor, Tensor], Answer]

CHUNKS = (64, 32, 16)


def _same(given: Named) -> Named:
    return given


def _as_it_is(given: Named, out: Tensor, state: Tensor) -> Answer:
    return out, state


def _prepare(setup: Setup, change: Change, ending: Ending) -> Callable[..., Any]:
    """Return the plain recurrence with changed inputs, whose q and k have all H heads, and a changed end."""
    case, rule = setup.case, setup.rule
    names = [spec.name for spec in operation_of(case).inputs(case, rule)]
    assert rule.update is not None, "an operation with updates has only rules with one"
    without = replace(rule, update=replace(rule.update, corrects=False))

    def call(*inputs: Tensor) -> Answer:
        given = dict(zip(names, inputs, strict=True))
        for name in "qk":
            given[name] = given[name].repeat_interleave(case.group, 1)
        changed = change(given)
        steps = changed["q"].shape[2]
        if steps == 0:
            raise ValueError("no step is left")
        own = rule if "beta" in changed else without
        plain = replace(setup, rule=own, case=replace(case, Hkv=case.H, Lq=steps, Lk=steps))
        return ending(given, *prepare(plain)(*changed.values()))

    return call


def _mistake(
    name: str, summary: str, advice: str, change: Change = _same, ending: Ending = _as_it_is
) -> Mistake:
    return Mistake(name, summary, advice, partial(_prepare, change=change, ending=ending))


def _tiled(setup: Setup) -> Callable[..., Any]:
    """Let head h of v have that of q and k which is h modulo their number, in place of h / group."""
    case = setup.case
    plain = prepare(replace(setup, case=replace(case, Hkv=case.H)))

    def call(q: Tensor, k: Tensor, *others: Tensor) -> Answer:
        heads = (x.repeat(1, case.group, 1, 1) for x in (q, k))
        found: Answer = plain(*heads, *others)
        return found

    return call


def _steps(given: Named, chosen: slice) -> Named:
    """Return the inputs of some steps; states and rates are those of all."""
    return {
        name: x if name in ("past_state", "rate") or x.ndim == 1 else x[:, :, chosen]
        for name, x in given.items()
    }


def _before(given: Named) -> Tensor:
    """Return the decays of the step before, 0 in the first."""
    decay = given["decay"].roll(1, 2)
    decay[:, :, 0] = 0
    return decay


def _without(given: Named, steps: slice) -> Named:
    """Leave out the decays of some steps."""
    decay = given["decay"].clone()
    decay[:, :, steps] = 0
    return given | {"decay": decay}


def _power(decay: Tensor) -> Tensor:
    """Return e^g for each feature of a key, or for all of them."""
    power = decay.exp()
    return power[..., None] if power.ndim == 3 else power


def _decayed_last(given: Named) -> Named:
    """Decay in the next step what this one leaves, and read it with its decay."""
    before = _before(given)
    changed = given | {"decay": before, "q": given["q"] * _power(given["decay"])}
    return changed | ({"a": given["a"] * _power(before)} if "a" in given else {})


def _left_decayed(given: Named, out: Tensor, state: Tensor) -> Answer:
    return out, state * _power(given["decay"])[:, :, -1, :, None]


def _earlier(given: Named) -> Named:
    """Read each state with the query of the next step."""
    return given | {"q": given["q"].roll(-1, 2)}


def _read_earlier(given: Named, out: Tensor, state: Tensor) -> Answer:
    out = out.roll(1, 2)
    first = (given["q"][:, :, 0, None] @ given["past_state"])[:, :, 0]
    out[:, :, 0] = first * given["q"].shape[-1] ** -0.5
    return out, state


def _whole_chunks(given: Named, size: int) -> Named:
    """Leave out the steps behind the last whole chunk."""
    steps = given["q"].shape[2]
    return _steps(given, slice(steps - steps % size))


def _zeros_behind(given: Named, out: Tensor, state: Tensor) -> Answer:
    padded = out.new_zeros((*out.shape[:2], given["q"].shape[2], out.shape[3]))
    padded[:, :, : out.shape[2]] = out
    return padded, state


def _without_tail(given: Named, size: int) -> Named:
    """Add nothing in the steps behind the last whole chunk."""
    steps, keys = given["q"].shape[2], given["k"].clone()
    keys[:, :, steps - steps % size :] = 0
    return given | {"k": keys}


UPDATES: tuple[Mistake, ...] = (
    _mistake(
        "decay_after_the_update",
        "the decay of a step applied after its update",
        "multiply the state by e^g before the step's key and value are added",
        _decayed_last,
        _left_decayed,
    ),
    _mistake(
        "decay_of_the_step_before",
        "each step with the decay of the one before",
        "multiply the state by the e^g of the step whose key and value are added",
        lambda given: given | {"decay": _before(given)},
    ),
    _mistake(
        "decay_as_a_power_of_two",
        "2^g in place of e^g",
        "use exp, or exp2 of g / ln 2",
        lambda given: given | {"decay": given["decay"] * log(2)},
    ),
    _mistake(
        "decay_left_out",
        "no decay",
        "multiply the state by e^g in each step, or decline the rule",
        lambda given: given | {"decay": given["decay"] * 0},
    ),
    _mistake(
        "first_decay_left_out",
        "no decay in the first step",
        "multiply past_state by the e^g of the first step too",
        partial(_without, steps=slice(1)),
    ),
    _mistake(
        "decay_of_the_first_feature",
        "the decays of a key's first feature for all of them",
        "multiply each row of the state by the e^g of its own feature",
        lambda given: given | {"decay": given["decay"][:, :, :, :1].expand_as(given["decay"])},
    ),
    _mistake(
        "decay_of_the_first_head",
        "the decays of the first head for all of them",
        "give each head of v its own decays",
        lambda given: given | {"decay": given["decay"][:, :1].expand_as(given["decay"])},
    ),
    *(
        _mistake(
            f"decay_left_out_between_chunks_{size}",
            f"no decay in the first step of each chunk of {size} but the first chunk",
            "multiply the state that a chunk begins with by the decay of its first step too",
            partial(_without, steps=slice(size, None, size)),
        )
        for size in CHUNKS
    ),
    _mistake(
        "rates_left_out",
        "no decay",
        "multiply the state by e^(dt rate) in each step",
        lambda given: given | {"rate": given["rate"] * 0},
    ),
    _mistake(
        "rate_of_the_first_feature",
        "the rates of a key's first feature for all of them",
        "give each element of the state a rate of its own",
        lambda given: given | {"rate": given["rate"][:, :1].expand_as(given["rate"])},
    ),
    _mistake(
        "dt_left_out_of_the_value",
        "dt in the decays alone",
        "multiply v by dt too",
        lambda given: given | {"v": given["v"] / given["dt"]},
    ),
    _mistake(
        "beta_twice",
        "beta applied twice",
        "multiply v - Sᵀk by beta once: not v or k too",
        lambda given: given | {"beta": given["beta"] ** 2},
    ),
    _mistake(
        "beta_left_out",
        "beta of 1",
        "multiply v - Sᵀk by beta",
        lambda given: given | {"beta": given["beta"] * 0 + 1},
    ),
    _mistake(
        "beta_on_the_value_alone",
        "beta v - Sᵀk in place of beta (v - Sᵀk)",
        "multiply what the state has for the key by beta too",
        lambda given: given | {"beta": given["beta"] * 0 + 1, "v": given["beta"][..., None] * given["v"]},
    ),
    _mistake(
        "correction_left_out",
        "beta v added in place of beta (v - Sᵀk)",
        "subtract what the decayed state has for the key",
        lambda given: (
            {name: x for name, x in given.items() if name != "beta"}
            | {"v": given["beta"][..., None] * given["v"]}
        ),
    ),
    _mistake(
        "correction_added",
        "beta (v + Sᵀk) in place of beta (v - Sᵀk)",
        "subtract what the decayed state has for the key",
        lambda given: given | {name: -given[name] for name in ("beta", "v")},
    ),
    _mistake(
        "correction_before_the_decay",
        "Sᵀk of the state before its decay",
        "subtract what the decayed state has for the key",
        lambda given: (
            given
            | {
                "beta": given["beta"] * (-given["decay"]).exp(),
                "v": given["v"] * given["decay"].exp()[..., None],
            }
        ),
    ),
    _mistake(
        "a_and_b_exchanged",
        "a and b exchanged",
        "find with a, and add along b: S + b (Sᵀa)ᵀ",
        lambda given: given | {"a": given["b"], "b": given["a"]},
    ),
    _mistake(
        "found_after_the_decay",
        "Sᵀa of the decayed state",
        "find with a in the state as it was before the step's decay",
        lambda given: given | {"a": given["a"] * _power(given["decay"])},
    ),
    _mistake(
        "nothing_removed",
        "b (Sᵀa)ᵀ left out",
        "add b (Sᵀa)ᵀ to the decayed state",
        lambda given: given | {"b": given["b"] * 0},
    ),
    _mistake(
        "initial_state_left_out",
        "an initial state of zeros",
        "begin with past_state, which is not zero",
        lambda given: given | {"past_state": given["past_state"] * 0},
    ),
    _mistake(
        "initial_state_transposed",
        "the initial state transposed",
        "read past_state as (B, H, D, Dv): features of keys come before those of values",
        lambda given: given | {"past_state": given["past_state"].mT},
    ),
    _mistake(
        "state_transposed",
        "the last state transposed",
        "return the state as (B, H, D, Dv): features of keys come before those of values",
        ending=lambda given, out, state: (out, state.mT),
    ),
    _mistake(
        "states_transposed",
        "the initial and the last state transposed",
        "read past_state and return the state as (B, H, D, Dv): features of keys come before those of values",
        lambda given: given | {"past_state": given["past_state"].mT},
        lambda given, out, state: (out, state.mT),
    ),
    _mistake(
        "state_not_updated",
        "the initial state returned as the last",
        "return the state after the last step",
        ending=lambda given, out, state: (out, given["past_state"]),
    ),
    _mistake(
        "state_of_another_sequence",
        "the initial state of another batch element",
        "begin each sequence with its own past_state",
        lambda given: given | {"past_state": given["past_state"].roll(1, 0)},
    ),
    _mistake(
        "read_before_the_update",
        "each step read before its update",
        "multiply the query by the state after the step's key and value were added",
        _earlier,
        _read_earlier,
    ),
    _mistake(
        "scale_left_out",
        "outputs without the scale",
        "multiply what is read by D^-½",
        ending=lambda given, out, state: (out * given["q"].shape[-1] ** 0.5, state),
    ),
    _mistake(
        "scale_twice",
        "the scale applied twice",
        "multiply what is read by D^-½ once",
        ending=lambda given, out, state: (out * given["q"].shape[-1] ** -0.5, state),
    ),
    _mistake(
        "scale_in_the_state",
        "the last state times the scale",
        "multiply what is read by D^-½, and no state",
        ending=lambda given, out, state: (out, state * given["q"].shape[-1] ** -0.5),
    ),
    _mistake(
        "keys_of_length_one",
        "keys divided by their length",
        "take k as it is: a model that normalises does so before",
        lambda given: given | {"k": given["k"] / given["k"].norm(dim=-1, keepdim=True)},
    ),
    _mistake(
        "queries_and_keys_of_length_one",
        "queries and keys divided by their lengths",
        "take q and k as they are: a model that normalises does so before",
        lambda given: given | {name: given[name] / given[name].norm(dim=-1, keepdim=True) for name in "qk"},
    ),
    _mistake(
        "queries_of_length_one",
        "queries divided by their length",
        "take q as it is: a model that normalises does so before",
        lambda given: given | {"q": given["q"] / given["q"].norm(dim=-1, keepdim=True)},
    ),
    _mistake(
        "state_rounded_to_bfloat16",
        "the last state rounded to bfloat16",
        "keep the state in float32 to its end, also where q, k and v are in half precision",
        ending=lambda given, out, state: (out, state.bfloat16().to(state)),
    ),
    _mistake(
        "initial_state_rounded_to_bfloat16",
        "the initial state rounded to bfloat16",
        "read past_state in float32, also where q, k and v are in half precision",
        lambda given: given | {"past_state": given["past_state"].bfloat16().to(given["past_state"])},
    ),
    Mistake(
        "heads_modulo",
        "heads of q and k tiled over those of v",
        "repeat each head of q and k H / Hkv times in a row (repeat_interleave), don't tile them",
        _tiled,
    ),
    *(
        _mistake(
            f"tail_left_out_{size}",
            f"the steps behind the last whole chunk of {size} left out",
            "compute the last chunk with as many steps as it has",
            partial(_whole_chunks, size=size),
            _zeros_behind,
        )
        for size in CHUNKS
    ),
    *(
        _mistake(
            f"tail_not_added_{size}",
            f"nothing added in the steps behind the last whole chunk of {size}",
            "add keys and values of the last chunk, with as many steps as it has",
            partial(_without_tail, size=size),
        )
        for size in CHUNKS
    ),
)
"""Mistakes in outputs and states. Each raises in a case that lacks what it changes."""
