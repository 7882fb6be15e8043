"""onnxruntime_mha: the operator com.microsoft.MultiHeadAttention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnbench import Backend, Setup
from attnbench.kit.layer import around
from attnbench.kit.scores import form_of
from attnbench_onnxruntime.operator_call import attention, refuse_scale
from attnbench_onnxruntime.session import CONTRIB

if TYPE_CHECKING:
    from onnx import NodeProto
    from torch import Tensor

    from attnbench import Case, Rule, Scoring
    from attnbench.types.backend import Call

LOWEST = -3.4028234663852886e38
"""The number that the operator adds where its own mask drops a pair: the lowest of float32. The default,
-10000, is too small beside large scores."""


def supports(case: Case, rule: Rule) -> str | None:
    """Refuse shared key/value heads, and steps between product and softmax."""
    if case.Hkv != case.H:
        return f"the operator has no GQA: Hkv must be H; here Hkv = {case.Hkv} and H = {case.H}"
    dot = form_of(case, rule).dot
    if dot is not None and dot.cap is not None:
        return "the operator has no soft cap: nothing can come between product and softmax"
    return refuse_scale(case, rule)


def _node(case: Case, scoring: Scoring, causal: bool, inputs: list[str]) -> NodeProto:
    from onnx import helper

    assert scoring.dot is not None
    # query, key, value, bias of the projections, mask of keys, what is added to the scores
    given = [*inputs[:3], "", "", "added"] if "added" in inputs else inputs
    return helper.make_node(
        "MultiHeadAttention",
        given,
        ["out"],
        domain=CONTRIB,
        num_heads=case.H,
        scale=scoring.dot.scale,
        unidirectional=int(causal),
        mask_filter_value=LOWEST,
    )


def prepare(setup: Setup) -> Call:
    """Make the function of the case, for either operation.

    Heads lie beside each other, as a projection leaves them, and stay there.
    """
    attend = attention(setup, _node, packed=True)
    if setup.case.layer is not None:
        return around(attend, setup)

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2)

    return call


ONNXRUNTIME_MHA = Backend(
    name="onnxruntime_mha",
    summary="ONNX Runtime's MultiHeadAttention; tiled without a mask",
    prepare=prepare,
    supports=supports,
    operations=("attention", "multihead"),
    needs_dot_form=True,
    dtypes=("float32",),
    devices=("cpu",),
    layout="BLHD",
    requires=("onnxruntime", "onnx"),
    quadratic_copies=1,
)
