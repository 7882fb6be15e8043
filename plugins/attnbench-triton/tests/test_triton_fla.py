"""What fla-core computes on a CPU, held against attnbench's own recurrence."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("fla", reason="fla-core is not installed")

from attnbench_triton.fla import FLA

from attnbench import Backend
from attnbench.backends.recurrent import RECURRENT_LOOP
from attnbench.cases.ids import parse_case
from attnbench.inputs.draw import draw_inputs
from attnbench.rules import attnbench_rules
from attnbench.types.backend import Setup

# Importing fla imports optional parts, each of which warns of what it lacks here.
pytestmark = pytest.mark.filterwarnings("ignore")

RULES = {rule.name: rule for rule in attnbench_rules()}


@pytest.mark.parametrize("backend", FLA, ids=lambda backend: backend.name)
def test_a_function_of_fla_gives_what_a_case_has_and_its_gradients(backend: Backend) -> None:
    for rule in backend.rules or ():
        graded = "both" in backend.passes
        words = "/cpu/both" if graded else ""
        case = parse_case(f"recurrent/{rule}/B2-H4-Hkv2-L17-D16-Dv8/none/float32{words}")
        inputs = [torch.from_numpy(x).float() for x in draw_inputs(case, RULES[rule], 3, 0).values()]
        kept = [x.clone() for x in inputs]
        setup = Setup(case, RULES[rule], RULES[rule].bind(case, {}), {}, {})
        answers = []
        for one in (backend, RECURRENT_LOOP):
            own = [x.clone().requires_grad_(graded) for x in inputs]
            answer = list(one.prepare(setup)(*own))
            if graded:
                answer += torch.autograd.grad(sum((part * part).sum() for part in answer), own)
            answers.append(answer)
        for part, exact in zip(*answers, strict=True):
            torch.testing.assert_close(part, exact, atol=5e-5, rtol=5e-5)
        assert all(map(torch.equal, inputs, kept)), "inputs stay as they are"
