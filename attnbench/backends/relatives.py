"""differential_sdpa, gated_sdpa, rotated_sdpa: torch's attention, with what its relatives add around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from attnbench.backends.sdpa import attention, refuse_cap
from attnbench.kit.rotary import norm_and_turn
from attnbench.types.backend import Backend, Setup

if TYPE_CHECKING:
    from torch import Tensor


def prepare_gated(setup: Setup) -> Callable[..., Tensor]:
    """Return a function of q, k, v and gate."""
    attend = attention(setup)
    return lambda q, k, v, gate: attend(q, k, v) * gate.sigmoid()


def prepare_differential(setup: Setup) -> Callable[..., Tensor]:
    """Return a function of q, k, v and λ that attends with all heads at once, as DiffLlama does."""
    attend = attention(setup)

    def call(q: Tensor, k: Tensor, v: Tensor, lam: Tensor) -> Tensor:
        first, second = attend(q, k, v.repeat(1, 2, 1, 1)).chunk(2, dim=1)
        return first - lam * second

    return call


def prepare_rotated(setup: Setup) -> Callable[..., Tensor]:
    """Return a function of raw q and k, v and both norms."""
    attend, change = attention(setup), norm_and_turn(setup)

    def call(q: Tensor, k: Tensor, v: Tensor, norm_q: Tensor, norm_k: Tensor) -> Tensor:
        return attend(*change(q, k, norm_q, norm_k), v)

    return call


GATED_SDPA = Backend(
    name="gated_sdpa",
    summary="torch SDPA, then times the sigmoid of the gate",
    prepare=prepare_gated,
    supports=refuse_cap,
    operations=("gated_output",),
    needs_dot_form=True,
    masks=("any",),
    masks_by_head=True,
)

DIFFERENTIAL_SDPA = Backend(
    name="differential_sdpa",
    summary="torch SDPA of all heads, then the difference of their halves",
    prepare=prepare_differential,
    supports=refuse_cap,
    operations=("differential",),
    needs_dot_form=True,
    masks=("any",),
    masks_by_head=True,
)

ROTATED_SDPA = Backend(
    name="rotated_sdpa",
    summary="norms and rotary positions in torch, then torch SDPA",
    prepare=prepare_rotated,
    supports=refuse_cap,
    operations=("rotated",),
    needs_dot_form=True,
    masks=("any",),
    masks_by_head=True,
)
