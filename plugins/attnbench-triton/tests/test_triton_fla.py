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
def test_a_function_of_fla_gives_outputs_and_states_as_a_case_has_them(backend: Backend) -> None:
    for rule in backend.rules or ():
        case = parse_case(f"recurrent/{rule}/B2-H4-Hkv2-L17-D16-Dv8/float32")
        inputs = [torch.from_numpy(x).float() for x in draw_inputs(case, RULES[rule], 3, 0).values()]
        kept = [x.clone() for x in inputs]
        setup = Setup(case, RULES[rule], RULES[rule].bind(case, {}), {}, {})
        found, expected = (one.prepare(setup)(*inputs) for one in (backend, RECURRENT_LOOP))
        for part, exact in zip(found, expected, strict=True):
            torch.testing.assert_close(part, exact, atol=2e-5, rtol=2e-5)
        assert all(map(torch.equal, inputs, kept)), "inputs stay as they are"
