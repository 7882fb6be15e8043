"""Half precision forgives rounding, not keys that are left out: limits count in units of the output."""

from __future__ import annotations

import pytest
from judged import Judge

from attnbench.cases.ids import parse_case
from attnbench.types.backend import Setup

LENGTH = 1024


def without_last(share: float):
    """The plain kernel over all keys but the last ``share`` of them."""

    def kernel(setup: Setup, q, k, v):
        kept = LENGTH - round(share * LENGTH)
        scores = (q @ k[:, :, :kept].mT).float() * setup.case.D**-0.5
        return scores.softmax(-1).to(q.dtype) @ v[:, :, :kept]

    return kernel


@pytest.fixture(scope="module", params=["bfloat16", "float16"])
def judge(request: pytest.FixtureRequest) -> Judge:
    case = parse_case(f"attention/scaled_dot/H1-L{LENGTH}-D32/none/{request.param}")
    return Judge(case, draws=1)


@pytest.mark.parametrize("percent", [1, 5, 20])
def test_a_kernel_that_leaves_out_keys_is_refused(judge: Judge, percent: int) -> None:
    _, problem = judge.of(without_last(percent / 100))
    assert "is above" in problem


def test_the_same_kernel_over_all_keys_passes(judge: Judge) -> None:
    accuracy, problem = judge.of(without_last(0))
    assert problem == ""
    assert accuracy.error_budget < 1.5
