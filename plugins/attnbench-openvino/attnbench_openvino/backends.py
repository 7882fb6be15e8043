"""One operation in float32, in bfloat16, and in bfloat16 on tensors in float32."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from attnbench import Backend, Setup
from attnbench.kit.layer import for_operation
from attnbench_openvino.attention import attention, refuse

if TYPE_CHECKING:
    from attnbench.types.arithmetic import Arithmetic
    from attnbench.types.backend import Call
    from attnbench.types.case import Dtype
    from attnbench_openvino.request import Precision


def prepare(setup: Setup, precision: Precision, hint: Precision) -> Call:
    """Make the function of the case, for either operation, for tensors of a precision and with a hint."""
    return for_operation(attention(setup, precision, hint), setup)


def no_bfloat16(device: str) -> str | None:
    """Return why the hint changes nothing on this processor, or None.

    OpenVINO then computes in float32, and takes the hint without a word.
    """
    import openvino

    if "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        return None
    return "this processor has no bfloat16 arithmetic, so OpenVINO ignores the hint"


def _backend(name: str, precision: Precision, hint: Precision, dtype: Dtype) -> Backend:
    arithmetic: Arithmetic | None = None if precision == hint else "bfloat16"
    return Backend(
        name=name,
        summary=f"OpenVINO's ScaledDotProductAttention in {arithmetic or dtype}, on {dtype}",
        prepare=partial(prepare, precision=precision, hint=hint),
        computes_in=arithmetic,
        supports=refuse,
        available=(lambda device: None) if arithmetic is None else no_bfloat16,
        operations=("attention", "multihead"),
        needs_dot_form=True,
        dtypes=(dtype,),
        devices=("cpu",),
        requires=("openvino",),
        forkable=False,
        quadratic_copies=0,
    )


OPENVINO = _backend("openvino", "f32", "f32", "float32")
OPENVINO_BF16 = _backend("openvino_bf16", "bf16", "bf16", "bfloat16")
OPENVINO_BF16_HINT = _backend("openvino_bf16_hint", "f32", "bf16", "float32")
