"""recurrent_loop: one step after the other; recurrent_chunked: 64 steps at once by matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attnbench.kit.dtypes import case_dtype
from attnbench.kit.recurrence import PackedSequences, named_inputs, prepare
from attnbench.types.backend import Backend, Setup
from attnbench.types.case import PASSES

if TYPE_CHECKING:
    from torch import Tensor

STORAGES = ("dense", "packed", "pooled")
CHUNK, CHUNK_OF_CHANNELS = 64, 16
"""Steps at once. With a decay for each feature, all pairs of steps of a chunk are held by feature."""


def prepare_loop(setup: Setup) -> Callable[..., Any]:
    """Return a function that takes one step after the other; it gives the output and the state."""
    return PackedSequences(setup, prepare) if setup.case.batch else prepare(setup)


def prepare_chunked(setup: Setup) -> Callable[..., Any]:
    """Return a function that takes the steps of a chunk at once; it gives the output and the state."""
    return PackedSequences(setup, prepare_chunks) if setup.case.batch else prepare_chunks(setup)


def prepare_chunks(setup: Setup) -> Callable[..., Any]:
    """Return a function of equal sequences that takes the steps of a chunk at once.

    With u_i for what step i adds to the state beside its key, and G for the sum of decays since the state
    S before the chunk, the state after step i is e^G_i S + Σ_j≤i e^(G_i - G_j) k_j u_jᵀ. Where the update
    corrects, u_i depends on those before it: a triangular system (Yang et al. 2024, Parallelizing Linear
    Transformers with the Delta Rule; Yang et al. 2025, Gated Delta Networks).
    """
    import torch

    case, named = setup.case, named_inputs(setup)
    scale, dtype = case.D**-0.5, case_dtype(case)
    update = setup.rule.update
    size = CHUNK_OF_CHANNELS if update is not None and update.decays == "channel" else CHUNK

    def call(*inputs: Tensor) -> tuple[Tensor, Tensor]:
        given = named(*inputs)
        state = given.pop("past_state")
        read = []
        for start in range(0, case.Lq, size):
            chunk = {name: x[:, :, start : start + size] for name, x in given.items()}
            out, state = _chunk(chunk, state)
            read.append(out)
        return (scale * torch.cat(read, 2)).to(dtype), state

    return call


def _chunk(chunk: dict[str, Tensor], state: Tensor) -> tuple[Tensor, Tensor]:
    """Return what is read in the steps of a chunk, without the scale, and the state after them."""
    import torch

    q, k, added = chunk["q"], chunk["k"], chunk["v"]
    decay = chunk.get("decay")
    since = torch.zeros_like(q[..., :1]) if decay is None else decay.cumsum(2)
    steps = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device)
    # The weight of step j in step i has only the decays between them, so none overflows.
    between = since[:, :, :, None] - since[:, :, None]
    weights = between.masked_fill(steps.triu(1)[..., None], -torch.inf).exp()
    kept = since.exp()
    if "beta" in chunk:
        beta = chunk["beta"]
        before = (beta * _weighted(k, k, weights)).masked_fill(steps.triu(), 0)
        known = beta * (added - (kept * k) @ state)
        added = torch.linalg.solve_triangular(before, known, upper=False, unitriangular=True)
    out = (kept * q) @ state + _weighted(q, k, weights) @ added
    left = (since[:, :, -1:] - since).exp()
    return out, kept[:, :, -1, :, None] * state + (left * k).mT @ added


def _weighted(rows: Tensor, columns: Tensor, weights: Tensor) -> Tensor:
    """Return the products of rows and columns (B, H, C, D) with weights (B, H, C, C, D or 1)."""
    import torch

    if weights.shape[-1] == 1:
        return rows @ columns.mT * weights[..., 0]
    return torch.einsum("bhid,bhjd,bhijd->bhij", rows, columns, weights)


RECURRENT_LOOP = Backend(
    name="recurrent_loop",
    summary="one step after the other in torch, with the state in float32",
    prepare=prepare_loop,
    operations=("recurrent",),
    passes=PASSES,
    storages=STORAGES,
    quadratic_copies=0,
)

RECURRENT_CHUNKED = Backend(
    name="recurrent_chunked",
    summary="64 steps at once by matrix products in torch, the state handed on in float32",
    prepare=prepare_chunked,
    operations=("recurrent",),
    passes=PASSES,
    rules=("linear", "lightning", "gated", "delta", "gated_delta", "gated_delta_channels"),
    storages=STORAGES,
    quadratic_copies=0,
)
