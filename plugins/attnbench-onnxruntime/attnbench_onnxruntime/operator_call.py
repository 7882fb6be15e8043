"""Steps of both operators: maps of queries and keys, masks, sinks, rows without a key."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from attnbench import Setup
from attnbench.kit.attention import with_sink_column, with_zero_row
from attnbench.kit.dtypes import case_dtype
from attnbench.kit.masks import is_plain_causal, plus_bias, softmax_mask, up_to_zero
from attnbench.kit.scores import form_of, map_keys, map_queries
from attnbench_onnxruntime.session import bound, model_of, open_session

if TYPE_CHECKING:
    from onnx import NodeProto
    from torch import Tensor

    from attnbench import Case, Rule, Scoring
    from attnbench.types.backend import Call

    MakeNode = Callable[[Case, Scoring, bool, list[str]], NodeProto]


def attention(setup: Setup, make_node: MakeNode, *, packed: bool) -> Call:
    """An operator as a function of views of q, k and v, (B, H, L, D) each, that gives such a view.

    make_node: the node for a case and a rule, told whether it is causal by itself, with these inputs.
    packed: the operator takes and gives (B, L, H·D), the memory of heads that were split from one matrix;
    else (B, H, L, D). Inputs in the other order are copied.
    """
    import torch

    case, scoring, dtype = setup.case, setup.scoring, case_dtype(setup.case)
    dot, sink = scoring.dot, scoring.sink
    assert dot is not None
    by_itself = masks_by_itself(case, scoring)
    # In float32, and rounded last: the operators add in the dtype of the case.
    added, empty = (None, None) if by_itself else softmax_mask(setup, torch.float32)
    added = plus_bias(added, scoring, slice(0, case.Lq), slice(0, case.Lk), torch.float32)
    if sink is not None:
        added = with_sink_column(added, sink, case)
    if added is not None:
        added = finite(up_to_zero(added).to(dtype))
    Lk = case.Lk + (sink is not None)
    inputs = {
        "q": _shape(case.B, case.H, case.Lq, case.D, packed),
        "k": _shape(case.B, case.Hkv, Lk, case.D, packed),
        "v": _shape(case.B, case.Hkv, Lk, case.Dv, packed),
    }
    if added is not None:
        inputs["added"] = tuple(added.shape)
    output = _shape(case.B, case.H, case.Lq, case.Dv, packed)
    node = make_node(case, scoring, by_itself, list(inputs))
    session = open_session(model_of(node, inputs, {"out": output}, dtype), case.threads)
    call = bound(session, inputs, output, dtype, added)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k = map_queries(dot, q), map_keys(dot, k)
        if sink is not None:
            k, v = with_zero_row(k), with_zero_row(v)
        if not packed:
            out = call(q.contiguous(), k.contiguous(), v.contiguous())
        else:
            out = call(*(x.transpose(1, 2).contiguous() for x in (q, k, v)))
            out = out.view(case.B, case.Lq, case.H, case.Dv).transpose(1, 2)
        return out if empty is None else out.masked_fill_(empty, 0)

    return attend


def masks_by_itself(case: Case, scoring: Scoring) -> bool:
    """Return whether the operators make the mask themselves: square and causal, without a bias.

    Where Lq isn't Lk, MultiHeadAttention of 1.31 lets the last query see all keys: not from either corner.
    """
    return case.Lq == case.Lk and is_plain_causal(case, scoring)


def refuse_scale(case: Case, rule: Rule) -> str | None:
    """Why a rule's scale can't be told to the operators, or None."""
    dot = form_of(case, rule).dot
    if dot is not None and not dot.scale > 0:
        return f"ONNX Runtime's attention takes scales above 0; that of {rule.name} is {dot.scale:g}"
    return None


def _shape(B: int, heads: int, L: int, D: int, packed: bool) -> tuple[int, ...]:
    return (B, L, heads * D) if packed else (B, heads, L, D)


def finite(added: Tensor) -> Tensor:
    """-inf as the lowest number, beside which every score vanishes: the operators' softmax takes no -inf."""
    import torch

    return added.clamp_min(torch.finfo(added.dtype).min).contiguous()
