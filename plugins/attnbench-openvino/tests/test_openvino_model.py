"""What a model is compiled with, and what is handed to it."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch
from attnbench_openvino.backends import no_bfloat16
from attnbench_openvino.request import Precision, _constant, bound, compile_attention, shared

needs_openvino = pytest.mark.skipif(find_spec("openvino") is None, reason="not installed: openvino")

SHAPES = dict.fromkeys("qkv", (1, 2, 8, 16))


def test_listing_the_backends_imports_nothing_heavy() -> None:
    code = (
        "import sys, attnbench_openvino as a; [*a.attnbench_backends()]; "
        "print({'torch', 'openvino'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@needs_openvino
@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_the_precision_and_the_threads_are_said(precision: Precision) -> None:
    import openvino

    model = compile_attention(SHAPES, "f32", precision, 0.25, 1)
    taken = "f32" if no_bfloat16("cpu") else precision
    assert model.get_property("INFERENCE_PRECISION_HINT") == getattr(openvino.Type, taken)
    assert model.get_property("INFERENCE_NUM_THREADS") == 1
    assert model.get_property("NUM_STREAMS") == 1
    assert model.get_property("ENABLE_CPU_PINNING") is False


@needs_openvino
@pytest.mark.parametrize("D", [56, 80, 104, 120, 144])
def test_a_scale_is_rounded_to_the_nearest_bfloat16(D: int) -> None:
    """OpenVINO itself rounds these to their neighbour below."""
    (got,) = _constant(D**-0.5, "bf16", "bf16").get_data().view("int16").ravel()
    assert got == torch.tensor(D**-0.5).bfloat16().view(torch.int16).item()


@needs_openvino
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_tensor_is_shared_not_copied(dtype: torch.dtype) -> None:
    x = torch.rand(2, 3).to(dtype)
    seen = shared(x)
    x[1, 2] = 7.0
    assert seen.data.view("int16" if dtype == torch.bfloat16 else "float32")[1, -1] == (
        x.view(torch.int16)[1, 2].item() if dtype == torch.bfloat16 else 7.0
    )


@needs_openvino
def test_each_call_has_an_output_of_its_own() -> None:
    call = bound(compile_attention(SHAPES, "f32", "f32", 0.25, 1), (1, 2, 8, 16), torch.float32, None)
    q, k, v = torch.rand(3, 1, 2, 8, 16)
    first = call(q, k, v)
    kept = first.clone()
    second = call(-q, k, v)
    assert first.data_ptr() != second.data_ptr()
    assert torch.equal(first, kept)
    assert not torch.equal(first, second)
    torch.testing.assert_close(kept, torch.nn.functional.scaled_dot_product_attention(q, k, v))
