"""Outputs that are no fresh dense tensors of the right kind, whatever their values are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from attnbench.kit.layer import for_operation
from attnbench.selftest.zoo.animal import Animal, Applies
from attnbench.selftest.zoo.form import RIGHT, around_call, heads_of
from attnbench.selftest.zoo.where import anywhere, keeps_a_key, kept_counts
from attnbench.types.backend import Setup
from attnbench.types.case import DTYPES, Case, Dtype
from attnbench.types.rule import Rule
from attnbench.types.shapes import activation_shapes, output_shape

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call


def _lazy(setup: Setup, call: Call) -> Call:
    import torch

    class Lazy(torch.Tensor):
        """Looks like a tensor; a real one would put the work off until it is read."""

    return lambda q, k, v: call(q, k, v).as_subclass(Lazy)


def _meta(setup: Setup, call: Call) -> Call:
    return lambda q, k, v: call(q, k, v).to("meta")


def _expanded(setup: Setup, call: Call) -> Call:
    """One row in memory, seen as all of them."""

    def expanded(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = call(q, k, v)
        return out.narrow(-2, 0, 1).clone().expand(out.shape)

    return expanded


def _overlapping(setup: Setup, call: Call) -> Call:
    """Rows that begin one element after each other."""

    def overlapping(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = call(q, k, v).contiguous()
        strides = [*out.stride()]
        strides[-2] = 1
        return out.as_strided(out.shape, strides)

    return overlapping


def _same_buffer(count: int) -> Callable[[Setup, Call], Call]:
    """The same storages for every output, in turns."""

    def around(setup: Setup, call: Call) -> Call:
        buffers: list[Tensor] = []
        calls = 0

        def reused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            nonlocal calls
            out = call(q, k, v)
            if len(buffers) < count:
                buffers.append(out.clone())
            calls += 1
            return buffers[(calls - 1) % count].copy_(out)

        return reused

    return around


def _into(which: int) -> Callable[[Setup, Call], Call]:
    """The right answer, written over an input and returned as it."""
    return lambda setup, call: lambda *inputs: inputs[which].copy_(call(*inputs))


def _first_row_of_the_values(setup: Setup, call: Call) -> Call:
    """A view of the last input."""

    def view(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return v.narrow(-2, 0, setup.case.Lq).view_as(v.narrow(-2, 0, setup.case.Lq))

    return view


def _other_dtype(setup: Setup, call: Call) -> Call:
    import torch

    return lambda q, k, v: call(q, k, v).to(torch.float32)


def _queries_first(setup: Setup, call: Call) -> Call:
    return lambda q, k, v: call(q, k, v).transpose(0, 1).contiguous()


def _last_row_unwritten(setup: Setup) -> Call:
    """An output of fresh memory, of which the last row is never written."""
    attend = heads_of(RIGHT, setup)

    def unwritten(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        import torch

        made = attend(q, k, v)
        out = torch.empty_like(made)
        out[:, :, :-1] = made[:, :, :-1]
        return out

    return for_operation(unwritten, setup)


def _unwritten(setup: Setup, call: Call) -> Call:
    """Whatever the allocator hands out; often the answer of the call before."""
    return lambda q, k, v: q.new_empty(output_shape(setup.case))


def _answer_like(which: int) -> Applies:
    """The answer has the shape of an input."""
    return lambda case, rule: output_shape(case) == activation_shapes(case, rule)[which]


def _many_rows(case: Case, rule: Rule) -> bool:
    return case.Lq > 1 and keeps_a_key(case, rule)


def _values_as_long(case: Case, rule: Rule) -> bool:
    values = activation_shapes(case, rule)[2]
    return case.Lq <= case.Lk and output_shape(case) == (*values[:-2], case.Lq, values[-1])


def _first_axes_differ(case: Case, rule: Rule) -> bool:
    shape = output_shape(case)
    return shape[0] != shape[1]


def _last_row_kept(case: Case, rule: Rule) -> bool:
    return bool((kept_counts(case)[:, -1] > 0).any())


KINDS: dict[str, tuple[str, Callable[[Setup, Call], Call], Applies, tuple[Dtype, ...]]] = {
    "lazy_subclass": ("a subclass of Tensor", _lazy, anywhere, DTYPES),
    "meta_tensor": ("a tensor without memory", _meta, anywhere, DTYPES),
    "expanded_output": ("one row of memory for all rows", _expanded, _many_rows, DTYPES),
    "overlapping_output": ("rows that share memory", _overlapping, _many_rows, DTYPES),
    "output_buffer_reused": ("the same memory for every output", _same_buffer(1), anywhere, DTYPES),
    "two_output_buffers": ("two storages in turns", _same_buffer(2), anywhere, DTYPES),
    "writes_over_queries": ("the answer in the memory of its first input", _into(0), _answer_like(0), DTYPES),
    "writes_over_values": ("the answer in the memory of its last input", _into(2), _answer_like(2), DTYPES),
    "view_of_values": ("a view of its last input", _first_row_of_the_values, _values_as_long, DTYPES),
    "float32_output": (
        "float32, whatever is asked for",
        _other_dtype,
        anywhere,
        ("float64", "bfloat16", "float16"),
    ),
    "axes_exchanged": ("the first two axes exchanged", _queries_first, _first_axes_differ, DTYPES),
    "unwritten_output": ("memory that nothing was written to", _unwritten, keeps_a_key, DTYPES),
}

ANIMALS: tuple[Animal, ...] = (
    *(
        around_call(name, words, around, "state", applies, dtypes=dtypes)
        for name, (words, around, applies, dtypes) in KINDS.items()
    ),
    Animal(
        name="last_row_unwritten",
        summary="the last row of its output is never written",
        prepare=_last_row_unwritten,
        right=False,
        trait="state",
        applies=_last_row_kept,
    ),
)
