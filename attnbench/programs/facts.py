"""The facts of a call as its case has them: sizes, layout, dtype, device and threads."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from attnbench.cases.layouts import layout_of
from attnbench.programs.classify import ClassifiedMask
from attnbench.programs.tally import Call, Kind, Unclassified
from attnbench.types.device import CPU

if TYPE_CHECKING:
    from torch import Tensor


def torch_here() -> Any:
    """Return torch, which the program has imported."""
    import torch

    return torch


def sizes_of(query: Tensor, key: Tensor, value: Tensor) -> dict[str, int]:
    """Return the sizes of a case; axes before the heads are its batch."""
    first, *others = leads = [one.shape[:-3] for one in (query, key, value)]
    # torch takes a second to load what it needs to compare shapes, the first time.
    lead = first if all(one == first for one in others) else torch_here().broadcast_shapes(*leads)
    H, Hkv = (one.shape[-3] if one.dim() > 2 else 1 for one in (query, key))
    (Lq, D), (Lk, Dv) = query.shape[-2:], value.shape[-2:]
    return {"B": prod(lead), "H": H, "Hkv": Hkv, "Lq": Lq, "Lk": Lk, "D": D, "Dv": Dv}


def layout_between(query: Tensor, key: Tensor, value: Tensor) -> str:
    """Return the layout of a call's inputs, "" where no word says it. Missing axes have one element."""
    inputs = (query, key, value)
    if any(one.dim() > 4 for one in inputs):
        return ""
    shapes = [(1,) * (4 - one.dim()) + tuple(one.shape) for one in inputs]
    strides = [(0,) * (4 - one.dim()) + one.stride() for one in inputs]
    return layout_of(shapes, strides) or ""


def call_of(
    name: str, query: Tensor, sizes: dict[str, int], layout: str, mask: ClassifiedMask, scale: float | None,
    dropout: float, **more: Any,
) -> Kind | None:  # fmt: skip
    """Return what a call is; None where it computes nothing, as while shapes are traced.

    more: further fields of :class:`Call`.
    """
    torch, device = torch_here(), query.device.type
    if computes_nothing(query):
        return None
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return Unclassified(name, "torch.func hides its batch")
    dtype = query.dtype
    if torch.is_autocast_enabled(device) and dtype != torch.float64:
        dtype = torch.get_autocast_dtype(device)
    found: dict[str, Any] = {**sizes, **more}
    return Call(
        name, **found, mask=mask.mask, kept=mask.kept, dtype=str(dtype).removeprefix("torch."),
        device=device, scale=None if scale is None else float(scale), dropout=float(dropout),
        threads=torch.get_num_threads() if device == CPU.name else 1, layout=layout,
    )  # fmt: skip


def computes_nothing(query: Tensor) -> bool:
    """Return whether a tensor has shapes alone."""
    return query.is_meta or isinstance(query, torch_here()._subclasses.FakeTensor)
