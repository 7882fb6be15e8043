"""sdpa_flash, sdpa_math, sdpa_efficient, sdpa_cudnn: one kernel each of torch's own attention."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal, cast

from attnbench.kit.attention import log_sums, with_sink_column, with_zero_row
from attnbench.kit.dtypes import case_dtype, softmax_dtype
from attnbench.kit.layer import for_operation
from attnbench.kit.masks import additive_mask, is_plain_causal, plus_bias
from attnbench.kit.scores import derived, form_of, map_keys, map_queries
from attnbench.types.backend import Backend, Setup
from attnbench.types.case import AUTOCAST, PASSES

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from attnbench.types.backend import Call
    from attnbench.types.case import Case
    from attnbench.types.rule import Rule

Kernel = Literal["flash", "math", "efficient", "cudnn"]


def pin(kernel: Kernel) -> None:
    """Leave torch one kernel to choose from, on every device, for the rest of the process.

    ``torch.nn.attention.sdpa_kernel`` around each call does the same, but takes longer than a small call.
    A process measures one backend, so preparation makes the choice once. Where the kernel can't run a case,
    torch raises; it never takes another kernel.
    """
    import torch

    torch.backends.cuda.enable_flash_sdp(kernel == "flash")
    torch.backends.cuda.enable_math_sdp(kernel == "math")
    torch.backends.cuda.enable_mem_efficient_sdp(kernel == "efficient")
    torch.backends.cuda.enable_cudnn_sdp(kernel == "cudnn")


def prepare(setup: Setup, kernel: Kernel) -> Call:
    """Pin the kernel and make the function of the case, for either operation."""
    pin(kernel)
    return for_operation(attention(setup), setup)


def attention(setup: Setup) -> Call:
    """Make the call of torch's function for a rule in dot form, with whichever kernel is pinned.

    A causal mask from the upper left becomes torch's own ``is_causal``. Any other mask, and every bias,
    becomes a float mask that is prepared here. A sink becomes one more key and value of zeros.
    """
    case, dtype = setup.case, mask_dtype(setup.case)
    is_causal = is_plain_causal(case, setup.scoring)
    mask = None if is_causal else additive_mask(case, dtype, case.device)

    def made(setup: Setup) -> Call:
        scoring = setup.scoring
        added = plus_bias(mask, scoring, slice(0, case.Lq), slice(0, case.Lk), dtype)
        if scoring.sink is not None:
            added = with_sink_column(added, scoring.sink, case)
        return call_with(setup, added, is_causal)

    return derived(setup, made)


def call_with(setup: Setup, added: Tensor | None, is_causal: bool) -> Call:
    """Make the call of torch's function with a float mask that is prepared already.

    added: (B or 1, 1 or H, Lq, Lk), with a column for the sink where the rule has one.
    """
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


def attention_with_lse(setup: Setup) -> Call:
    """Make the call of :func:`attention` that gives the log-sum-exp of each row too, (B, H, Lq)."""
    case, dtype = setup.case, mask_dtype(setup.case)
    is_causal = is_plain_causal(case, setup.scoring)
    needless = is_causal and _flash_gives_lse(setup)
    added = None if needless else additive_mask(case, dtype, case.device, setup.scoring)
    return call_with_lse(setup, added, is_causal)


def _flash_gives_lse(setup: Setup) -> bool:
    """Return whether torch's flash kernel for the CPU runs the case and gives its log-sum-exp exactly.

    In half precision its exp is approximate, which a float32 log-sum-exp shows: 6e-5 too small with few keys.
    """
    case = setup.case
    exact = case.device == "cpu" and case.dtype in ("float32", "float64")
    runs = setup.scoring.sink is None and case.Dv == case.D
    return exact and runs and (case.group == 1 or flash_takes_groups())


def call_with_lse(setup: Setup, added: Tensor | None, is_causal: bool) -> Call:
    """Make the call of torch's function, with a float mask that is prepared, that gives the log-sum-exp too.

    On a CPU torch's flash kernel gives it in single and double precision, but 0 for a row without keys.
    Elsewhere the scores are computed once more.

    added: (B or 1, 1 or H, Lq, Lk), without a column for the sink. is_causal: whether it says no more than
    torch's ``is_causal``.
    """
    import torch

    case, scoring = setup.case, setup.scoring
    dot, sink = scoring.dot, scoring.sink
    assert dot is not None
    mask = None if is_causal else added
    if _flash_gives_lse(setup):
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        no_key = None if mask is None else mask.isneginf().all(-1)
        empty = no_key if no_key is not None and bool(no_key.any()) else None
        scale = dot.scale

        def attend(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            q, k = map_queries(dot, q), map_keys(dot, k)
            # Called by its name it takes features to lie together, and reads other places where they don't.
            q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
            out, lse = kernel(q, k, v, 0.0, is_causal, attn_mask=mask, scale=scale)
            return out, lse if empty is None else lse.masked_fill(empty, -torch.inf)

        return cast("Call", attend)
    whole = mask if sink is None else with_sink_column(mask, sink, case)
    call, sums = call_with(setup, whole, is_causal), log_sums(setup, added)
    return cast("Call", lambda q, k, v: (call(q, k, v), sums(q, k)))


def refuse_cap(case: Case, rule: Rule) -> str | None:
    """Return why torch's function can't compute the rule's dot form, or None."""
    dot = form_of(case, rule).dot
    if dot is not None and dot.cap is not None:
        return "scaled_dot_product_attention has no soft cap"
    return None


