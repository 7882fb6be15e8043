"""One answer in two ways, which a right backend gives alike: whole and in halves, expanded and absorbed.

Split keys, cascades and rings of devices call a kernel on parts of the keys. With outputs o and log-sum-exps
s of the parts, the whole is o = Σ o·exp(s) / Σ exp(s) (Ye and others, FlashInfer, 2025, section 2.2).

Decode with a latent head calls a kernel on absorbed queries; what it gives is mapped to the output of the
heads (:mod:`attnbench.kit.latent`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnbench.cases.ids import case_id
from attnbench.inputs.draw import EPS, store, widen
from attnbench.inputs.kinds import NORMAL, STRESS_INPUTS
from attnbench.inputs.places import placed_case
from attnbench.ipc import verifier_messages as rm
from attnbench.ipc.messages import Prepare
from attnbench.ipc.names import OUT, parameter_names
from attnbench.kit.latent import absorbed, expanded, mapped
from attnbench.kit.reference import PLAIN
from attnbench.testing.alike import RIGHT, answered, distance
from attnbench.trial.judge import ORACLE_FLOPS, surroundings
from attnbench.types.backend import Setup
from attnbench.types.batch import parse_batch
from attnbench.types.case import Case
from attnbench.types.encoding import DTYPE, is_encoded
from attnbench.types.extensions import Source
from attnbench.types.mask import Mask
from attnbench.types.problem import held_inputs, held_outputs, with_lengths
from attnbench.types.storage import storage_of
from attnbench.verifier.batch import BatchVerifier
from attnbench.verifier.case import CaseVerifier
from attnbench.worker.answers import stored_answer
from attnbench.worker.failures import NotPrepared
from attnbench.worker.prepared import PreparedBackend, judges_rule, prepare

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    Array = NDArray[Any]

LSE = "lse"
FORMS_DIFFER = (
    "called on absorbed queries, its output mapped to that of the heads is not the output of the expanded "
    "heads: the error is {error:.2g} of it"
)
OF_FORMS = (
    "The keys are all D features of kv, the values its first Dv, and the scale is that of the case, which "
    "the heads have before absorption."
)
OWN = 16
"""Features of a head beside the rotated part, before absorption."""
HALVES_DIFFER = (
    "called on two halves of the keys, its outputs merged by their lse are not those over all keys: the "
    "error is {error:.2g} of them"
)
OF_HALVES = (
    "The lse of a call is log Σ exp of the scaled scores of its own keys, -inf without keys, and its output "
    "is divided by the same sum."
)


def may_be_halved(case: Case) -> bool:
    """Return whether each query sees all keys of its sequence, whichever half of them there is."""
    lengths = parse_batch(case.batch) if case.batch else ((case.Lq, case.Lk),)
    decode = case.mask == Mask(causal="lower_right") and all(queries <= 1 for queries, _ in lengths)
    plain = case.operation == "attention" and case.pass_ == "forward" and not case.dropout
    return plain and LSE in case.returns and not is_encoded(case) and (case.mask.is_none or decode)


def unmerged(case: Case, backend: str, source: Source, rule_source: Source) -> str:
    """Return what is wrong with two halves merged; "" where nothing is, or where it can't be asked.

    Raises:
        NotPrepared: it could not be prepared for a half. Whatever its code raises.
    """
    opened, problems = _opened(case, rule_source)
    names = parameter_names(opened.parameters.rule, opened.parameters.projections)
    parts = []
    with surroundings(case):
        for which in (0, 1):
            half = _half(case, which)
            asked = Prepare(case_id(half), backend, source, rule_source, (), None)
            try:
                held, _ = prepare(asked, names)
            except NotPrepared as refusal:
                if refusal.status == "unsupported":
                    return ""
                raise
            scoring = held.setup.scoring
            if scoring.bias is not None or scoring.sink is not None:
                # A bias depends on the place of a key, and a sink would count twice.
                return ""
            parts.append(_called(held, [_keys(one.arrays(0, 0, apart=True), which) for one in problems]))
    error = 0.0
    for number, one in enumerate(problems):
        if one.rows is None and one.case.Lq:
            outs = np.stack([widen(part[OUT][number], case.dtype) for part in parts])
            sums = np.stack([widen(part[LSE][number], "float64") for part in parts])
            exact = {OUT: one.draw(0).expected[OUT]}
            error = max(error, distance({OUT: _merged(outs, sums)}, exact, exact))
    return HALVES_DIFFER.format(error=error) if not error <= RIGHT * EPS[case.dtype] else ""


def _opened(case: Case, rule_source: Source) -> tuple[Any, Sequence[CaseVerifier]]:
    """Return the verifier of a case with ordinary inputs alone, and those of its problems."""
    others = tuple(stress.name for stress in STRESS_INPUTS if stress.name != NORMAL)
    opening = rm.OpenCase(case_id(case), rule_source, 0, 0, ORACLE_FLOPS, others)
    rule = judges_rule(rule_source, case.rule)
    if not case.batch:
        alone = CaseVerifier(opening, rule)
        return alone, (alone,)
    opened = BatchVerifier(opening, rule)
    return opened, opened.problems


def _called(held: PreparedBackend, given: Sequence[dict[str, Array]]) -> dict[str, Sequence[Array]]:
    """Return the outputs of a call by name and problem. given: the inputs of each problem."""
    case, rule = held.case, held.setup.rule
    storage = storage_of(case)
    # Other keys than those that are drawn have no first keys in common; after a check no draw shares pages.
    drawn = placed_case(case, 0, (), 0)
    stored: dict[str, Any] = {}
    for specs, tensors in held_inputs(case, rule, storage):
        arrays = storage.put(drawn, specs, [own[specs[0].name] for own in given])
        for spec, array in zip(tensors, arrays, strict=True):
            stored[spec.name] = np.ascontiguousarray(array)
    ready = held.with_inputs(stored | dict(storage.plan(drawn)), fresh=True)
    assert ready.inputs is not None
    answer = stored_answer(ready, ready.call(*ready.inputs))
    return {
        specs[0].name: storage.take(drawn, specs, [answer[spec.name] for spec in tensors])
        for specs, tensors in held_outputs(case, storage)
    }


def _half(case: Case, which: int) -> Case:
    """Return the case with the first or the second half of the keys of each sequence."""

    def keys(count: int) -> int:
        return count // 2 if which == 0 else count - count // 2

    if case.batch:
        return with_lengths(case, [(queries, keys(count)) for queries, count in parse_batch(case.batch)])
    return replace(case, Lk=keys(case.Lk))


def _keys(inputs: dict[str, Array], which: int) -> dict[str, Array]:
    half = inputs["k"].shape[2] // 2
    own = slice(0, half) if which == 0 else slice(half, None)
    return inputs | {name: inputs[name][:, :, own] for name in "kv"}


def _merged(outs: Array, sums: Array) -> Array:
    """Merge outputs (2, B, H, Lq, Dv) by their log-sum-exps (2, B, H, Lq)."""
    largest = sums.max(0)
    with np.errstate(all="ignore"):
        shares = np.exp(sums - np.where(np.isneginf(largest), 0, largest))
        total = shares.sum(0)
        shares = np.where(total == 0, 0, shares / total)
        return np.asarray((shares[..., None] * outs).sum(0))


def may_be_expanded(case: Case) -> bool:
    """Return whether a case has a latent head whose heads can be expanded again."""
    return case.kv == "latent" and case.rule == "scaled_dot" and not case.dropout and case.layer is None


def unabsorbed(case: Case, backend: str, source: Source, rule_source: Source) -> str:
    """Return what is wrong with the output for absorbed queries, by that of the expanded heads; "" for right.

    The maps and queries are drawn; the heads have as many features of their own as :data:`OWN`.

    Raises:
        NotPrepared: it could not be prepared. Whatever its code raises.
    """
    import torch

    opened, problems = _opened(case, rule_source)
    names = parameter_names(opened.parameters.rule, opened.parameters.projections)
    rng = torch.Generator().manual_seed(case.seed)
    C, R = case.Dv, case.D - case.Dv

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=rng, dtype=torch.float64)

    w_k, w_v = drawn(case.H, OWN, C) / C**0.5, drawn(case.H, OWN, C) / C**0.5
    given, exact = [], []
    with surroundings(case):
        held, _ = prepare(Prepare(case_id(case), backend, source, rule_source, (), None), names)
        for one in problems:
            inputs = one.arrays(0, 0)
            latent = torch.from_numpy(widen(inputs["kv"], case.dtype))
            q = drawn(one.case.B, case.H, one.case.Lq, OWN + R)
            given.append(inputs | {"q": store(absorbed(q, w_k).numpy(), case.dtype)})
            heads = replace(
                one.case, Hkv=case.H, D=OWN + R, Dv=OWN, kv=DTYPE.name, dtype="float64", returns=()
            )
            setup = Setup(heads, one.rule, one.rule.bind(heads, {}), {}, {})
            exact.append(answered(PLAIN.prepare, setup, (q, *expanded(latent, w_k, w_v)), None))
        outs = _called(held, given)[OUT]
    error = 0.0
    for out, right in zip(outs, exact, strict=True):
        got = mapped(torch.from_numpy(widen(out, case.dtype)), w_v).numpy()
        if got.size:
            error = max(error, distance({OUT: got}, right, right))
    return FORMS_DIFFER.format(error=error) if not error <= RIGHT * EPS[case.dtype] else ""
