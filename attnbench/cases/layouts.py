"""Layouts: in which order the elements of q, k and v lie in memory, as words and as strides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from attnbench.types.backend import Backend, Layout
from attnbench.types.case import ORDERS, Case, orders_of
from attnbench.types.encoding import is_encoded
from attnbench.types.operation import Shape, operation_of


def strides_of(order: str, shape: Shape, row: int) -> tuple[int, ...]:
    """Return the strides of a (B, H, L, D) tensor whose elements lie in this order.

    row: the elements that q, k and v have together for one position, from one to the next in BL3HD.
    """
    B, H, L, D = shape
    by_order = {
        "BHLD": (H * L * D, L * D, D, 1),
        "BLHD": (L * H * D, D, H * D, 1),
        "LBHD": (H * D, D, B * H * D, 1),
        "BL3HD": (L * row, D, row, 1),
    }
    return by_order[order]


def input_strides(case: Case) -> dict[str, tuple[int, ...]]:
    """Return the strides of q, k and v, and of the gradient of ``out``; none with the layout ``own``."""
    shapes = {**_shapes(case), "out": (case.B, case.H, case.Lq, case.Dv)}
    strides = {name: strides_in(case, name, shape) for name, shape in shapes.items()}
    return {name: own for name, own in strides.items() if own is not None}


def strides_in(case: Case, name: str, shape: Shape) -> tuple[int, ...] | None:
    """Return the strides of an input, or ``out``, in the layout of a case; None where the layout says none.

    shape: its own. A rule that pairs keys with queries has as many keys as queries, whatever ``Lk`` is.
    """
    if case.layout == "own":
        return None
    orders = dict(zip("qkv", orders_of(case.layout), strict=True)) | {"out": output_order(case.layout)}
    if name not in orders:
        return None
    return strides_of(orders[name], shape, _row(*_shapes(case).values()))


def taken_layout(case: Case, backend: Backend) -> Layout:
    """Return the layout of heads in which a backend takes the inputs of a case."""
    one_form = operation_of(case).heads is None or case.batch or is_encoded(case)
    return "BHLD" if one_form else backend.layout


def output_order(layout: str) -> str:
    """Return the order of the output: that of q, with nothing beside it, as torch's function has it."""
    q = orders_of(layout)[0]
    return "BLHD" if q == "BL3HD" else q


def lies_as(case: Case, layout: str) -> bool:
    """Return whether the inputs of a case, which has a layout, lie as in this one."""
    own, others = input_strides(case), input_strides(replace(case, layout=layout))
    return all(_lie_alike(shape, own[name], others[name]) for name, shape in _shapes(case).items())


def layout_of(shapes: Sequence[Shape], strides: Sequence[Sequence[int]]) -> str | None:
    """Return the layout of q, k and v with these shapes, (B, H, L, D), and strides; None if no word says it.

    Axes of one element lie anywhere, so several words may be true: it is the first of :data:`ORDERS`.
    """
    row, found = _row(*shapes), []
    for shape, own in zip(shapes, strides, strict=True):
        same = (order for order in ORDERS if _lie_alike(shape, own, strides_of(order, shape, row)))
        found.append(next(same, None))
    if None in found:
        return None
    return str(found[0]) if len(set(found)) == 1 else "_".join(map(str, found))


def begins_longer(shape: Shape, strides: Sequence[int]) -> bool:
    """Return whether a (B, H, L, D) tensor is the first positions of a longer one, as ``cache[:, :, :L]``."""
    B, H, L, D = shape
    apart = {"BHLD": strides[1] // D if H > 1 else strides[0] // (H * D), "BLHD": strides[0] // (H * D)}
    longer = {order: (B, H, length, D) for order, length in apart.items() if length > L}
    return any(_lie_alike(whole, strides, strides_of(order, whole, 0)) for order, whole in longer.items())


def reach_of(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return the number of elements from the first to the last in memory."""
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def _lie_alike(shape: Shape, first: Sequence[int], second: Sequence[int]) -> bool:
    """Return whether two strides of a shape put all elements at the same places."""
    return all(size == 1 or a == b for size, a, b in zip(shape, first, second, strict=True))


def _shapes(case: Case) -> dict[str, Shape]:
    k = (case.B, case.Hkv, case.Lk)
    return {"q": (case.B, case.H, case.Lq, case.D), "k": (*k, case.D), "v": (*k, case.Dv)}


def _row(q: Shape, k: Shape, v: Shape) -> int:
    return sum(shape[1] * shape[3] for shape in (q, k, v))
