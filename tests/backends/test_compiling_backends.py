"""The backends that compile: right, truly compiled, and no pool of compilers left behind."""

from __future__ import annotations

import logging
import sysconfig
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from judging import operators, problem
from solved import BACKENDS, solved

from attnbench.backends.compiled import no_compiler
from attnbench.worker.gradients import leaf_inputs, passed, plain_gradients, with_gradients

# torch 2.13 decorates functions of its own with what it calls deprecated, while its compiler is imported.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")]

FLEX = (
    "attention/alibi/B2-H4-Hkv2-Lq17-Lk33-D8-Dv12/causal:lower_right+padding:0,20",
    "attention/sinks/B2-H4-L16-D16/float",
    "attention/sinks/B2-H4-Hkv1-L16-D16/causal+padding:0,9",
    "multihead/general/B2-H4-Lq40-Lk33-D8-E24-bias/window:9",
)
COMPILED = (
    "attention/alibi/B2-H4-Hkv2-Lq17-Lk33-D8-Dv12/bool",
    "attention/additive/B2-H4-L16-D16/padding:0,9",
    "multihead/concat_linear/B2-H4-Lq16-Lk20-D16-E24/none",
)


@pytest.fixture(autouse=True)
def no_trace_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler traces itself in thousands of lines, which pytest would keep."""
    monkeypatch.setattr(logging.getLogger("torch.__trace"), "propagate", False)


def tasks() -> int:
    """Threads of this process, without the one that tqdm has for its bars where it is installed."""
    bars = [thread for thread in threading.enumerate() if thread.name == "tqdm_monitor"]
    return len(list(Path("/proc/self/task").iterdir())) - len(bars)


@pytest.mark.parametrize(
    ("name", "text"), [("flex", text) for text in FLEX] + [("compiled", text) for text in COMPILED]
)
def test_the_output_is_the_oracles_and_preparation_compiled_it(name: str, text: str) -> None:
    case, threads = solved(f"{text}/float32"), tasks()
    with torch.inference_mode():
        call = BACKENDS[name].prepare(case.setup)
        compiled = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        output = call(*case.fresh_inputs())
        again = call(*case.fresh_inputs())
    assert compiled > 0
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == compiled, "compiled in the first call"
    assert np.abs(output.numpy() - case.expected).max() < 1e-5
    assert torch.equal(output, again)
    assert output.data_ptr() != again.data_ptr()
    assert tasks() == threads


@pytest.mark.parametrize(
    "text",
    [
        "attention/alibi/B2-H4-Hkv2-Lq17-Lk9-D8/bool/float32/backward",
        "multihead/cosine/B2-H4-L16-D16-E24-bias/causal/float32/both",
    ],
)
def test_gradients_are_the_plain_references_and_preparation_compiled_them(text: str) -> None:
    """The way back too; and a graph may be gone through again, which a compiler doesn't grant by itself."""
    case = solved(text)
    setup, inputs = with_gradients(case.setup), leaf_inputs(case.inputs)
    upstream = torch.randn(case.expected.shape, generator=torch.Generator().manual_seed(1))
    call = passed(BACKENDS["compiled"].prepare(setup), setup, upstream)
    compiled = {kind: dict(counts) for kind, counts in torch._dynamo.utils.counters.items()}
    call.renew(inputs)
    first, second = call(*inputs), call(*inputs)
    assert compiled["stats"]["unique_graphs"] > 0
    assert compiled == {kind: dict(counts) for kind, counts in torch._dynamo.utils.counters.items()}
    expected = plain_gradients(case.setup, case.inputs, upstream)
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    for name, one, other in zip(call.names, first, second, strict=True):
        assert torch.equal(one, other)
        if name in expected:
            assert float((one - expected[name]).abs().max()) < 1e-5 * largest, name
    assert set(expected) <= set(call.names)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("flex", "attention/softcap/B2-H4-Hkv2-L33-D40/bool/bfloat16"),
        ("compiled", "attention/sinks/B2-H4-Hkv2-L33-D40/causal/bfloat16"),
    ],
)
def test_bfloat16(name: str, text: str) -> None:
    assert problem(name, text, draws=2) == ""


def test_compiled_is_not_torchs_own_attention() -> None:
    case = solved("attention/scaled_dot/B2-H4-L64-D32/none/float32")
    assert [name for name in operators(case, BACKENDS["compiled"]) if "scaled_dot_product" in name] == []


def test_no_compiler_is_said_in_words() -> None:
    from torch._inductor import config

    with config.patch({"cpp.cxx": ("/nonexistent/compiler",)}):
        words = no_compiler("cpu")
    assert "needs a C++ compiler" in words


def test_no_python_headers_are_said_in_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    words = no_compiler("cpu")
    assert "Python.h" in words
