"""What the sdpa_* backends share: torch's scaled_dot_product_attention pinned to one kernel."""

from __future__ import annotations

import warnings
from functools import partial
from typing import TYPE_CHECKING, Literal

from attnbench.kit.attention import with_sink_column, with_zero_row
from attnbench.kit.dtypes import case_dtype, softmax_dtype
from attnbench.kit.layer import for_operation
from attnbench.kit.masks import additive_mask, is_plain_causal, plus_bias
from attnbench.kit.scores import derived, form_of, map_keys, map_queries
from attnbench.types.backend import Setup

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from attnbench.types.backend import Call
    from attnbench.types.case import Case
    from attnbench.types.rule import Rule

Kernel = Literal["flash", "math", "efficient", "cudnn"]


def pin(kernel: Kernel) -> None:
    """Leave torch one kernel to choose from, on every device, for the rest of the process.

    ``torch.nn.attention.sdpa_kernel`` around each call does the same and takes longer than a small call
    itself. A process measures one backend, so the choice is made once, in preparation; where the kernel
    can't run a case torch then raises, it never takes another.
    """
    import torch

    torch.backends.cuda.enable_flash_sdp(kernel == "flash")
    torch.backends.cuda.enable_math_sdp(kernel == "math")
    torch.backends.cuda.enable_mem_efficient_sdp(kernel == "efficient")
    torch.backends.cuda.enable_cudnn_sdp(kernel == "cudnn")


def prepare(setup: Setup, kernel: Kernel) -> Call:
    """For either operation, with the kernel pinned."""
    pin(kernel)
    return for_operation(attention(setup), setup)


def attention(setup: Setup) -> Call:
    """The call of torch's function for a rule in dot form, whichever kernel is pinned.

    Only a causal mask from the upper left is torch's own ``is_causal``; any other, and every bias, is a
    float mask prepared here. A sink is one more key and value of zeros.
    """
    case, dtype = setup.case, _mask_dtype(setup.case)
    is_causal = is_plain_causal(case, setup.scoring)
    mask = None if is_causal else additive_mask(case, dtype, case.device)

    def made(setup: Setup) -> Call:
        scoring = setup.scoring
        added = plus_bias(mask, scoring, slice(0, case.Lq), slice(0, case.Lk), dtype)
        if scoring.sink is not None:
            added = with_sink_column(added, scoring.sink, case)
        return _call(setup, added, is_causal)

    return derived(setup, made)


def _call(setup: Setup, added: Tensor | None, is_causal: bool) -> Call:
    from torch.nn.functional import scaled_dot_product_attention as sdpa

    case, scoring = setup.case, setup.scoring
    dot, sink = scoring.dot, scoring.sink
    assert dot is not None
    assert dot.cap is None
    scale, group, p = dot.scale, case.group > 1, case.dropout

    def keeping(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return sdpa(q, k, v, attn_mask=added, is_causal=is_causal, scale=scale, enable_gqa=group)

    def dropping(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return sdpa(q, k, v, attn_mask=added, dropout_p=p, is_causal=is_causal, scale=scale, enable_gqa=group)

    attend = dropping if p else keeping
    if dot.map_q is None and dot.map_k is None and sink is None:
        return attend

    def attend_mapped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k = map_queries(dot, q), map_keys(dot, k)
        return attend(q, k, v) if sink is None else attend(q, with_zero_row(k), with_zero_row(v))

    return attend_mapped


def refuse_cap(case: Case, rule: Rule) -> str | None:
    """Why a rule's dot form is more than torch's function computes, or None."""
    dot = form_of(case, rule).dot
    if dot is not None and dot.cap is not None:
        return "scaled_dot_product_attention has no soft cap: nothing can come between product and softmax"
    return None


def refuse_mask_gradient(case: Case, rule: Rule) -> str | None:
    """Why a kernel that gives no gradient of its mask can't do the case's pass, or None."""
    form = form_of(case, rule)
    if case.pass_ == "forward" or (form.bias is None and form.sink is None):
        return None
    what = "bias" if form.sink is None else "sink"
    return f"torch's kernel gives no gradient of its mask, which {case.rule} has its {what} in"


def refuse_on_cuda(case: Case, rule: Rule, kernel: Kernel) -> str | None:
    """Why torch won't run a case with a kernel on CUDA, in torch's own words, or None."""
    import torch
    from torch.backends import cuda

    form = form_of(case, rule)
    dtype, more = case_dtype(case), 0 if form.sink is None else 1
    # Some kernels can do less where they shall have a backward.
    graph = case.pass_ != "forward"
    empty = partial(torch.empty, dtype=dtype, device="cuda")
    q = empty((case.B, case.H, case.Lq, case.D), requires_grad=graph)
    k = empty((case.B, case.Hkv, case.Lk + more, case.D), requires_grad=graph)
    v = empty((case.B, case.Hkv, case.Lk + more, case.Dv), requires_grad=graph)
    is_causal = is_plain_causal(case, form)
    mask = None
    if not is_causal and (not case.mask.is_none or form.bias is not None or more):
        learned = graph and (form.bias is not None or form.sink is not None)
        one = empty((), requires_grad=learned)
        mask = one.expand(case.B, case.H, case.Lq, case.Lk + more)
    params = cuda.SDPAParams(q, k, v, mask, case.dropout, is_causal, case.group > 1)
    can_use = {
        "flash": cuda.can_use_flash_attention,
        "efficient": cuda.can_use_efficient_attention,
        "cudnn": cuda.can_use_cudnn_attention,
    }[kernel]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        if can_use(params, True):
            return None
    words = " ".join(str(warning.message).split(" (Triggered")[0].strip() for warning in said)
    return f"torch can't use this kernel here: {words or 'it gives no reason'}"


def _mask_dtype(case: Case) -> torch.dtype:
    # The CPU's kernels take a float32 mask with half-precision inputs, and bias loses nothing.
    return softmax_dtype(case_dtype(case)) if case.device == "cpu" else case_dtype(case)
