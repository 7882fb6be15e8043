"""Attention by OpenVINO's operation, with the rule's and the mask's steps around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnbench import Setup
from attnbench.kit.attention import with_sink_column, with_zero_row
from attnbench.kit.dtypes import case_dtype
from attnbench.kit.masks import plus_bias, softmax_mask
from attnbench.kit.scores import form_of, map_keys, map_queries
from attnbench_openvino.request import bound, compile_attention

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench import Case, Rule
    from attnbench.types.backend import Call
    from attnbench_openvino.request import Precision


def attention(setup: Setup, precision: Precision, hint: Precision) -> Call:
    """Make the function of q, k and v, (B, H, L, D) each; inputs that are not contiguous are copied.

    precision: of the tensors. hint: of the computation. Every mask becomes a float mask. For a causal mask
    the operation would make one itself.
    """
    case, scoring, dtype = setup.case, setup.scoring, case_dtype(setup.case)
    dot, sink = scoring.dot, scoring.sink
    assert dot is not None
    added, empty = softmax_mask(setup, dtype)
    added = plus_bias(added, scoring, slice(0, case.Lq), slice(0, case.Lk), dtype)
    if sink is not None:
        added = with_sink_column(added, sink, case)
    added = None if added is None else added.contiguous()
    Lk = case.Lk + (sink is not None)
    inputs = {
        "q": (case.B, case.H, case.Lq, case.D),
        "k": (case.B, case.H, Lk, case.D),
        "v": (case.B, case.H, Lk, case.Dv),
    }
    if added is not None:
        inputs["added"] = tuple(added.shape)
    model = compile_attention(inputs, precision, hint, dot.scale, case.threads)
    call = bound(model, (case.B, case.H, case.Lq, case.Dv), dtype, added)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k = map_queries(dot, q), map_keys(dot, k)
        if sink is not None:
            k, v = with_zero_row(k), with_zero_row(v)
        out = call(q.contiguous(), k.contiguous(), v.contiguous())
        return out if empty is None else out.masked_fill_(empty, 0)

    return attend


def refuse(case: Case, rule: Rule) -> str | None:
    """Return the reason why the operation can't compute a case, or None."""
    if case.Hkv != case.H:
        return f"the operation has no GQA: Hkv must be H; here Hkv = {case.Hkv} and H = {case.H}"
    dot = form_of(case, rule).dot
    if dot is not None and dot.cap is not None:
        return "the operation has no soft cap: nothing can come between product and softmax"
    return None
