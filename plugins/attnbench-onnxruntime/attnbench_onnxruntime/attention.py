"""onnxruntime_attention: the operator Attention of the ONNX standard, opset 23."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnbench import Backend, Setup
from attnbench.kit.layer import around
from attnbench_onnxruntime.operator_call import attention, refuse_scale

if TYPE_CHECKING:
    from onnx import NodeProto

    from attnbench import Case, Scoring
    from attnbench.types.backend import Call


def _node(case: Case, scoring: Scoring, causal: bool, inputs: list[str]) -> NodeProto:
    from onnx import helper

    dot = scoring.dot
    assert dot is not None
    heads = {} if case.layer is None else {"q_num_heads": case.H, "kv_num_heads": case.Hkv}
    return helper.make_node(
        "Attention",
        inputs,
        ["out"],
        is_causal=int(causal),
        scale=dot.scale,
        softcap=dot.cap or 0.0,
        **heads,
    )


def prepare(setup: Setup) -> Call:
    """Make the function of the case, for either operation.

    Its inputs are (B, H, L, D), in a layer (B, L, H·D), as the projections leave them.
    """
    if setup.case.layer is not None:
        return around(attention(setup, _node, packed=True), setup)
    return attention(setup, _node, packed=False)


ONNXRUNTIME_ATTENTION = Backend(
    name="onnxruntime_attention",
    summary="ONNX Runtime's Attention, opset 23; unfused",
    prepare=prepare,
    supports=refuse_scale,
    operations=("attention", "multihead"),
    needs_dot_form=True,
    dtypes=("float32", "float16"),
    devices=("cpu",),
    requires=("onnxruntime", "onnx"),
    quadratic_copies=1,
)
