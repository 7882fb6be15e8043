"""openvino and openvino_bf16: one operation, in float32 and in bfloat16."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from attnbench import Backend, Setup
from attnbench.kit.layer import for_operation
from attnbench_openvino.attention import attention, refuse

if TYPE_CHECKING:
    from attnbench.types.backend import Call
    from attnbench.types.case import Dtype
    from attnbench_openvino.request import Precision


def prepare(setup: Setup, precision: Precision) -> Call:
    """Make the function of the case, for either operation, in a precision."""
    return for_operation(attention(setup, precision), setup)


def _backend(name: str, precision: Precision, dtype: Dtype) -> Backend:
    return Backend(
        name=name,
        summary=f"OpenVINO's ScaledDotProductAttention in {dtype}",
        prepare=partial(prepare, precision=precision),
        supports=refuse,
        operations=("attention", "multihead"),
        needs_dot_form=True,
        dtypes=(dtype,),
        devices=("cpu",),
        requires=("openvino",),
        forkable=False,
        quadratic_copies=0,
    )


OPENVINO = _backend("openvino", "f32", "float32")
OPENVINO_BF16 = _backend("openvino_bf16", "bf16", "bfloat16")
