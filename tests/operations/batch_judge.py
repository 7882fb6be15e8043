"""A case, judged in this process as a run judges it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from attnbench.cases.ids import case_id, parse_case
from attnbench.inputs.places import change_in
from attnbench.ipc import messages as m
from attnbench.ipc import verifier_messages as rm
from attnbench.ipc.names import PLAIN, parameter_names
from attnbench.plugins.registry import Registry
from attnbench.runner.outputs import not_delivered
from attnbench.verifier.batch import BatchVerifier
from attnbench.verifier.case import CaseVerifier
from attnbench.worker.answers import stored_answer
from attnbench.worker.calls import exact_gradients
from attnbench.worker.prepared import PreparedBackend, prepare


@contextmanager
def grad_mode() -> Iterator[None]:
    with torch.inference_mode(False), torch.enable_grad():
        yield


class Judge:
    """A case that is open, with what the plain reference answers to its draws."""

    def __init__(self, registry: Registry, case: str, flops: float = 1e9) -> None:
        self.registry = registry
        self.rule = registry.rules[parse_case(case).rule]
        opening = rm.OpenCase(case_id(parse_case(case)), self.rule.source, 5, 1, flops)
        opened = BatchVerifier if parse_case(case).batch else CaseVerifier
        self.opened: Any = opened(opening, self.rule.record)
        self.draws = range(len(self.opened.stress_inputs) + 1)
        plain = self.prepared("")
        for index in self.draws:
            ready = self.given(plain, index, apart=True)
            if self.opened.case.pass_ != "forward":
                with grad_mode():
                    self.opened.expect(index, exact_gradients(ready))
            assert self.opened.score(PLAIN, index, self.answer(ready)) == ""

    def prepared(self, name: str) -> PreparedBackend:
        parameters = parameter_names(self.opened.parameters.rule, self.opened.parameters.projections)
        source = self.registry.backends[name].source if name else None
        asked = m.Prepare(case_id(self.opened.case), name, source, self.rule.source, (), None)
        with grad_mode():
            return prepare(asked, parameters)[0]

    def given(self, backend: PreparedBackend, index: int, change: int = 0, **how: Any) -> PreparedBackend:
        # The plain reference takes the sequences of a batch apart, and nothing encoded.
        arrays = self.opened.arrays(index, change, apart=how.pop("apart", False))
        with grad_mode():
            return backend.with_inputs(arrays, fresh=how.pop("fresh", True), **how)

    def answer(self, ready: PreparedBackend) -> dict[str, Any]:
        assert ready.inputs is not None
        with grad_mode():
            return {name: np.array(x) for name, x in stored_answer(ready, ready.call(*ready.inputs)).items()}

    def problem(self, name: str) -> str:
        """Return the verdict on a backend, then that on its answers to changed inputs."""
        backend = self.prepared(name)
        left_out = not_delivered(backend.backend)
        for index in self.draws[:-1]:
            if self.opened.stress_inputs[index] in left_out:
                continue
            backend = self.given(backend, index, fresh=index == 0)
            if found := self.opened.score(name, index, self.answer(backend)):
                return found
        if found := self.opened.judge(name, left_out).problem:
            return found
        # As in three repetitions.
        for change in (0, change_in(3, 1), change_in(8, 2)):
            backend = self.given(backend, self.draws[-1], change, fresh=False)
            if found := self.opened.score_timed(self.draws[-1], change, self.answer(backend)):
                return found
        return ""
