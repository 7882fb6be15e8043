"""The backends: what of a case the kernels are told, what they decline, and where they run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from attnbench.kit.dtypes import case_dtype
from attnbench.kit.layer import for_operation
from attnbench.kit.scores import derived, form_of, map_keys, map_queries
from attnbench.types.backend import Backend, Setup
from attnbench.types.case import PASSES, activation_shapes

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call
    from attnbench.types.case import Case
    from attnbench.types.rule import Rule
    from attnbench_triton.attention import Problem

WIDEST_HEAD = 256
ALIBI = "alibi"
FAR = 1 << 30
"""More keys than there are."""
MOST_INTERPRETED = 1 << 18
"""Pairs of a query and a key, over all heads: the interpreter takes about a second for so many."""


def problem_of(setup: Setup) -> Problem:
    """Return what the kernels are told of a case, with its masks on its device."""
    import torch

    from attnbench.masks import key_lengths
    from attnbench_triton.attention import Problem

    case, dot = setup.case, setup.scoring.dot
    assert dot is not None
    band = case.mask.band
    drawn = key_lengths(case)
    return Problem(
        case=case,
        scale=dot.scale,
        cap=dot.cap,
        before=FAR if band.before is None else min(band.before, FAR),
        after=FAR if band.after is None else min(band.after, FAR),
        lengths=None if drawn is None else torch.tensor(drawn, dtype=torch.int32, device=case.device),
        table=_table(case),
    )


def _table(case: Case) -> Tensor | None:
    import torch

    from attnbench.kit.masks import additive_mask, keep_mask

    if not case.mask.needs_table:
        return None
    if case.mask.adds:
        # Its numbers are exact in every dtype.
        return additive_mask(case, case_dtype(case), case.device)
    keep = keep_mask(case, case.device)
    return None if keep is None else keep.view(torch.uint8)


def prepare(setup: Setup) -> Call:
    """Make the function of the case, for either operation; on a device, compile it and choose its blocks."""
    from attnbench_triton.attention import attention

    problem = problem_of(setup)
    # Triton's interpreter multiplies the bits of bfloat16 as integers.
    widens = setup.case.device == "cpu" and setup.case.dtype == "bfloat16"

    def made(setup: Setup) -> Call:
        dot, sinks = setup.scoring.dot, setup.scoring.sink
        assert dot is not None
        slopes = setup.rule_parameters["slope"] if setup.case.rule == ALIBI else None

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            q, k = map_queries(dot, q), map_keys(dot, k)
            if widens:
                return attention(problem, q.float(), k.float(), v.float(), slopes, sinks).to(q.dtype)
            return attention(problem, q, k, v, slopes, sinks)

        return attend

    call = for_operation(derived(setup, made), setup)
    if setup.case.device == "cuda":
        run_once(call, setup)
    return call


def run_once(call: Call, setup: Setup) -> None:
    """Call the function on random numbers, backward too where the case has that pass."""
    import torch

    case = setup.case
    random = torch.Generator(case.device).manual_seed(0)
    a, b, c = (
        torch.randn(shape, generator=random, dtype=case_dtype(case), device=case.device)
        for shape in activation_shapes(case, setup.rule)
    )
    if case.pass_ == "forward":
        call(a, b, c)
        return
    inputs = a.requires_grad_(), b.requires_grad_(), c.requires_grad_()
    out = call(*inputs)
    torch.autograd.grad(out, inputs, torch.ones_like(out))


def supports(case: Case, rule: Rule) -> str | None:
    """Decline wide heads, and biases other than ALiBi."""
    if max(case.D, case.Dv) > WIDEST_HEAD:
        return f"the kernels take heads of up to {WIDEST_HEAD} features; here D = {case.D} and Dv = {case.Dv}"
    if rule.name != ALIBI and form_of(case, rule).bias is not None:
        return f"the kernels add no bias but that of {ALIBI}"
    return None


def supports_interpreted(case: Case, rule: Rule) -> str | None:
    """Decline large cases besides."""
    pairs = case.B * case.H * case.Lq * case.Lk
    if pairs > MOST_INTERPRETED:
        return (
            "Triton's interpreter runs each block of a kernel in Python, to check small cases: "
            f"B·H·Lq·Lk is {MOST_INTERPRETED} at most; here {pairs}"
        )
    return supports(case, rule)


def _too_old() -> str | None:
    import triton

    # Older ones cache no choices of blocks either.
    found = getattr(triton, "knobs", None)
    return None if found else f"needs Triton 3.4 or later; this is {triton.__version__}"


def available(device: str) -> str | None:
    """Return why there is no device for the kernels."""
    import torch
    import triton

    if older := _too_old():
        return older
    if triton.knobs.runtime.interpret:
        return "TRITON_INTERPRET is set, so Triton compiles nothing: unset it to run on a GPU"
    if not torch.cuda.is_available():
        return f"Triton compiles for GPUs, and this torch ({torch.__version__}) finds none"
    found = torch.cuda.get_device_capability()
    if found < (8, 0):
        return "the kernels need compute capability 8.0 or more; this device has {}.{}".format(*found)
    return None


def available_interpreted(device: str) -> str | None:
    """Return why the interpreter is off."""
    import triton

    if older := _too_old():
        return older
    if triton.knobs.runtime.interpret:
        return None
    return "Triton compiles for GPUs only; TRITON_INTERPRET=1 checks its kernels on a CPU, in an interpreter"


TRITON_FLASH = Backend(
    name="triton_flash",
    summary="flash attention in Triton, compiled and tuned for a GPU",
    prepare=prepare,
    supports=supports,
    available=available,
    operations=("attention", "multihead"),
    needs_dot_form=True,
    dtypes=("float32", "bfloat16", "float16"),
    devices=("cuda",),
    passes=PASSES,
    requires=("triton",),
    forkable=False,
    quadratic_copies=0,
    masks=("any",),
    masks_by_head=True,
    ignores_dropped=True,
)

TRITON_INTERPRETED = replace(
    TRITON_FLASH,
    name="triton_interpreted",
    summary="triton_flash in Triton's interpreter on a CPU: checks the kernels; its times mean nothing",
    supports=supports_interpreted,
    available=available_interpreted,
    devices=("cpu",),
    forkable=True,
)
