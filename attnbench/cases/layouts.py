"""Layouts: in which order the elements of q, k and v lie in memory, as words and as strides."""

from __future__ import annotations

from collections.abc import Sequence

from attnbench.types.backend import Backend, Layout
from attnbench.types.case import ORDERS, WITH_ROOM, Case, layout_named, orders_of
from attnbench.types.encoding import is_encoded
from attnbench.types.operation import Shape, operation_of

ROOM = 2
"""A cache with room is measured with so many times the positions that are read: half full, on the way."""


def strides_of(order: str, shape: Shape, row: int) -> tuple[int, ...]:
    """Return the strides of a (B, H, L, D) tensor whose elements lie in this order.

    row: the elements that q, k and v have together for one position, from one to the next in BL3HD. In an
    order of :data:`WITH_ROOM` there is room for :data:`ROOM` times as many positions.
    """
    if order in WITH_ROOM:
        return strides_of(WITH_ROOM[order], _with_room(shape, ROOM * shape[2]), row)
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
    """Return whether the inputs of a case, which has a layout, lie as in this one, with more room or less."""
    shapes, strides = _shapes(case), input_strides(case)
    row = _row(*shapes.values())
    orders = zip(shapes, orders_of(layout), strict=True)
    return all(_lies_in(order, shapes[name], strides[name], row) for name, order in orders)


def layout_of(shapes: Sequence[Shape], strides: Sequence[Sequence[int]]) -> str | None:
    """Return the layout of q, k and v with these shapes, (B, H, L, D), and strides; None if no word says it.

    Axes of one element lie anywhere, so several words may be true: it is the first of :data:`ORDERS`, of
    which one for all three goes before one for each.
    """
    row, found = _row(*shapes), []
    for order in ORDERS:
        its = zip(orders_of(order), shapes, strides, strict=True)
        if all(_lies_in(one, shape, own, row) for one, shape, own in its):
            return order
    for place, (shape, own) in enumerate(zip(shapes, strides, strict=True)):
        orders = (order for order in ORDERS if place or order not in WITH_ROOM)
        found.append(next((order for order in orders if _lies_in(order, shape, own, row)), None))
    return None if None in found else layout_named([str(order) for order in found])


def reach_of(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return the number of elements from the first to the last in memory."""
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def _lies_in(order: str, shape: Shape, strides: Sequence[int], row: int) -> bool:
    """Return whether a tensor with these strides lies in an order, in memory with however much room."""
    if order in WITH_ROOM:
        B, H, L, D = shape
        if not H * D:
            return False
        if B == 1 and (H == 1 or order == "BCHD"):  # Nobody sees how much room there is.
            return _lies_in(WITH_ROOM[order], shape, strides, row)
        # The axis before the positions tells how many of them the memory has.
        apart = {"BHCD": strides[1] // D if H > 1 else strides[0] // (H * D), "BCHD": strides[0] // (H * D)}
        if apart[order] <= L:
            return False
        order, shape = WITH_ROOM[order], _with_room(shape, apart[order])
    there = strides_of(order, shape, row)
    return all(size == 1 or a == b for size, a, b in zip(shape, strides, there, strict=True))


def _with_room(shape: Shape, positions: int) -> Shape:
    B, H, _, D = shape
    return B, H, positions, D


def _shapes(case: Case) -> dict[str, Shape]:
    k = (case.B, case.Hkv, case.Lk)
    return {"q": (case.B, case.H, case.Lq, case.D), "k": (*k, case.D), "v": (*k, case.Dv)}


def _row(q: Shape, k: Shape, v: Shape) -> int:
    return sum(shape[1] * shape[3] for shape in (q, k, v))
