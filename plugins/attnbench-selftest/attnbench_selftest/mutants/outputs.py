"""Outputs that are not fresh dense tensors, inputs written to, and memory beside them that is read."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING

from attnbench.kit.layer import for_operation
from attnbench.testing.mistakes.parts import RIGHT, heads_of
from attnbench.types.backend import Setup
from attnbench.types.case import DTYPES, Case, Dtype, activation_shapes, output_shape
from attnbench.types.device import DEVICES
from attnbench.types.rule import Rule
from attnbench_selftest.mutants.mutant import Applies, Mutant, around_call
from attnbench_selftest.mutants.where import anywhere, keeps_a_key, kept_counts

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


OUTPUTS: dict[str, tuple[str, Callable[[Setup, Call], Call], Applies, tuple[Dtype, ...]]] = {
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


def _doubles(setup: Setup, call: Call) -> Call:
    def changed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = call(q, k, v)
        q.mul_(2)
        return out

    return changed


def _one_element(setup: Setup, call: Call) -> Call:
    def changed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = call(q, k, v)
        v[tuple(n - 1 for n in v.shape)].neg_()
        return out

    return changed


def _borrows(setup: Setup, call: Call) -> Call:
    """Doubled and halved again: the same bits, and other ones meanwhile."""

    def borrowed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        v.mul_(2)
        out = call(q, k, v)
        v.div_(2)
        return out / 2 if setup.case.layer is None else call(q, k, v)

    return borrowed


def _keeps_the_sum(setup: Setup, call: Call) -> Call:
    """Two rows of the last input change places: its sum stays."""

    def swapped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = call(q, k, v)
        v.copy_(v.roll(1, -2))
        return out

    return swapped


def _reorders(setup: Setup, call: Call) -> Call:
    """Keys and values in another order, together: right for as long as nothing is masked."""

    def reordered(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = call(q, k, v)
        k.copy_(k.flip(2))
        v.copy_(v.flip(2))
        return out

    return reordered


def _reads(past: bool) -> Callable[[Setup], Call]:
    """Reads as many bytes as one row of values has, behind the last of them or before the first.

    By address, as kernels do. What is read gets the weight 0, which hides all numbers but NaN and infinities.
    """

    def prepare(setup: Setup) -> Call:
        attend = heads_of(RIGHT, setup)

        def beyond(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            last = sum((n - 1) * s for n, s in zip(v.shape, v.stride(), strict=True))
            row_bytes = v.shape[-1] * v.element_size()
            end = v.data_ptr() + (last + 1) * v.element_size()
            row = _memory(end if past else v.data_ptr() - row_bytes, row_bytes, v)
            return attend(q, k, v) + (row * 0).to(q)

        return beyond

    return prepare


def _memory(address: int, count: int, like: Tensor) -> Tensor:
    import torch

    return torch.frombuffer(bytearray(ctypes.string_at(address, count)), dtype=like.dtype)


def _as_contiguous(setup: Setup) -> Call:
    """Reads memory on from the first element, whatever the strides say: right for contiguous inputs alone."""
    attend = heads_of(RIGHT, setup)

    def plain(x: Tensor) -> Tensor:
        strides = x.new_empty(x.shape, device="meta").stride()
        room = x.untyped_storage().nbytes() // x.element_size() - x.storage_offset()
        return x.as_strided(x.shape, strides) if x.numel() <= room else x

    return lambda q, k, v: attend(plain(q), plain(k), plain(v))


def _no_mask_many_keys(case: Case, rule: Rule) -> bool:
    return case.mask.is_none and case.Lk > 1 and not rule.pairs_keys


def _plain_memory(case: Case, rule: Rule) -> bool:
    return case.layer is None


def _other_rows(case: Case, rule: Rule) -> bool:
    return case.Lk > 1


INPUTS: dict[str, tuple[str, Callable[[Setup, Call], Call], Applies]] = {
    "doubles_queries_in_place": ("its first input is twice as large afterwards", _doubles, anywhere),
    "changes_one_value_in_place": ("one element of its last input changes its sign", _one_element, anywhere),
    "borrows_values": ("its last input is changed and restored", _borrows, keeps_a_key),
    "changes_inputs_but_not_sums": ("rows of its last input change places", _keeps_the_sum, _other_rows),
}

MUTANTS: tuple[Mutant, ...] = (
    *(
        around_call(name, words, around, "state", applies, dtypes=dtypes)
        for name, (words, around, applies, dtypes) in OUTPUTS.items()
    ),
    Mutant(
        name="last_row_unwritten",
        summary="the last row of its output is never written",
        prepare=_last_row_unwritten,
        trait="state",
        applies=_last_row_kept,
    ),
    *(
        around_call(name, words, around, "state", applies)
        for name, (words, around, applies) in INPUTS.items()
    ),
    around_call(
        "reorders_keys_in_place",
        "keys and values in another order afterwards",
        _reorders,
        "state",
        _no_mask_many_keys,
        operations=("attention",),
    ),
    *(
        Mutant(
            name=name,
            summary=words,
            prepare=prepare,
            trait="state",
            applies=_plain_memory,
            operations=("attention",),
            devices=devices,
        )
        for name, words, prepare, devices in (
            ("reads_past_the_end", "reads one row of values too many", _reads(True), ("cpu",)),
            ("reads_before_the_start", "reads the row before the first value", _reads(False), ("cpu",)),
            (
                "reads_as_contiguous",
                "reads on from the first element, whatever the strides",
                _as_contiguous,
                tuple(DEVICES),
            ),
        )
    ),
)