def refuse_mask_gradient(case: Case, rule: Rule) -> str | None:
    """Return why a kernel without a gradient of its mask can't run the case's pass, or None."""
    form = form_of(case, rule)
    if case.pass_ == "forward" or (form.bias is None and form.sink is None):
        return None
    learned = "bias" if form.sink is None else "sink"
    return f"torch's kernel computes no gradient of its mask, which carries the {learned} of {case.rule}"


def refuse_on_cuda(case: Case, rule: Rule, kernel: Kernel) -> str | None:
    """Return why torch can't run a case with a kernel on CUDA, in torch's own words, or None."""
    import torch
    from torch.backends import cuda

    form = form_of(case, rule)
    dtype, more = case_dtype(case), 0 if form.sink is None else 1
    # Some kernels support fewer cases when they must also run backward.
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
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if can_use(params, True):
            return None
    reasons = " ".join(str(warning.message).split(" (Triggered")[0].strip() for warning in caught)
    return f"torch can't use this kernel here: {reasons or 'torch gives no reason'}"


def mask_dtype(case: Case) -> torch.dtype:
    """Return the dtype of a float mask for torch's function."""
    # The CPU's kernels take a float32 mask with half-precision inputs, so the bias isn't rounded.
    return softmax_dtype(case_dtype(case)) if case.device == "cpu" else case_dtype(case)


def _supports_flash(case: Case, rule: Rule) -> str | None:
    """On a CPU the kernel takes any mask and dtype, but needs Dv = D and has no dropout."""
    import torch

    cap = refuse_cap(case, rule)
    if cap is not None or case.device == "cuda":
        return cap or refuse_on_cuda(case, rule, "flash")
    if case.Dv != case.D:
        return f"torch's flash kernel for the CPU needs Dv = D; here D = {case.D} and Dv = {case.Dv}"
    if case.dropout:
        return "torch's flash kernel for the CPU has no dropout"
    if case.group > 1 and not flash_takes_groups():
        return f"the flash kernel for the CPU of torch {torch.__version__} takes no grouped heads"
    return refuse_mask_gradient(case, rule)


@cache
def flash_takes_groups() -> bool:
    """Return whether the flash kernel for the CPU takes fewer key/value heads than query heads.

    Old versions of torch have no way to tell but to try: they warn of every kernel, and raise.
    """
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention as sdpa

    q, k = torch.zeros(1, 2, 1, 8), torch.zeros(1, 1, 1, 8)
    try:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sdpa(q, k, k, enable_gqa=True)
    except RuntimeError:
        return False
    return True


def _supports_cuda_kernel(kernel: Kernel) -> Callable[[Case, Rule], str | None]:
    return lambda case, rule: refuse_cap(case, rule) or refuse_on_cuda(case, rule, kernel)


def _pinned(kernel: Kernel, words: str, **declared: Any) -> Backend:
    """Declare the backend that pins a kernel. words: the kernel in the summary."""
    return Backend(
        name=f"sdpa_{kernel}",
        summary=f"torch SDPA pinned to {words}",
        prepare=partial(prepare, kernel=kernel),
        operations=("attention", "multihead"),
        passes=PASSES,
        needs_dot_form=True,
        masks=("any",),
        masks_by_head=True,
        dropout=True,
        **declared,
    )


SDPA_FLASH = _pinned(
    "flash",
    "its flash kernel",
    supports=_supports_flash,
    autocast=AUTOCAST,
    concurrent=True,
    quadratic_copies=0,
    marks=(
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_flash_attention",
        "_flash_attention_forward",
    ),
)

SDPA_MATH = _pinned(
    "math",
    "its unfused math",
    supports=refuse_cap,
    autocast=AUTOCAST,
    concurrent=True,
    marks=("_scaled_dot_product_attention_math",),
)

SDPA_EFFICIENT = _pinned(
    "efficient",
    "its memory-efficient kernel",
    supports=_supports_cuda_kernel("efficient"),
    devices=("cuda",),
    quadratic_copies=0,
    marks=("_scaled_dot_product_efficient_attention", "_efficient_attention_forward"),
)

SDPA_CUDNN = _pinned(
    "cudnn",
    "cuDNN's kernel",
    supports=_supports_cuda_kernel("cudnn"),
    devices=("cuda",),
    quadratic_copies=0,
    marks=("_scaled_dot_product_cudnn_attention", "_cudnn_attention_forward"),
)
