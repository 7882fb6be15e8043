"""A close look at a wrong answer to a batch of encoded sequences: the known mistake that it equals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnbench.cases.ids import case_id, parse_case
from attnbench.inputs.draw import EPS, widen
from attnbench.inputs.encoded import meant
from attnbench.inputs.kinds import NORMAL, STRESS_INPUTS
from attnbench.ipc import verifier_messages as rm
from attnbench.ipc.messages import Prepare
from attnbench.ipc.names import OUT, parameter_names
from attnbench.testing.alike import RIGHT, Parts, diagnosed_as, distance, nearest
from attnbench.testing.diagnosis_process import Diagnosed, Look
from attnbench.testing.mistakes.batches import BatchMistake, BatchTensors, batch_mistakes
from attnbench.testing.mistakes.encodings import Numbers
from attnbench.trial.judge import ORACLE_FLOPS, surroundings
from attnbench.types.extensions import Source
from attnbench.verifier.batch import BatchVerifier
from attnbench.worker.answers import stored_answer
from attnbench.worker.prepared import judges_rule, prepare

DRAWS = 4
"""So many draws are compared. What a wrong kernel finds in unused slots may hide its mistake in one."""


def look_at_batch(look: Look, backend: str, source: Source) -> Diagnosed:
    """Compare wrong answers to ordinary inputs with those of known mistakes.

    Raises:
        NotPrepared: it could not be prepared. Whatever its code raises.
    """
    case = parse_case(look.case)
    rule = judges_rule(look.rule_source, case.rule)
    others = tuple(stress.name for stress in STRESS_INPUTS if stress.name != NORMAL)
    opened = BatchVerifier(rm.OpenCase(case_id(case), look.rule_source, 0, 0, ORACLE_FLOPS, others), rule)
    names = parameter_names(opened.parameters.rule, opened.parameters.projections)
    with surroundings(case):
        held, _ = prepare(Prepare(case_id(case), backend, source, look.rule_source, (), None), names)
        for index in range(min(DRAWS, len(opened.stress_inputs))):
            arrays = opened.arrays(index, 0)
            ready = held.with_inputs(arrays, fresh=True)
            assert ready.inputs is not None
            answer = stored_answer(ready, ready.call(*ready.inputs))
            got = {
                str(number): _compared(opened, number, widen(own[OUT], case.dtype))
                for number, own in enumerate(opened.taken(backend, index, 0, answer))
            }
            right = _named([one.draw(index).expected[OUT] for one in opened.problems])
            rounding = RIGHT * EPS[case.dtype]
            if distance(got, right, right) <= rounding or all(np.isnan(x).all() for x in got.values()):
                continue
            batch = BatchTensors(case, opened.stored_case(index, 0), rule, arrays)

            def theirs(mistake: BatchMistake, batch: BatchTensors = batch, index: int = index) -> Parts:
                return _solved(opened, index, mistake.reads(batch))

            known = nearest(batch_mistakes(case), theirs, got, right, rounding)
            if known:
                return diagnosed_as(known)
    return Diagnosed()


def _named(arrays: Sequence[NDArray[Any]]) -> Parts:
    return {str(number): array for number, array in enumerate(arrays)}


def _compared(opened: BatchVerifier, number: int, out: NDArray[Any]) -> NDArray[Any]:
    """Return the rows of an output (1, H, Lq, Dv) that the verifier compares."""
    rows = opened.problems[number].rows
    return out if rows is None else out[:, :, rows]


def _solved(opened: BatchVerifier, index: int, read: Sequence[Numbers]) -> Parts:
    """Return the exact outputs for other keys and values of each sequence."""
    answers = []
    with np.errstate(all="ignore"):
        for one, (k, v) in zip(opened.problems, read, strict=True):
            given = meant(one.case, one.rule, one.draw(index).inputs)
            answers.append(one.judging.solve(given | {"k": k, "v": v})[OUT])
    return _named(answers)
