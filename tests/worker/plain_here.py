"""A case opened in this process, and the plain reference's answers to it as its worker would give them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from asked import BUILT_IN_RULES, RULES, Stored

from attnbench.cases.ids import case_id, parse_case
from attnbench.ipc import messages as m
from attnbench.ipc.names import PLAIN, parameter_names
from attnbench.verifier.case import CaseVerifier
from attnbench.worker.answers import stored_answer
from attnbench.worker.calls import exact_gradients
from attnbench.worker.prepared import PreparedBackend, prepare

ENOUGH_FLOPS = 1e9


def open_here(case: str, *, without: tuple[str, ...] = (), entropy: int = 5) -> CaseVerifier:
    return CaseVerifier(case, RULES[parse_case(case).rule], entropy, ENOUGH_FLOPS, without=without)


@dataclass(frozen=True)
class PlainHere:
    """The plain reference, prepared for a case that is open."""

    opened: CaseVerifier
    held: PreparedBackend

    def answer(self, index: int, change: int = 0) -> dict[str, Stored]:
        """Its answer to a draw, by parts, in the dtype of the case."""
        with torch.inference_mode(False), torch.enable_grad():
            ready = self.held.with_inputs(self.opened.arrays(index, change), fresh=True)
            assert ready.inputs is not None
            parts = stored_answer(ready, ready.call(*ready.inputs))
        return {name: np.array(part) for name, part in parts.items()}

    def exact(self, arrays: Mapping[str, Stored]) -> dict[str, Stored]:
        """Gradients in float64, and the units of their errors."""
        with torch.inference_mode(False), torch.enable_grad():
            return exact_gradients(self.held.with_inputs(arrays, fresh=True))

    def score(self, who: str = PLAIN, timed: int = 0) -> None:
        """Have all draws of the check scored as it answers them, and some of those that are timed."""
        for index in range(len(self.opened.families) + timed):
            if who == PLAIN and self.opened.case.pass_ != "forward":
                self.opened.expect(index, self.exact(self.opened.arrays(index, 0)))
            assert self.opened.score(who, index, self.answer(index)) == ""


def plain_of(opened: CaseVerifier) -> PlainHere:
    """It, with the parameters of the case."""
    request = m.Prepare(case_id(opened.case), "", None, BUILT_IN_RULES, (), None)
    parameters = parameter_names(opened.parameters.rule, opened.parameters.projections)
    with torch.inference_mode(False), torch.enable_grad():
        held, _ = prepare(request, parameters)
    return PlainHere(opened, held)
