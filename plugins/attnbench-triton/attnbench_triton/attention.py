"""Attention of tensors by the kernels: their arguments, grids and results, and the gradients for autograd."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from attnbench_triton import choices
from attnbench_triton.backward import keys_kernel, queries_kernel
from attnbench_triton.choices import power_of_2
from attnbench_triton.decode import decode_kernel, merge_kernel
from attnbench_triton.forward import forward_kernel

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.case import Case
    from attnbench_triton.choices import Choice

LOG2_E = math.log2(math.e)


@dataclass(frozen=True)
class Problem:
    """What the kernels are told of a case, besides the activations and what has gradients.

    before, after: the keys that a query sees on each side of its own. lengths: int32 (B,). table: the
    explicit mask (B or 1, H or 1, Lq, Lk), uint8 to keep pairs, else added to scores. chosen: the blocks of
    kernels by name, found at the first call of each.
    """

    case: Case
    scale: float
    cap: float | None
    before: int
    after: int
    lengths: Tensor | None
    table: Tensor | None
    chosen: dict[str, Choice] = field(default_factory=dict)

    @property
    def masking(self) -> tuple[Any, ...]:
        """Sizes, the mask, and the scale and cap of scores in base 2, as arguments of all kernels."""
        case, cap = self.case, self.cap
        told = (case.group, case.Lq, case.Lk, case.query_offset, self.before, self.after)
        return (*told, self.scale * LOG2_E, None) if cap is None else (*told, self.scale / cap, cap * LOG2_E)

    @property
    def shapes(self) -> dict[str, Any]:
        """The compile-time arguments of all kernels but their blocks."""
        case = self.case
        return {
            "D": case.D, "DV": case.Dv, "D_BLOCK": power_of_2(case.D),
            "DV_BLOCK": power_of_2(case.Dv),
        }  # fmt: skip


def attention(problem: Problem, q: Tensor, k: Tensor, v: Tensor, *learned: Tensor | None) -> Tensor:
    """Return (B, H, Lq, Dv) for q (B, H, Lq, D), k (B, Hkv, Lk, D), v (B, Hkv, Lk, Dv).

    learned: slopes of ALiBi and sinks, (H,) each or None.
    """
    import torch

    if not torch.is_grad_enabled():
        return forward(problem, q, k, v, *learned)[0]
    out: Tensor = _function().apply(problem, q, k, v, *learned)
    return out


def forward(
    problem: Problem, q: Tensor, k: Tensor, v: Tensor, slopes: Tensor | None, sinks: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the output, which lies in memory as q does, and log-sum-exps in base 2 (B, H, Lq) in float32."""
    import torch

    case = problem.case
    q, k, v = (_in_rows(x) for x in (q, k, v))
    out = _as_queries_lie(q, case.Dv)
    lse = q.new_empty((case.B, case.H, case.Lq), dtype=torch.float32)
    if choices.splits_keys(case):
        _decode(problem, q, k, v, out, lse, slopes, sinks)
        return out, lse
    _launch(
        problem, forward_kernel, lambda chosen: case.B * case.H * -(-case.Lq // chosen.M),
        q, k, v, out, lse, problem.lengths, problem.table, slopes, sinks,
        *_strides(q, k, v, out), *_table_strides(problem), case.B, case.H, *problem.masking,
    )  # fmt: skip
    return out, lse


def _decode(
    problem: Problem, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, slopes: Tensor | None,
    sinks: Tensor | None,
) -> None:  # fmt: skip
    import torch

    case = problem.case
    splits = choices.splits(case)
    parts = q.new_empty((case.B, case.H, case.Lq, splits, case.Dv), dtype=torch.float32)
    sums = q.new_empty((case.B, case.H, case.Lq, splits), dtype=torch.float32)
    _launch(
        problem, decode_kernel, lambda chosen: case.B * case.Hkv * splits,
        q, k, v, parts, sums, problem.lengths, problem.table, slopes,
        *_strides(q, k, v), *_table_strides(problem), case.B, case.Hkv, *problem.masking, splits,
    )  # fmt: skip
    merge_kernel[(case.B * case.H * case.Lq,)](
        parts, sums, out, lse, sinks, *_strides(out), case.H, case.Lq, splits,
        DV=case.Dv, DV_BLOCK=power_of_2(case.Dv), SPLITS_BLOCK=power_of_2(splits),
        **choices.OPTIONS,
    )  # fmt: skip


def backward(
    problem: Problem, d_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor,
    slopes: Tensor | None, sinks: Tensor | None,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Return the gradients of q, k, v, slopes and sinks; None for what is not there."""
    import torch

    case = problem.case
    q, k, v, d_out = (_in_rows(x) for x in (q, k, v, d_out))
    dq, dk, dv = (x.new_empty(x.shape) for x in (q, k, v))
    delta = torch.empty_like(lse)
    d_slopes = None if slopes is None else torch.empty_like(lse)
    table_strides = _table_strides(problem)
    _launch(
        problem, queries_kernel, lambda chosen: case.B * case.H * -(-case.Lq // chosen.M),
        q, k, v, out, d_out, lse, delta, dq, d_slopes, problem.lengths, problem.table, slopes,
        *_strides(q, k, v, out, d_out), *table_strides, case.B, case.H, *problem.masking, problem.scale,
    )  # fmt: skip
    _launch(
        problem, keys_kernel, lambda chosen: case.B * case.Hkv * -(-case.Lk // chosen.N),
        q, k, v, d_out, lse, delta, dk, dv, problem.lengths, problem.table, slopes,
        *_strides(q, k, v, d_out), *table_strides, case.B, case.Hkv, *problem.masking, problem.scale,
    )  # fmt: skip
    of_slopes = None if slopes is None or d_slopes is None else d_slopes.sum((0, 2)).to(slopes.dtype)
    if sinks is None:
        return dq, dk, dv, of_slopes, None
    # The value of a sink is 0, so its score has the gradient -weight · delta.
    weights = torch.exp2(sinks.float()[:, None] * LOG2_E - lse)
    return dq, dk, dv, of_slopes, -(weights * delta).sum((0, 2)).to(sinks.dtype)


def _launch(problem: Problem, kernel: Any, programs: Callable[[Choice], int], *given: Any) -> None:
    name = kernel.__name__
    if name not in problem.chosen:
        problem.chosen[name] = choices.choose(kernel, problem.case, programs, given, problem.shapes)
    chosen = problem.chosen[name]
    kernel[(programs(chosen),)](*given, **problem.shapes, **chosen.options)


def _in_rows(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


def _as_queries_lie(q: Tensor, width: int) -> Tensor:
    """Make (B, H, Lq, width) without values, with axes in the order in which those of q lie in memory."""
    order = sorted(range(3), key=lambda axis: -q.stride(axis))
    made = q.new_empty((*(q.shape[axis] for axis in order), width))
    return made.permute(*(order.index(axis) for axis in range(3)), 3)


def _strides(*tensors: Tensor) -> tuple[int, ...]:
    return tuple(stride for x in tensors for stride in x.stride()[:3])


def _table_strides(problem: Problem) -> tuple[int, ...]:
    table = problem.table
    return (0, 0, 0) if table is None else table.expand(problem.case.B, problem.case.H, -1, -1).stride()[:3]


@cache
def _function() -> Any:
    """torch's autograd function, defined at the first call, since only that imports torch."""
    from torch.autograd import Function
    from torch.autograd.function import once_differentiable

    class Attention(Function):
        @staticmethod
        def forward(ctx: Any, problem: Problem, q: Tensor, k: Tensor, v: Tensor, *learned: Any) -> Tensor:
            out, lse = forward(problem, q, k, v, *learned)
            ctx.problem = problem
            ctx.save_for_backward(q, k, v, out, lse, *learned)
            return out

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
            return None, *backward(ctx.problem, d_out, *ctx.saved_tensors)

    return Attention
