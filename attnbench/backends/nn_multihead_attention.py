"""nn_multihead_attention: torch.nn.MultiheadAttention, the projections as its weights.

It runs in eval mode, or in training mode where the case has dropout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnbench.kit.dtypes import case_dtype
from attnbench.kit.masks import additive_mask, empty_rows, keep_mask
from attnbench.types.backend import Backend, Setup
from attnbench.types.case import PASSES

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import MultiheadAttention

    from attnbench.types.backend import Call
    from attnbench.types.case import Case
    from attnbench.types.rule import Rule


def supports(case: Case, rule: Rule) -> str | None:
    """Return what the module can't express, or None."""
    layer = case.layer
    assert layer is not None
    if case.constants:
        return "the module always divides by √D"
    if case.Hkv != case.H:
        return f"the module has no shared heads: Hkv must be H; here Hkv = {case.Hkv} and H = {case.H}"
    if case.Dv != case.D:
        return f"the module needs Dv = D; here D = {case.D} and Dv = {case.Dv}"
    if layer.E != case.H * case.D:
        return f"the module needs E = H·D; here E = {layer.E} and H·D = {case.H * case.D}"
    if not layer.out:
        return "the module always has an output projection"
    return None


def prepare(setup: Setup) -> Call:
    """Make the module's call without weights, so that it may take its fast path in eval mode.

    The fast path takes self-attention with an even H, biases and no float mask, without gradients. It gives
    NaN for a row that keeps no key; a float mask keeps such a case off it.
    """
    import torch

    case = setup.case
    layer = case.layer
    assert layer is not None
    module = torch.nn.MultiheadAttention(
        layer.E,
        case.H,
        dropout=case.dropout,
        bias=layer.bias,
        batch_first=True,
        device=case.device,
        dtype=case_dtype(case),
    ).train(bool(case.dropout))
    module.requires_grad_(False)
    mask = _module_mask(case)
    return _forward(setup, module, mask) if case.pass_ == "forward" else _with_gradients(setup, module, mask)


def _forward(setup: Setup, module: MultiheadAttention, mask: Tensor | None) -> Call:
    module.load_state_dict(_weights(setup))

    def attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        out: Tensor = module(queries, keys, values, need_weights=False, attn_mask=mask)[0]
        return out

    return attend


def _with_gradients(setup: Setup, module: MultiheadAttention, mask: Tensor | None) -> Call:
    """Call the module with weights joined in the call, so that gradients reach the case's projections."""
    from torch.func import functional_call

    options = {"need_weights": False, "attn_mask": mask}

    def attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        out: Tensor = functional_call(module, _weights(setup), (queries, keys, values), options)[0]
        return out

    return attend


def _weights(setup: Setup) -> dict[str, Tensor]:
    """The projections under the module's names."""
    import torch

    p = setup.projections
    weights = {"in_proj_weight": torch.cat([p["w_q"], p["w_k"], p["w_v"]]), "out_proj.weight": p["w_o"]}
    if "b_q" in p:
        weights["in_proj_bias"] = torch.cat([p["b_q"], p["b_k"], p["b_v"]])
        weights["out_proj.bias"] = p["b_o"]
    return weights


def _module_mask(case: Case) -> Tensor | None:
    """(Lq, Lk), or (B·H, Lq, Lk) where batch elements or heads differ; bool with True = drop, or float."""
    if case.mask.adds or empty_rows(case, case.device) is not None:
        mask = additive_mask(case, case_dtype(case), case.device)
    else:
        keep = keep_mask(case, case.device)
        mask = None if keep is None else ~keep
    if mask is None:
        return None
    if mask.shape[:2] == (1, 1):
        return mask[0, 0]
    return mask.expand(case.B, case.H, case.Lq, case.Lk).flatten(0, 1)


NN_MULTIHEAD_ATTENTION = Backend(
    name="nn_multihead_attention",
    summary="nn.MultiheadAttention in eval mode",
    prepare=prepare,
    supports=supports,
    operations=("multihead",),
    passes=PASSES,
    rules=("scaled_dot",),
    masks=("any",),
    masks_by_head=True,
    dropout=True,
)
