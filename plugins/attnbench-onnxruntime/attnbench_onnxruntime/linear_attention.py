"""onnxruntime_linear: the contrib operator LinearAttention, a recurrence with its state."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attnbench import Backend, Setup
from attnbench_onnxruntime.session import CONTRIB, bound_by_name, model_of, open_session

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.rule import Update


def _word(update: Update) -> str:
    """Return the operator's name of an update. A decay for each feature is told by the size of its input."""
    if update.corrects:
        return "gated_delta" if update.decays else "delta"
    return "gated" if update.decays else "linear"


def prepare(setup: Setup) -> Callable[..., Any]:
    """Return the operator as a function of q, k, v, decay, beta and the state, as the rule has them.

    The operator takes (B, L, H·D), which inputs are copied to. Its keys have as many heads as its values.
    """
    import torch
    from onnx import helper

    case, update = setup.case, setup.rule.update
    assert update is not None
    H, L = case.H, case.Lq
    names = ["q", "k", "v", *(["decay"] if update.decays else []), *(["beta"] if update.corrects else [])]
    features = {"q": case.Hkv * case.D, "k": H * case.D, "v": H * case.Dv, "beta": H}
    features["decay"] = H * case.D if update.decays == "channel" else H
    inputs: dict[str, tuple[int, ...]] = {name: (case.B, L, features[name]) for name in names}
    inputs["state"] = (case.B, H, case.D, case.Dv)
    outputs = {"out": (case.B, L, H * case.Dv), "after": inputs["state"]}
    # A missing input is an empty name in its place.
    places = [name if name in inputs else "" for name in ("q", "k", "v", "state", "decay", "beta")]
    node = helper.make_node(
        "LinearAttention",
        places,
        list(outputs),
        domain=CONTRIB,
        q_num_heads=case.Hkv,
        kv_num_heads=H,
        update_rule=_word(update),
    )
    session = open_session(model_of(node, inputs, outputs, torch.float32), case.threads)
    call = bound_by_name(session, inputs, outputs, torch.float32)

    def attend(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        *steps, state = tensors
        given = dict(zip(names, steps, strict=True))
        given["k"] = given["k"].repeat_interleave(case.group, 1)
        # (B, H, L, D) or (B, H, L) to (B, L, H·D) or (B, L, H).
        packed = {name: x.transpose(1, 2).reshape(inputs[name]).contiguous() for name, x in given.items()}
        found = call(packed | {"state": state.contiguous()})
        return found["out"].view(case.B, L, H, case.Dv).transpose(1, 2), found["after"]

    return attend


ONNXRUNTIME_LINEAR = Backend(
    name="onnxruntime_linear",
    summary="ONNX Runtime's LinearAttention on its CPU provider",
    prepare=prepare,
    operations=("recurrent",),
    rules=("linear", "gated", "delta", "gated_delta", "gated_delta_channels"),
    dtypes=("float32",),
    devices=("cpu",),
    requires=("onnxruntime", "onnx"),
    forkable=False,
    quadratic_copies=0,
)
