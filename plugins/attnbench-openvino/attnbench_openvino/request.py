"""A model of one operation, compiled for the CPU, and its call on the memory of torch's tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import openvino
    import torch
    from torch import Tensor

    from attnbench.types.backend import Call

Shapes = Mapping[str, tuple[int, ...]]
Precision = Literal["f32", "bf16"]


def compile_attention(
    inputs: Shapes, precision: Precision, hint: Precision, scale: float, threads: int
) -> openvino.CompiledModel:
    """Compile ScaledDotProductAttention of inputs by name: q, k, v, and ``added`` where there is a mask.

    precision: of the tensors. hint: of the computation, always explicit: by default OpenVINO takes bfloat16
    where the processor has it. There is one stream with that many threads. They are not pinned, because their
    process is.
    """
    import openvino
    from openvino import opset13

    kind = getattr(openvino.Type, precision)
    given = [opset13.parameter(list(shape), kind, name=name) for name, shape in inputs.items()]
    # The scale is the input after the mask; a scalar 0 stands for no mask.
    masked = [] if "added" in inputs else [_constant(0.0, precision, hint)]
    scaled = _constant(scale, precision, hint)
    out = opset13.scaled_dot_product_attention(*given, *masked, scaled, causal=False)
    return openvino.Core().compile_model(
        openvino.Model([out], given, "attention"),
        "CPU",
        {
            "INFERENCE_PRECISION_HINT": hint,
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            "ENABLE_CPU_PINNING": False,
        },
    )


def _constant(value: float, precision: Precision, hint: Precision) -> openvino.Node:
    """Make a constant, rounded by torch: OpenVINO 2026.4 rounds to bfloat16 with errors of up to a unit.

    It rounds 1/√80 down to a bfloat16 number that is 0.98 of a unit smaller.
    """
    import numpy as np
    import openvino
    import torch
    from openvino import opset13

    if hint == "bf16":
        value = torch.tensor(value, dtype=torch.bfloat16).item()
    return opset13.constant(np.float32(value), getattr(openvino.Type, precision))


def bound(
    model: openvino.CompiledModel, output: tuple[int, ...], dtype: torch.dtype, added: Tensor | None
) -> Call:
    """Make the model a function of contiguous q, k and v that returns (B, H, Lq, Dv), without copies.

    added: the tensor for the input of this name, bound once, since it is the same in every call.
    """
    import torch

    request = model.create_infer_request()
    if added is not None:
        request.set_tensor("added", shared(added))

    def call(q: Tensor, k: Tensor, v: Tensor, added: Tensor | None = added) -> Tensor:
        # ``added`` is a default value, so that its memory lives as long as the function.
        out = torch.empty(output, dtype=dtype)
        for index, x in enumerate((q, k, v)):
            request.set_input_tensor(index, shared(x))
        request.set_output_tensor(0, shared(out))
        request.infer()
        return out

    return call


def shared(x: Tensor) -> openvino.Tensor:
    """Return OpenVINO's tensor on the memory of a contiguous one. NumPy, in between, has no bfloat16."""
    import openvino
    import torch

    if x.dtype == torch.bfloat16:
        bits = x.view(torch.int16).numpy()
        return openvino.Tensor(bits, openvino.Shape(bits.shape), openvino.Type.bf16)
    return openvino.Tensor(x.numpy(), shared_memory=True)
