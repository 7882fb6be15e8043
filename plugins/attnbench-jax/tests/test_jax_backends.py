from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from judging import problem_of
from solved import RULES, Solved, solved
from test_gradients_by_backend import gradients_of, refused

pytest.importorskip("jax", reason="JAX is not installed")

from attnbench_jax import JAX_DOT_PRODUCT_ATTENTION, JAX_TILED

from attnbench.cases.ids import parse_case
from attnbench.types.backend import Backend, Setup

BOTH = pytest.mark.parametrize(
    "backend", [JAX_DOT_PRODUCT_ATTENTION, JAX_TILED], ids=lambda backend: backend.name
)
CASES = (
    "attention/scaled_dot/B2-H4-Hkv2-Lq3-Lk65-D13/causal:lower_right",
    "attention/scaled_dot/H2-L301-D8/causal",
    "attention/alibi/H2-Lq513-Lk299-D8/padding",
    "attention/scaled_dot/H2-Lq40-Lk17-D8/causal:lower_right",
    "attention/dot/B2-H2-L70-D16/causal+float/bfloat16",
)
GRADIENTS = (
    "attention/scaled_dot/H2-L270-D8/causal/both",
    "attention/alibi/H2-Lq40-Lk17-D8/causal:lower_right/both",
    "attention/sinks/B2-H4-Hkv2-L40-D16/padding/both",
    "multihead/general/H2-Lq20-Lk30-D8-E16-bias-cross/both",
)
TILED_ONLY = (
    "attention/softcap/H2-L40-D16/both",
    "attention/dot/H2-Lq20-Lk300-D16-Dv8/float64/both",
)


def heads_first(backend: Backend) -> Backend:
    """The backend for inputs and outputs (B, H, L, D), as solved cases have them."""

    def prepare(setup: Setup) -> Any:
        call = backend.prepare(setup)
        if setup.case.layer is not None:
            return call
        return lambda *inputs: call(*(x.transpose(1, 2).contiguous() for x in inputs)).transpose(1, 2)

    return replace(backend, prepare=prepare)


@BOTH
@pytest.mark.parametrize("text", CASES)
def test_the_check_finds_no_problem(backend: Backend, text: str) -> None:
    assert problem_of(heads_first(backend), [solved(text)]) == ""
    if "Lq40-Lk17" in text:
        assert float(solved(text).run(heads_first(backend))[:, :, :23].abs().max()) == 0


@pytest.mark.parametrize(
    ("backend", "text"),
    [(backend, text) for backend in (JAX_TILED, JAX_DOT_PRODUCT_ATTENTION) for text in GRADIENTS]
    + [(JAX_TILED, text) for text in TILED_ONLY],
)
def test_the_check_finds_no_problem_in_gradients(backend: Backend, text: str) -> None:
    def answer(case: Solved) -> Any:
        return gradients_of(heads_first(backend), case)

    assert refused(text, answer, draws=1) == set()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("attention/scaled_dot/H2-L8-D16-Dv8", "needs Dv = D; here D = 16 and Dv = 8"),
        ("attention/softcap/H2-L8-D16", "no soft cap"),
        ("attention/general/H1-L64-D1/bfloat16", "products of one feature"),
        ("attention/scaled_dot/H1-L1-D64/bfloat16", "one query and one key"),
    ],
)
def test_what_the_function_of_jax_refuses(text: str, reason: str) -> None:
    case = parse_case(text)
    assert reason in (JAX_DOT_PRODUCT_ATTENTION.supports(case, RULES[case.rule]) or "")


@pytest.mark.parametrize(
    "text",
    [
        "attention/scaled_dot/H1-L64-D1",
        "attention/scaled_dot/H1-L1-D1",
        "attention/scaled_dot/H1-Lq1-Lk2-D8/bfloat16",
        "attention/scaled_dot/B2-H1-L1-D8/bfloat16",
        "attention/sinks/H1-L1-D8/bfloat16",
    ],
)
def test_what_lies_beside_the_products_that_xla_refuses_is_right(text: str) -> None:
    case = parse_case(text)
    assert JAX_DOT_PRODUCT_ATTENTION.supports(case, RULES[case.rule]) is None
    assert problem_of(heads_first(JAX_DOT_PRODUCT_ATTENTION), [solved(text)]) == ""


ON_ONE_CORE = """
import os, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from attnbench_jax import tiled
from attnbench_jax.process import configure
configure()
import jax
call = jax.jit(tiled.function(True, 0.125, None))
x = jax.numpy.ones((1, 600, 8, 64), jax.numpy.float32)
call(x, x, x).block_until_ready()
before = time.process_time_ns(), time.thread_time_ns()
for _ in range(5):
    call(x, x, x).block_until_ready()
everywhere, here = time.process_time_ns() - before[0], time.thread_time_ns() - before[1]
assert here > 0.9 * everywhere, (here, everywhere)
"""


def test_on_one_core_a_call_computes_on_the_thread_that_makes_it() -> None:
    """Else a case of one thread has no time on one thread, and the judge refuses it."""
    subprocess.run([sys.executable, "-c", ON_ONE_CORE], check=True)
