"""openvino and openvino_bf16: one operation, told to compute in float32 and in bfloat16."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from attnbench import Backend, Setup
from attnbench.kit.layer import for_operation
from attnbench_openvino.attention import attention, refuse

if TYPE_CHECKING:
    from attnbench.types.backend import Call
    from attnbench_openvino.request import Precision


def prepare(setup: Setup, precision: Precision) -> Call:
    """For either operation, in the precision said."""
    return for_operation(attention(setup, precision), setup)


OPENVINO = Backend(
    name="openvino",
    summary="OpenVINO's ScaledDotProductAttention in float32",
    prepare=partial(prepare, precision="f32"),
    supports=refuse,
    operations=("attention", "multihead"),
    needs_dot_form=True,
    dtypes=("float32",),
    devices=("cpu",),
    requires=("openvino",),
    forkable=False,
    quadratic_copies=0,
)

OPENVINO_BF16 = Backend(
    name="openvino_bf16",
    summary="OpenVINO's ScaledDotProductAttention in bfloat16",
    prepare=partial(prepare, precision="bf16"),
    supports=refuse,
    operations=("attention", "multihead"),
    needs_dot_form=True,
    dtypes=("bfloat16",),
    devices=("cpu",),
    requires=("openvino",),
    forkable=False,
    quadratic_copies=0,
)
