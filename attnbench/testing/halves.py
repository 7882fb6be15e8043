"""Whether outputs over two halves of the keys, merged by their log-sum-exps, are those over all keys.

Split keys, cascades and rings of devices rest on that. With outputs o and log-sum-exps s of parts of the
keys, the whole is o = Σ o·exp(s) / Σ exp(s) (Ye and others, FlashInfer, 2025, section 2.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnbench.cases.ids import case_id
from attnbench.inputs.draw import EPS, widen
from attnbench.inputs.kinds import NORMAL, STRESS_INPUTS
from attnbench.ipc import verifier_messages as rm
from attnbench.ipc.messages import Prepare
from attnbench.ipc.names import OUT, parameter_names
from attnbench.testing.alike import RIGHT, distance
from attnbench.trial.judge import ORACLE_FLOPS, surroundings
from attnbench.types.batch import parse_batch
from attnbench.types.case import Case
from attnbench.types.encoding import is_encoded
from attnbench.types.extensions import Source
from attnbench.types.mask import Mask
from attnbench.types.problem import held_inputs, held_outputs, with_lengths
from attnbench.types.storage import storage_of
from attnbench.verifier.batch import BatchVerifier
from attnbench.verifier.case import CaseVerifier
from attnbench.worker.answers import stored_answer
from attnbench.worker.failures import NotPrepared
from attnbench.worker.prepared import judges_rule, prepare

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

LSE = "lse"
SEEDS = 64
"""A storage that shares keys with so many seeds shares them always."""
FAULT = (
    "called on two halves of the keys, its outputs merged by their lse are not those over all keys: the "
    "error is {error:.2g} of them"
)
REMEDY = (
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
    rule = judges_rule(rule_source, case.rule)
    others = tuple(stress.name for stress in STRESS_INPUTS if stress.name != NORMAL)
    opening = rm.OpenCase(case_id(case), rule_source, 0, 0, ORACLE_FLOPS, others)
    opened: Any = (BatchVerifier if case.batch else CaseVerifier)(opening, rule)
    problems: Sequence[CaseVerifier] = opened.problems if case.batch else (opened,)
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
            given = [_keys(one.arrays(0, 0, apart=True), which) for one in problems]
            storage = storage_of(half)
            # Halves of equal first keys are not equal, so no pages are shared.
            seeds = (replace(half, seed=half.seed + more) for more in range(SEEDS))
            drawn = next(one for one in seeds if not storage.shares(one))
            stored: dict[str, Any] = {}
            for specs, tensors in held_inputs(half, rule, storage):
                arrays = storage.put(drawn, specs, [own[specs[0].name] for own in given])
                for spec, array in zip(tensors, arrays, strict=True):
                    stored[spec.name] = np.ascontiguousarray(array)
            ready = held.with_inputs(stored | dict(storage.plan(drawn)), fresh=True)
            assert ready.inputs is not None
            answer = stored_answer(ready, ready.call(*ready.inputs))
            parts.append(
                {
                    specs[0].name: storage.take(drawn, specs, [answer[spec.name] for spec in tensors])
                    for specs, tensors in held_outputs(half, storage)
                }
            )
    error = 0.0
    for number, one in enumerate(problems):
        if one.rows is None and one.case.Lq:
            outs = np.stack([widen(part[OUT][number], case.dtype) for part in parts])
            sums = np.stack([widen(part[LSE][number], "float64") for part in parts])
            exact = {OUT: one.draw(0).expected[OUT]}
            error = max(error, distance({OUT: _merged(outs, sums)}, exact, exact))
    return FAULT.format(error=error) if not error <= RIGHT * EPS[case.dtype] else ""


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
