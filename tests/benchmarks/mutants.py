"""Forty faulty attention kernels, to measure how many of them a judge finds.

Usage: python tests/benchmarks/mutants.py

As a plugin (``attnbench check --plugin tests/benchmarks/mutants.py --backend mutant_stale_keys``) the file
brings a right kernel, ``mutants_right``, and one backend for each fault. A faulty kernel is right except
where two or three properties of a call hold together, as in public reports of wrong attention kernels. As a
program the file compares the right kernel with float64, and each faulty one with the right one on a call that
shows the fault.

:func:`fired` tells which faults a call would show. The backend ``mutants_watched`` is right too. It appends
the name of each such fault, with the case, to the file that ``ATTNBENCH_MUTANTS_FIRED`` names.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnbench import Backend, Case, Mask, Setup, hookimpl
from attnbench.cases.ids import case_id, parse_case
from attnbench.cases.layouts import input_strides
from attnbench.kit.masks import additive_mask
from attnbench.masks import added_rows, keep_rows, key_lengths
from attnbench.types.case import PASSES

if TYPE_CHECKING:
    from torch import Tensor

FIRED = "ATTNBENCH_MUTANTS_FIRED"
WIDE, NARROW = 64, 32
"""Keys of a block, in kernels for many keys and in those for few."""
HALVES = ("float16", "bfloat16")


@dataclass(frozen=True, eq=False)
class Earlier:
    """What a kernel may have kept of the call before: copies of k and v, and where k lay."""

    k: Tensor
    v: Tensor
    address: int


def earlier(k: Tensor, v: Tensor) -> Earlier:
    """Keep what a later call may find."""
    return Earlier(k.detach().clone(), v.detach().clone(), k.data_ptr())


def _grad_mode() -> bool:
    import torch

    return torch.is_grad_enabled()


def _threads() -> int:
    import torch

    return torch.get_num_threads()


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a kernel.

    q: (B, H, Lq, D). k: (B, Hkv, Lk, D). v: (B, Hkv, Lk, Dv). upstream: the gradient of the output, (B, H,
    Lq, Dv), while gradients are computed, else None. before: of the call before, or None.
    """

    case: Case
    q: Tensor
    k: Tensor
    v: Tensor
    upstream: Tensor | None = None
    before: Earlier | None = None
    grad: bool = field(default_factory=_grad_mode)
    threads: int = field(default_factory=_threads)

    @property
    def wants(self) -> str:
        """The letters of the inputs that want gradients."""
        inputs = zip("qkv", (self.q, self.k, self.v), strict=True)
        return "".join(name for name, x in inputs if x.requires_grad) if self.grad else ""


# The right kernel, in steps.


@lru_cache(maxsize=8)
def added_of(case: Case) -> Tensor:
    """Return what the mask adds to scores: float32 (B or 1, H or 1, Lq, Lk), -inf where a pair is dropped."""
    import torch

    added = additive_mask(case, torch.float32, "cpu")
    return torch.zeros(1, 1, case.Lq, case.Lk) if added is None else added


def added(call: Call) -> Tensor:
    """Return what the mask of the case adds."""
    return added_of(call.case)


def heads_read(call: Call, heads: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Return q, k and v in float32; query head h gets the key/value head ``heads[h]``."""
    return call.q.float(), call.k[:, heads].float(), call.v[:, heads].float()


def read(call: Call) -> tuple[Tensor, Tensor, Tensor]:
    """Return q, k and v in float32 with H heads each."""
    return heads_read(call, [h // call.case.group for h in range(call.case.H)])


def scale(call: Call) -> float:
    """Return what multiplies q·k."""
    return call.case.constant("scale", call.case.D**-0.5)


def product(call: Call, q: Tensor, k: Tensor) -> Tensor:
    """Return q·k for all pairs, (B, H, Lq, Lk)."""
    return q @ k.mT


def weigh(call: Call, scores: Tensor) -> Tensor:
    """Return the weights of masked scores, 0 in rows that keep no key."""
    empty = scores.isneginf().all(-1, keepdim=True)
    return scores.masked_fill(empty, 0).softmax(-1).masked_fill(empty, 0)


def mix(call: Call, weights: Tensor, v: Tensor) -> Tensor:
    """Return the weighted values, (B, H, Lq, Dv)."""
    return weights @ v


def finish(call: Call, out: Tensor) -> Tensor:
    """Return the output in the dtype of the case."""
    return out.to(call.q.dtype)


def take(call: Call, gradient: Tensor) -> Tensor:
    """Return the gradient of the output as it came."""
    return gradient


def give(call: Call, name: str, gradient: Tensor) -> Tensor:
    """Return the gradient of q, k or v with H heads each, float32, before the heads of a group are summed."""
    return gradient


@dataclass(frozen=True)
class Steps:
    """A kernel: what is computed, step by step. A fault replaces steps."""

    added: Callable[[Call], Tensor] = added
    read: Callable[[Call], tuple[Tensor, Tensor, Tensor]] = read
    scale: Callable[[Call], float] = scale
    product: Callable[[Call, Tensor, Tensor], Tensor] = product
    weigh: Callable[[Call, Tensor], Tensor] = weigh
    mix: Callable[[Call, Tensor, Tensor], Tensor] = mix
    finish: Callable[[Call, Tensor], Tensor] = finish
    take: Callable[[Call, Tensor], Tensor] = take
    give: Callable[[Call, str, Tensor], Tensor] = give


RIGHT = Steps()


def attend(call: Call, mutant: Mutant | None = None) -> Tensor:
    """Compute a call, with the fault of a mutant where its properties hold."""
    steps = mutant.fault if mutant is not None and mutant.when(call) else RIGHT
    q, k, v = steps.read(call)
    if mutant is not None and call.wants:
        # Hooks belong to these views, never to the caller's tensors.
        q, k, v = (x.view_as(x) for x in (q, k, v))
    scores = steps.product(call, q, k) * steps.scale(call) + steps.added(call)
    out = steps.finish(call, steps.mix(call, steps.weigh(call, scores), v))
    if mutant is not None and call.wants:
        _hook_gradients(call, mutant, out, {"q": q, "k": k, "v": v})
    return out


def _hook_gradients(call: Call, mutant: Mutant, out: Tensor, sources: dict[str, Tensor]) -> None:
    """Let the gradients be wrong where the properties hold in the backward pass."""
    passes: list[Call] = []

    def of_output(gradient: Tensor) -> Tensor | None:
        back = replace(call, upstream=gradient.detach())
        passes[:] = [back] if mutant.when(back) else []
        return mutant.fault.take(back, gradient) if passes else None

    def of_source(name: str, gradient: Tensor) -> Tensor | None:
        return mutant.fault.give(passes[0], name, gradient) if passes else None

    out.register_hook(of_output)
    for name, x in sources.items():
        if x.requires_grad:
            x.register_hook(partial(of_source, name))


def right_scores(call: Call) -> Tensor:
    """Return the right masked scores, (B, H, Lq, Lk), without a graph."""
    import torch

    with torch.no_grad():
        q, k, _ = read(call)
        return product(call, q, k) * scale(call) + added(call)


# Properties of calls.


@dataclass(frozen=True)
class Property:
    """What must hold of a call, in words and as a test."""

    words: str
    holds: Callable[[Call], bool]


@dataclass(frozen=True)
class Mutant:
    """A kernel with one fault.

    summary: what the kernel does wrong. properties: those of a call that must all hold. fault: the steps of
    such a call. witness: a call that shows the fault.
    """

    name: str
    summary: str
    properties: tuple[Property, ...]
    fault: Steps
    witness: Witness

    def when(self, call: Call) -> bool:
        """Return whether the fault applies to a call."""
        return all(one.holds(call) for one in self.properties)


def mask_is(words: str, holds: Callable[[Mask], bool]) -> Property:
    """Make a property of the mask."""
    return Property(words, lambda call: holds(call.case.mask))


def case_is(words: str, holds: Callable[[Case], Any]) -> Property:
    """Make a property of the case."""
    return Property(words, lambda call: bool(holds(call.case)))


def _shortest(case: Case) -> int:
    return min(key_lengths(case) or (case.Lk,))


def _drops(call: Call, part: Literal["causal", "window", "padding"]) -> bool:
    """Return whether a part of the mask drops a pair that the other parts keep."""
    if getattr(call.case.mask, part) is None:
        return False
    return not added(call).equal(seeing(**{part: None})(call))


def _ends_in_one(call: Call, block: int) -> bool:
    """Return whether the last block holds one key, which a query sees."""
    alone = call.case.Lk > block and call.case.Lk % block == 1
    return alone and not bool(added(call)[..., -1].isneginf().all())


def _strides(x: Tensor) -> list[int]:
    """Return the strides of axes with more than one element."""
    return [stride for size, stride in zip(x.shape, x.stride(), strict=True) if size > 1]


def _repeats(x: Tensor) -> bool:
    """Return whether elements of a tensor share memory, as ``expand`` makes them."""
    return 0 in _strides(x)


def _has_empty_row(call: Call) -> bool:
    return bool(added(call).isneginf().all(-1).any())


def _row_maxima(call: Call) -> Tensor:
    """Return the largest score of each row that keeps a key."""
    largest = right_scores(call).amax(-1)
    return largest[~largest.isneginf()]


def _rows_below(call: Call, limit: float) -> bool:
    return bool((_row_maxima(call) < limit).any())


def _late_maximum(call: Call, block: int, by: float) -> bool:
    """Return whether a row's largest score lies so much above those of its first block, which keeps one."""
    scores = right_scores(call)
    first = scores[..., :block].amax(-1)
    return bool(((scores.amax(-1) - first > by) & ~first.isneginf()).any())


def _starts_late(call: Call, block: int) -> bool:
    """Return whether a row keeps a key, but none of the first block."""
    dropped = added(call).isneginf()
    return bool((dropped[..., :block].all(-1) & ~dropped.all(-1)).any())


def _overflows(call: Call) -> bool:
    import torch

    q, k, _ = read(call)
    with torch.no_grad():
        return bool((product(call, q, k).abs() > 65504).any())


def _longer_before(call: Call) -> bool:
    before, k, v = call.before, call.k, call.v
    if before is None or before.k.shape[2] <= k.shape[2]:
        return False
    return all(
        old.shape[:2] == new.shape[:2] and old.shape[3] == new.shape[3]
        for old, new in ((before.k, k), (before.v, v))
    )


def _refilled(call: Call) -> bool:
    """Return whether k lies where it lay in the call before, with other numbers."""
    before, k = call.before, call.k
    if before is None or before.address != k.data_ptr() or before.k.shape != k.shape:
        return False
    return not bool(before.k.equal(k))


CAUSAL = Property("a causal mask that drops keys", lambda call: _drops(call, "causal"))
LOWER_RIGHT = case_is(
    "causal:lower_right of several queries", lambda case: case.mask.causal == "lower_right" and case.Lq > 1
)
WINDOW = Property("a window that drops keys", lambda call: _drops(call, "window"))
PADDED = Property("padding that drops keys", lambda call: _drops(call, "padding"))
FLOAT = mask_is("a float mask", lambda mask: mask.explicit == "float")
BOOL = mask_is("a bool mask", lambda mask: mask.explicit == "bool")
BY_HEAD = mask_is("a mask for each head", lambda mask: mask.per_head)
UNMASKED = mask_is("no mask", lambda mask: mask.is_none)
EMPTY_ROW = Property("a row without keys", _has_empty_row)
EMPTY_ELEMENT = case_is("a batch element without keys", lambda case: _shortest(case) == 0)

MORE_QUERIES = case_is("more queries than keys", lambda case: case.Lq > case.Lk)
FEWER_QUERIES = case_is("fewer queries than keys", lambda case: case.Lq < case.Lk)
ONE_QUERY = case_is("one query", lambda case: case.Lq == 1)
KEYS_256 = case_is("256 keys or more", lambda case: case.Lk >= 256)
KEYS_512 = case_is("more than 512 keys", lambda case: case.Lk > 512)
QUERIES_128 = case_is("128 queries or more", lambda case: case.Lq >= 128)
ONE_PAST_32 = Property("one seen key past a block of 32", lambda call: _ends_in_one(call, 32))
ONE_PAST_64 = Property("one seen key past a block of 64", lambda call: _ends_in_one(call, 64))
PART_16 = case_is("keys not a multiple of 16", lambda case: case.Lk % 16 > 0)
PART_32 = case_is("keys not a multiple of 32", lambda case: case.Lk % NARROW > 0)
WHOLE_256 = case_is("keys a multiple of 256", lambda case: case.Lk % 256 == 0)
BLOCKS_64 = case_is("more than 64 keys", lambda case: case.Lk > WIDE)

BATCH = case_is("two batch elements or more", lambda case: case.B > 1)
BATCH_4 = case_is("four batch elements or more", lambda case: case.B >= 4)
SHARED = case_is("keys shared by several heads", lambda case: case.group > 1)
ODD_GROUP = case_is("an odd number of heads share keys", lambda c: c.group > 1 and c.group % 2 and c.Hkv > 1)
EVEN_GROUP = case_is("an even number of heads share keys", lambda case: case.group % 2 == 0)
ONE_KEY_HEAD = case_is(
    "one key head for an odd number of heads", lambda c: c.Hkv == 1 and c.H % 2 and c.H > 1
)

FEATURES_256 = case_is("256 features", lambda case: case.D == 256)
FEATURES_128 = case_is("128 features or more", lambda case: case.D >= 128)
ODD_FEATURES = case_is("an odd number of features", lambda case: case.D % 2 == 1)
PART_FEATURES = case_is("features not a multiple of 16", lambda case: case.D % 16 > 0)
WIDE_VALUES = case_is("values wider than keys", lambda case: case.Dv > case.D)
EQUAL_WIDTH = case_is("values as wide as keys", lambda case: case.Dv == case.D)
OTHER_WIDTH = case_is("values of another width than keys", lambda case: case.Dv != case.D)

FLOAT16 = case_is("float16", lambda case: case.dtype == "float16")
BFLOAT16 = case_is("bfloat16", lambda case: case.dtype == "bfloat16")
HALF = case_is("half precision", lambda case: case.dtype in HALVES)

OTHER_STRIDES = Property("k and v in different strides", lambda call: _strides(call.k) != _strides(call.v))
EXPANDED = Property("keys that share memory by expand", lambda call: _repeats(call.k))
ONLY_K_EXPANDED = Property("k, but not v, by expand", lambda call: _repeats(call.k) and not _repeats(call.v))
ROWS_APART = Property(
    "rows of k apart, as in a packed projection",
    lambda call: call.k.shape[2] > 1 and call.k.stride(2) > call.k.shape[1] * call.k.shape[3],
)
UNALIGNED = Property("k begins inside a group of four numbers", lambda call: call.k.storage_offset() % 4 > 0)
EXCHANGED = Property(
    "rows of q before its heads in memory",
    lambda call: min(call.q.shape[1:3]) > 1 and call.q.stride(1) < call.q.stride(2),
)

GRADED = Property("inputs that want gradients", lambda call: bool(call.wants))
UNGRADED = Property("no gradients wanted", lambda call: not call.wants)
OF_Q = Property("a gradient of q", lambda call: call.upstream is not None and "q" in call.wants)
OF_V = Property("a gradient of v", lambda call: call.upstream is not None and "v" in call.wants)
ONLY_V = Property("a gradient of v alone", lambda call: call.upstream is not None and call.wants == "v")
NOT_OF_Q = Property(
    "a gradient of k, not of q",
    lambda call: call.upstream is not None and "k" in call.wants and "q" not in call.wants,
)
UPSTREAM_STRIDED = Property(
    "a gradient of the output that is not contiguous",
    lambda call: call.upstream is not None and not call.upstream.is_contiguous(),
)
OF_V_STRIDED = Property(
    "a gradient of v, from one of the output that is not contiguous",
    lambda call: OF_V.holds(call) and UPSTREAM_STRIDED.holds(call),
)

THREADS = Property("two threads or more", lambda call: call.threads > 1)
UNEVEN_HEADS = Property(
    "heads that threads can't share evenly", lambda c: c.case.B * c.case.H % c.threads > 0
)

BELOW_EXP = Property("a row of scores below -90", lambda call: _rows_below(call, -90))
BELOW_START = Property("a row of scores below -10,100", lambda call: _rows_below(call, -10_100))
OVERFLOW = Property("q·k beyond float16", _overflows)
LATE_MAXIMUM = Property(
    "a largest score past 128 keys, by 4 or more", lambda call: _late_maximum(call, 128, 4)
)
STARTS_LATE = Property("a row that sees none of the first 64 keys", lambda call: _starts_late(call, WIDE))

LONGER_BEFORE = Property("a call before with more keys", _longer_before)
REFILLED = Property("the memory of the call before, with other numbers", _refilled)


# What goes wrong.


def seeing(**changes: Any) -> Callable[[Call], Tensor]:
    """Make the step of a kernel that sees another mask."""
    return lambda call: added_of(replace(call.case, mask=replace(call.case.mask, **changes)))


def positions(case: Case) -> tuple[Tensor, Tensor]:
    """Return the numbers of queries (Lq, 1) and of keys (Lk)."""
    import torch

    return torch.arange(case.Lq)[:, None], torch.arange(case.Lk)


def window_from_first_key(call: Call) -> Tensor:
    """Count the window as if query 0 were at key 0."""
    i, j = positions(call.case)
    window = call.case.mask.window
    assert window is not None
    return seeing(window=None)(call).masked_fill(j <= i - window, -math.inf)


def window_from_whole_block(call: Call) -> Tensor:
    """Let the window begin where a block begins."""
    case, (i, j) = call.case, positions(call.case)
    window = case.mask.window
    assert window is not None
    position = i + case.query_offset
    begin = (position - window + 1).clamp(min=0) // WIDE * WIDE
    end = position + window
    return seeing(window=None)(call).masked_fill((j < begin) | (j >= end), -math.inf)


def aligned_by_length(call: Call) -> Tensor:
    """Put the last query at the last key that padding keeps, in place of the last key."""
    import torch

    case, (i, j) = call.case, positions(call.case)
    ends = torch.tensor(key_lengths(case)).view(-1, 1, 1, 1)
    return added(call).masked_fill(j > i + ends - case.Lq, -math.inf)


def restarted_rows(call: Call) -> Tensor:
    """Count the rows of the second thread from 0 in the causal mask."""
    case, (i, j) = call.case, positions(call.case)
    half = case.Lq // 2
    return added(call).masked_fill((i >= half) & (j > i - half + case.query_offset), -math.inf)


def mask_of_key_head(call: Call) -> Tensor:
    """Read the mask of the key head's number."""
    return added(call)[:, [h // call.case.group for h in range(call.case.H)]]


def mask_of_first_columns(call: Call) -> Tensor:
    """Read the mask's first 512 columns again for later keys."""
    return added(call)[..., positions(call.case)[1] % 512]


def mask_of_first_element(call: Call) -> Tensor:
    """Read the mask of the first batch element for all."""
    return added(call)[:1]


def last_columns_kept(call: Call) -> Tensor:
    """Take the columns past the last whole 16 as kept."""
    mask = added(call).clone()
    mask[..., call.case.Lk // 16 * 16 :] = 0
    return mask


def last_key_dropped(call: Call) -> Tensor:
    """Leave the last key out."""
    return added(call).masked_fill(positions(call.case)[1] == call.case.Lk - 1, -math.inf)


def misread(x: Tensor, strides: tuple[int, ...], offset: int | None = None) -> Tensor:
    """Read a tensor's memory by strides that are not its own; past its end memory begins again."""
    import torch

    count = x.untyped_storage().nbytes() // x.element_size()
    where = torch.tensor(x.storage_offset() if offset is None else offset)
    for axis, (size, stride) in enumerate(zip(x.shape, strides, strict=True)):
        where = where + (torch.arange(size) * stride).view(-1, *[1] * (x.ndim - 1 - axis))
    return x.as_strided((count,), (1,), 0)[where % count]


def as_contiguous(x: Tensor) -> Tensor:
    """Read a tensor as if it were contiguous."""
    _, H, L, D = x.shape
    return misread(x, (H * L * D, L * D, D, 1))


def v_by_strides_of_k(call: Call) -> tuple[Tensor, Tensor, Tensor]:
    """Read v by the strides of k."""
    return read(replace(call, v=misread(call.v, call.k.stride())))


def k_from_whole_word(call: Call) -> tuple[Tensor, Tensor, Tensor]:
    """Read k from the group of four numbers that it begins in."""
    return read(replace(call, k=misread(call.k, call.k.stride(), call.k.storage_offset() // 4 * 4)))


def k_as_contiguous(call: Call) -> tuple[Tensor, Tensor, Tensor]:
    """Read k as if it were contiguous."""
    return read(replace(call, k=as_contiguous(call.k)))


def rows_of_equal_heads(call: Call) -> tuple[Tensor, Tensor, Tensor]:
    """Read k as if a row of the packed projection held as many key as query heads."""
    case, row = call.case, 3 * call.case.H * call.case.D
    return read(replace(call, k=misread(call.k, (case.Lk * row, case.D, row, 1))))


def heads_in_turn(call: Call) -> tuple[Tensor, Tensor, Tensor]:
    """Give key heads to query heads in turn."""
    return heads_read(call, [h % call.case.Hkv for h in range(call.case.H)])


def _with_tail(call: Call) -> tuple[Tensor, Tensor]:
    """Return k and v, followed by rows of the call before up to a whole block."""
    import torch

    before, L = call.before, call.case.Lk
    assert before is not None
    end = math.ceil(L / NARROW) * NARROW
    return torch.cat((call.k, before.k[:, :, L:end]), 2), torch.cat((call.v, before.v[:, :, L:end]), 2)


def stale_tail_read(call: Call) -> tuple[Tensor, Tensor, Tensor]:
    """Read the last block whole, with rows that the call before left there."""
    k, v = _with_tail(call)
    return read(replace(call, k=k, v=v))


def stale_tail_added(call: Call) -> Tensor:
    """Mask nothing in the last block."""
    return added_of(replace(call.case, Lk=_with_tail(call)[0].shape[2]))


def stale_keys(call: Call) -> tuple[Tensor, Tensor, Tensor]:
    """Use the keys that were expanded for the call before, since k lies where it lay."""
    assert call.before is not None
    return read(replace(call, k=call.before.k))


def scale_of_padded(call: Call) -> float:
    """Count the features that were added up to a multiple of 16."""
    case = call.case
    return case.constant("scale", (math.ceil(case.D / 16) * 16) ** -0.5)


def product_in_half(call: Call, q: Tensor, k: Tensor) -> Tensor:
    """Keep q·k in float16 before it is scaled."""
    return (q @ k.mT).half().float()


def starting_at(start: float) -> Callable[[Call, Tensor], Tensor]:
    """Make the softmax of a kernel whose running maximum starts at a number."""

    def softmax(call: Call, scores: Tensor) -> Tensor:
        powers = (scores - scores.detach().amax(-1, keepdim=True).clamp(min=start)).exp()
        total = powers.sum(-1, keepdim=True)
        return powers / total.masked_fill(total == 0, 1)

    return softmax


def mean_of_empty(call: Call, scores: Tensor) -> Tensor:
    """Give all keys the same weight in a row without keys, as a large negative number for -inf does."""
    empty = scores.isneginf().all(-1, keepdim=True)
    return scores.masked_fill(empty, 0).softmax(-1)


def sum_not_rescaled(call: Call, scores: Tensor) -> Tensor:
    """Forget to rescale the running sum when the maximum rises; the weighted values are rescaled."""
    largest = scores.detach().amax(-1, keepdim=True)
    running = scores.new_full(largest.shape, -math.inf)
    total = scores.new_zeros(largest.shape)
    for block in scores.split(128, dim=-1):
        running = running.maximum(block.detach().amax(-1, keepdim=True))
        total = total + (block - running.masked_fill(running.isneginf(), 0)).exp().sum(-1, keepdim=True)
    powers = (scores - largest.masked_fill(largest.isneginf(), 0)).exp()
    return powers / total.masked_fill(total == 0, 1)


def halves_averaged(call: Call, scores: Tensor) -> Tensor:
    """Merge two halves of the keys by their mean, not by their sums."""
    import torch

    return torch.cat([weigh(call, half) / 2 for half in scores.tensor_split(2, dim=-1)], dim=-1)


def first_block_without_keys(call: Call, scores: Tensor) -> Tensor:
    """Subtract -inf from -inf in a row whose first block keeps no key."""
    late = scores[..., :WIDE].isneginf().all(-1, keepdim=True) & ~scores.isneginf().all(-1, keepdim=True)
    return weigh(call, scores).masked_fill(late, math.nan)


def last_value_cut(call: Call, weights: Tensor, v: Tensor) -> Tensor:
    """Copy only D features of the values in the last, short block."""
    cut = v.clone()
    cut[:, :, -1, call.case.D :] = 0
    return weights @ cut


def last_heads_left_out(call: Call, out: Tensor) -> Tensor:
    """Compute only as many heads as all threads can share evenly."""
    import torch

    heads = call.case.B * call.case.H
    there = torch.arange(heads) < heads // call.threads * call.threads
    return finish(call, out * there.view(call.case.B, call.case.H, 1, 1))


def second_heads_repeat(call: Call, out: Tensor) -> Tensor:
    """Write the result of the first head of each pair for both."""
    return finish(call, out[:, [h // 2 * 2 for h in range(call.case.H)]])


def output_in_order_of_q(call: Call, out: Tensor) -> Tensor:
    """Write rows as into contiguous memory, and return it with the strides of q."""
    import torch

    strides = torch.empty_like(call.q).stride()
    return finish(call, out).contiguous().view(-1).as_strided(out.shape, strides)


def upstream_as_contiguous(call: Call, gradient: Tensor) -> Tensor:
    """Read the gradient of the output as if it were contiguous."""
    return as_contiguous(gradient)


def only(name: str, change: Callable[[Call, Tensor], Tensor]) -> Callable[[Call, str, Tensor], Tensor]:
    """Make the step of a kernel in which the gradient of one input is wrong."""
    return lambda call, given, gradient: change(call, gradient) if given == name else gradient


def first_of_group(call: Call, gradient: Tensor) -> Tensor:
    """Leave out all heads of a group but the first."""
    kept = gradient.clone()
    for h in range(call.case.H):
        if h % call.case.group:
            kept[:, h] = 0
    return kept


def nan_without_keys(call: Call, gradient: Tensor) -> Tensor:
    """Divide 0 by 0 in rows without keys."""
    return gradient.masked_fill(added(call).isneginf().all(-1, keepdim=True), math.nan)


def of_unmasked_weights(call: Call, gradient: Tensor) -> Tensor:
    """Compute the gradient of v from weights without a mask."""
    assert call.upstream is not None
    unmasked = replace(call, case=replace(call.case, mask=Mask()))
    return weigh(call, right_scores(unmasked)).mT @ call.upstream.float()


def of_upstream_as_contiguous(call: Call, gradient: Tensor) -> Tensor:
    """Compute the gradient of v from an upstream gradient that is read as contiguous."""
    assert call.upstream is not None
    return weigh(call, right_scores(call)).mT @ as_contiguous(call.upstream).float()


def sums_of_first_element(call: Call, gradient: Tensor) -> Tensor:
    """Subtract the row sums of the first batch element from all in the backward pass of the softmax."""
    assert call.upstream is not None
    _, k, v = (x.detach() for x in read(call))
    weights, by_weight = weigh(call, right_scores(call)), call.upstream.float() @ v.mT
    sums = (weights * by_weight).sum(-1, keepdim=True)
    return weights * (by_weight - sums[:1]) @ k * scale(call)


# Calls that show the faults.

Values = Literal["normal", "low", "lower", "large", "late"]


@dataclass(frozen=True)
class Witness:
    """A call, and how its tensors are made.

    case: an id; its layout gives the strides, its threads those of torch. values: ``low`` and ``lower`` for
    scores near -300 and -20,000, ``large`` for q·k past float16, ``late`` for a last key that all queries
    want. wants: the letters of inputs that want gradients; the gradient of the output is then compared, too.
    exchanged: whether rows lie before heads in that gradient. expanded: whether k is one head, expanded.
    offset: numbers before the first of k in memory. before: the id of a case that is called before, or
    ``same`` for the same tensors with other numbers.
    """

    case: str
    values: Values = "normal"
    wants: str = ""
    exchanged: bool = False
    expanded: bool = False
    offset: int = 0
    before: str = ""


def on(case: str, **how: Any) -> Witness:
    """Make a witness from the part of an id behind the rule."""
    return Witness(f"attention/scaled_dot/{case}", **how)


TWO = (
    Mutant(
        "window_without_padding",
        "a window takes the place of padding",
        (WINDOW, PADDED),
        Steps(added=seeing(padding=None)),
        on("B2-H2-L40-D16/window:12+padding:9,30"),
    ),
    Mutant(
        "float_without_causal",
        "a float mask takes the place of the causal one",
        (CAUSAL, FLOAT),
        Steps(added=seeing(causal=None)),
        on("B1-H2-L33-D16/causal+float"),
    ),
    Mutant(
        "mask_of_key_head",
        "the mask of a head is looked up by the number of its key head",
        (BY_HEAD, SHARED),
        Steps(added=mask_of_key_head),
        on("B1-H4-Hkv2-L24-D16/bool:per_head"),
    ),
    Mutant(
        "longer_queries_upper_left",
        "the offset of the queries is never negative",
        (LOWER_RIGHT, MORE_QUERIES),
        Steps(added=seeing(causal="upper_left")),
        on("B1-H2-Lq40-Lk24-D16/causal:lower_right"),
    ),
    Mutant(
        "last_of_expanded",
        "the last key is left out",
        (EXPANDED, ONE_PAST_32),
        Steps(added=last_key_dropped),
        on("B1-H4-Lq16-Lk33-D16/none", expanded=True),
    ),
    Mutant(
        "mask_columns_again",
        "the bool mask of the first 512 keys serves for later ones",
        (BOOL, KEYS_512),
        Steps(added=mask_of_first_columns),
        on("B1-H1-Lq8-Lk700-D16/bool"),
    ),
    Mutant(
        "v_by_strides_of_k",
        "values are read by the strides of the keys",
        (OTHER_STRIDES, EQUAL_WIDTH),
        Steps(read=v_by_strides_of_k),
        on("B1-H2-L24-D16/none/float32/cpu/forward/BHLD_BHLD_BLHD"),
    ),
    Mutant(
        "wide_backward_contiguous",
        "the gradient of the output is read as contiguous",
        (FEATURES_256, UPSTREAM_STRIDED),
        Steps(take=upstream_as_contiguous),
        on("B1-H2-L16-D256/none/float32/cpu/both", wants="qkv", exchanged=True),
    ),
    Mutant(
        "gradient_of_first_head",
        "the gradient of the values is that of the first head of the group",
        (ONE_KEY_HEAD, OF_V),
        Steps(give=only("v", first_of_group)),
        on("B1-H3-Hkv1-L20-D16/none/float32/cpu/both", wants="qkv"),
    ),
    Mutant(
        "empty_element_gradient",
        "gradients of queries without keys are NaN",
        (EMPTY_ELEMENT, OF_Q),
        Steps(give=only("q", nan_without_keys)),
        on("B2-H2-L16-D16/padding:0,9/float32/cpu/both", wants="qkv"),
    ),
    Mutant(
        "mean_of_empty_row",
        "a row without keys gets the mean of the values",
        (FLOAT, EMPTY_ROW),
        Steps(weigh=mean_of_empty),
        on("B1-H2-L24-D16/float"),
    ),
    Mutant(
        "maximum_from_zero",
        "the running maximum starts at 0",
        (BLOCKS_64, BELOW_EXP),
        Steps(weigh=starting_at(0.0)),
        on("B1-H2-Lq16-Lk80-D16/none", values="low"),
    ),
    Mutant(
        "half_accumulator",
        "q·k is kept in float16 before it is scaled",
        (FLOAT16, OVERFLOW),
        Steps(product=product_in_half),
        on("B1-H2-L16-D64/none/float16", values="large"),
    ),
    Mutant(
        "decode_heads_in_turn",
        "key heads are given to query heads in turn",
        (ONE_QUERY, ODD_GROUP),
        Steps(read=heads_in_turn),
        on("B1-H6-Hkv2-Lq1-Lk40-D16/none"),
    ),
    Mutant(
        "heads_past_threads",
        "heads that threads can't share evenly are left out",
        (THREADS, UNEVEN_HEADS),
        Steps(finish=last_heads_left_out),
        on("B1-H3-L24-D16/none/float32/cpu/forward/threads2"),
    ),
    Mutant(
        "unaligned_keys",
        "keys are read from the start of a group of four numbers",
        (UNALIGNED, ODD_FEATURES),
        Steps(read=k_from_whole_word),
        on("B1-H2-L24-D13/none", offset=3),
    ),
    Mutant(
        "last_wide_value",
        "of the last value only as many features are read as keys have",
        (ONE_PAST_64, WIDE_VALUES),
        Steps(mix=last_value_cut),
        on("B2-H4-Lq8-Lk65-D8-Dv64/none"),
    ),
    Mutant(
        "gradient_of_v_alone",
        "the gradient of v comes from weights without a mask",
        (ONLY_V, CAUSAL),
        Steps(give=only("v", of_unmasked_weights)),
        on("B1-H2-L24-D16/causal/float32/cpu/both", wants="v"),
    ),
    Mutant(
        "scale_of_padded_features",
        "the scale counts features up to a multiple of 16",
        (BFLOAT16, PART_FEATURES),
        Steps(scale=scale_of_padded),
        on("B1-H2-L24-D20/none/bfloat16"),
    ),
    Mutant(
        "padding_by_head",
        "masks that differ by head take the place of padding",
        (BY_HEAD, PADDED),
        Steps(added=seeing(padding=None)),
        on("B2-H2-L32-D16/padding:7,20+float:per_head"),
    ),
)
"""Faults of two properties."""

THREE = (
    Mutant(
        "window_from_first_key",
        "the window is counted as if the first query were at the first key",
        (LOWER_RIGHT, WINDOW, FEWER_QUERIES),
        Steps(added=window_from_first_key),
        on("B1-H2-Lq16-Lk60-D16/causal:lower_right+window:8"),
    ),
    Mutant(
        "aligned_by_length",
        "the last query is put at the last key that padding keeps",
        (LOWER_RIGHT, PADDED, SHARED),
        Steps(added=aligned_by_length),
        on("B2-H4-Hkv2-L24-D16/causal:lower_right+padding:20,24"),
    ),
    Mutant(
        "last_mask_columns",
        "a bool mask drops no key past the last whole 16",
        (BOOL, KEYS_256, PART_16),
        Steps(added=last_columns_kept),
        on("B1-H2-Lq12-Lk271-D16/bool"),
    ),
    Mutant(
        "mask_of_first_element",
        "the float mask of the first batch element serves for all",
        (FLOAT, BATCH_4, ONE_QUERY),
        Steps(added=mask_of_first_element),
        on("B4-H2-Lq1-Lk40-D16/float"),
    ),
    Mutant(
        "window_from_whole_block",
        "the window begins where a block of keys begins",
        (WINDOW, KEYS_512, FEATURES_128),
        Steps(added=window_from_whole_block),
        on("B1-H1-Lq40-Lk576-D128/causal:lower_right+window:40"),
    ),
    Mutant(
        "decode_pairs",
        "the second head of each pair gets the output of the first",
        (ONE_QUERY, EVEN_GROUP, WHOLE_256),
        Steps(finish=second_heads_repeat),
        on("B1-H4-Hkv2-Lq1-Lk256-D16/none"),
    ),
    Mutant(
        "wide_backward_sums",
        "the row sums of the first batch element serve for all gradients of q",
        (FEATURES_256, BATCH, OF_Q),
        Steps(give=only("q", sums_of_first_element)),
        on("B2-H1-L16-D256/causal/float32/cpu/both", wants="qkv"),
    ),
    Mutant(
        "gradient_of_v_contiguous",
        "the gradient of v reads that of the output as contiguous",
        (OF_V_STRIDED, SHARED, OTHER_WIDTH),
        Steps(give=only("v", of_upstream_as_contiguous)),
        on("B1-H4-Hkv2-L16-D8-Dv24/causal/float32/cpu/both", wants="qkv", exchanged=True),
    ),
    Mutant(
        "packed_rows",
        "a row of a packed projection is taken to hold as many key as query heads",
        (ROWS_APART, SHARED, HALF),
        Steps(read=rows_of_equal_heads),
        on("B1-H4-Hkv2-L24-D16/none/float16/cpu/forward/BL3HD"),
    ),
    Mutant(
        "threads_merged_by_mean",
        "the halves of the keys, one for each thread, are merged by their mean",
        (THREADS, ONE_QUERY, KEYS_512),
        Steps(weigh=halves_averaged),
        on("B1-H2-Lq1-Lk600-D16/padding:350/float32/cpu/forward/threads2"),
    ),
    Mutant(
        "rows_of_second_thread",
        "the causal mask counts the rows of the second thread from 0",
        (THREADS, CAUSAL, QUERIES_128),
        Steps(added=restarted_rows),
        on("B1-H1-L128-D16/causal/float32/cpu/forward/threads2"),
    ),
    Mutant(
        "sum_not_rescaled",
        "the running sum is not rescaled when the maximum rises",
        (KEYS_256, SHARED, LATE_MAXIMUM),
        Steps(weigh=sum_not_rescaled),
        on("B1-H4-Hkv1-Lq8-Lk256-D16/none", values="late"),
    ),
    Mutant(
        "maximum_from_low",
        "the running maximum starts at -10,000",
        (BATCH, PART_32, BELOW_START),
        Steps(weigh=starting_at(-1e4)),
        on("B2-H1-Lq8-Lk40-D16/none", values="lower"),
    ),
    Mutant(
        "expanded_as_contiguous",
        "expanded keys are read as if each head had its own",
        (ONLY_K_EXPANDED, OTHER_WIDTH, GRADED),
        Steps(read=k_as_contiguous),
        on("B1-H4-L16-D8-Dv24/none", expanded=True, wants="qv"),
    ),
    Mutant(
        "output_in_order_of_q",
        "the output is written as contiguous, and returned with the strides of q",
        (EXCHANGED, EQUAL_WIDTH, BFLOAT16),
        Steps(finish=output_in_order_of_q),
        on("B1-H3-L24-D16/none/bfloat16/cpu/forward/BLHD"),
    ),
    Mutant(
        "frozen_queries_gradient",
        "the gradient of k is that of the first head of the group",
        (NOT_OF_Q, SHARED, WINDOW),
        Steps(give=only("k", first_of_group)),
        on("B1-H4-Hkv2-L32-D16/window:9/float32/cpu/both", wants="kv"),
    ),
    Mutant(
        "training_without_padding",
        "padding is forgotten where gradients are wanted",
        (GRADED, PADDED, OTHER_WIDTH),
        Steps(added=seeing(padding=None)),
        on("B2-H2-L24-D8-Dv24/padding:6,20", wants="qkv"),
    ),
    Mutant(
        "stale_tail",
        "the last block is read whole, with keys of the call before",
        (LONGER_BEFORE, PART_32, UNMASKED),
        Steps(added=stale_tail_added, read=stale_tail_read),
        on("B1-H2-Lq8-Lk40-D16/none", before="attention/scaled_dot/B1-H2-Lq8-Lk64-D16/none"),
    ),
    Mutant(
        "stale_keys",
        "keys are expanded once for each address",
        (REFILLED, SHARED, UNGRADED),
        Steps(read=stale_keys),
        on("B1-H4-Hkv2-L24-D16/none", before="same"),
    ),
    Mutant(
        "first_block_without_keys",
        "rows that see none of the first block are NaN",
        (HALF, WINDOW, STARTS_LATE),
        Steps(weigh=first_block_without_keys),
        on("B1-H1-L100-D16/causal+window:16/bfloat16"),
    ),
)
"""Faults of three properties."""

MUTANTS = (*TWO, *THREE)


def fired(
    case: Case,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    upstream: Tensor | None = None,
    before: Earlier | None = None,
) -> set[str]:
    """Return the names of the faults that apply to a call, under torch's present threads and grad mode.

    upstream: the gradient of the output in a backward pass. before: of the call before (:func:`earlier`).
    Without them a call shows no fault of gradients, and none of the order of calls.
    """
    call = Call(case, q, k, v, upstream=upstream, before=before)
    return {mutant.name for mutant in MUTANTS if mutant.when(call)}


# The backends.

_KEPT: dict[str, Earlier] = {}
"""By the name of a kernel: what it keeps of its last call, as kernels with a global workspace do."""


def remembers(mutant: Mutant) -> bool:
    """Return whether a fault depends on the call before."""
    return bool({LONGER_BEFORE, REFILLED} & {*mutant.properties})


def prepare(setup: Setup, mutant: Mutant | None) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Make the function of a case."""
    case = setup.case
    added_of(case)

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if mutant is None or not remembers(mutant):
            return attend(Call(case, q, k, v), mutant)
        before = _KEPT.get(mutant.name)
        _KEPT[mutant.name] = earlier(k, v)
        return attend(Call(case, q, k, v, before=before), mutant)

    return kernel


def prepare_watched(setup: Setup) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Make the right kernel that writes down which faults its calls would show."""
    case = setup.case

    def note(q: Tensor, k: Tensor, v: Tensor, upstream: Tensor | None, before: Earlier | None) -> None:
        names = fired(case, q, k, v, upstream=upstream, before=before)
        if names and FIRED in os.environ:
            with Path(os.environ[FIRED]).open("a") as file:
                file.writelines(f"{name}\t{case_id(case)}\n" for name in sorted(names))

    def kernel(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        import torch

        before = _KEPT.get("watched")
        _KEPT["watched"] = earlier(k, v)
        note(q, k, v, None, before)
        out = attend(Call(case, q, k, v))
        if out.requires_grad:

            def watch(gradient: Tensor) -> None:
                with torch.enable_grad():
                    note(q, k, v, gradient.detach(), before)

            out.register_hook(watch)
        return out

    return kernel


def _backend(name: str, summary: str, made: Callable[[Setup], Any]) -> Backend:
    return Backend(
        name=name,
        summary=summary,
        prepare=made,
        rules=("scaled_dot",),
        dtypes=("float32", "float16", "bfloat16"),
        devices=("cpu",),
        passes=PASSES,
        quadratic_copies=4,
        masks_by_head=True,
    )


@hookimpl
def attnbench_backends() -> list[Backend]:
    """Return the right kernel, the watched one, and the faulty ones."""
    right = _backend(
        "mutants_right", "the plain kernel that the mutants change", partial(prepare, mutant=None)
    )
    watched = _backend("mutants_watched", "the same; notes the faults that it would show", prepare_watched)
    faulty = [_backend(f"mutant_{one.name}", one.summary, partial(prepare, mutant=one)) for one in MUTANTS]
    return [right, watched, *faulty]


# The self-check.

RIGHT_ON = (
    "B1-H2-L24-D16/none/float32/cpu/both",
    "B2-H4-Hkv2-Lq20-Lk33-D13-Dv8/causal/float32/cpu/both",
    "B2-H2-Lq20-Lk12-D16/causal:lower_right/float32/cpu/both",
    "B1-H3-Hkv1-L30-D8/causal+window:7/float32/cpu/both/BLHD",
    "B2-H2-Lq9-Lk30-D8/window:6+padding:0,21/float32/cpu/both",
    "B2-H2-L16-D8/causal+bool:per_head/float32/cpu/both",
    "B2-H2-L16-D8/padding+float/float32/cpu/both/BL3HD",
    "B1-H2-L24-D16/causal/float16/cpu/both",
    "B1-H2-L24-D16/float/bfloat16/cpu/both",
)
LARGEST_ERROR = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}
LEAST_DIFFERENCE = 0.05
"""Root mean squares of errors, by that of the right result."""


def inputs(witness: Witness, case: Case, seed: int = 1) -> list[Tensor]:
    """Make q, k and v of a witness: values in the dtype and strides of the case."""
    import torch

    draw = torch.Generator().manual_seed(seed)
    shapes = {
        "q": (case.B, case.H, case.Lq, case.D),
        "k": (case.B, case.Hkv, case.Lk, case.D),
        "v": (case.B, case.Hkv, case.Lk, case.Dv),
    }
    made = {name: torch.randn(shape, generator=draw) for name, shape in shapes.items()}
    shift = {"low": (300**0.5, -1.0), "lower": (20_000**0.5, -1.0), "large": (600.0, 1.0)}
    if witness.values in shift:
        size, sign = shift[witness.values]
        each = size / case.D**0.25
        made["q"] += each
        made["k"] += sign * each
    if witness.values == "late":
        made["q"] += 2
        made["k"][:, :, -1] += 3
    if witness.expanded:
        made["k"] = made["k"][:, :1].expand(shapes["k"])
    strides = input_strides(case)
    laid = []
    for name, x in made.items():
        x = x.to(getattr(torch, case.dtype))
        if name in strides:
            count = 1 + sum((n - 1) * s for n, s in zip(x.shape, strides[name], strict=True))
            x = torch.zeros(count, dtype=x.dtype).as_strided(x.shape, strides[name]).copy_(x)
        if name == "k" and witness.offset:
            apart = torch.zeros(x.numel() + witness.offset, dtype=x.dtype)
            x = apart[witness.offset :].view(x.shape).copy_(x)
        laid.append(x.requires_grad_(name in witness.wants))
    return laid


def results(witness: Witness, mutant: Mutant | None) -> tuple[bool, list[Tensor]]:
    """Return whether the fault applied in the call of a witness, and the output with the gradients."""
    import torch

    case = parse_case(witness.case)
    torch.set_num_threads(case.threads)
    q, k, v = inputs(witness, case)
    before = None
    if witness.before == "same":
        before = earlier(k, v)
        k.copy_(inputs(witness, case, seed=2)[1])
    elif witness.before:
        longer = parse_case(witness.before)
        before = earlier(*inputs(Witness(witness.before), longer, seed=2)[1:])
    call = Call(case, q, k, v, before=before)
    out = attend(call, mutant)
    applied = mutant is not None and mutant.when(call)
    if not witness.wants:
        return applied, [out]
    shape = (case.B, case.Lq, case.H, case.Dv) if witness.exchanged else out.shape
    upstream = torch.randn(shape, generator=torch.Generator().manual_seed(3)).to(out.dtype)
    upstream = upstream.transpose(1, 2) if witness.exchanged else upstream
    applied = mutant is not None and mutant.when(replace(call, upstream=upstream))
    wanted = [x for x in (q, k, v) if x.requires_grad]
    return applied, [out.detach(), *torch.autograd.grad(out, wanted, upstream)]


def difference(found: list[Tensor], right: list[Tensor]) -> float:
    """Return the largest root mean square of the differences, by that of the right tensor; inf for NaN."""
    largest = 0.0
    for a, b in zip(found, right, strict=True):
        if not a.equal(b):
            unlike = (a.double() - b.double()).square().mean().sqrt() / b.double().square().mean().sqrt()
            largest = max(largest, math.inf if unlike.isnan() else float(unlike))
    return largest


def kept_pair(case: Case, b: int, i: int, j: int) -> bool:
    """Return whether causal, window and padding keep a pair, by their definitions."""
    mask, at = case.mask, i if case.mask.causal == "upper_left" else i + case.Lk - case.Lq
    lengths = key_lengths(case)
    return (
        (mask.causal is None or j <= at)
        and (mask.window is None or abs(at - j) < mask.window)
        and (lengths is None or j < lengths[b])
    )


def in_float64(case: Case, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Compute attention row by row in float64, each row with the keys that it keeps."""
    import torch

    rows = []
    numbers = added_rows(case, np.arange(case.Lq))
    keep = keep_rows(case, np.arange(case.Lq)) if case.mask.explicit == "bool" else None
    for b, h, i in np.ndindex(case.B, case.H, case.Lq):
        # Explicit masks are random, so they are read; all other parts are computed again.
        kept = [j for j in range(case.Lk) if kept_pair(case, b, i, j)]
        of_head = h if case.mask.per_head else 0
        if keep is not None:
            kept = [j for j in kept if keep[b, of_head, i, j]]
        more = np.zeros(case.Lk) if numbers is None else numbers[b, of_head, i]
        kept = [j for j in kept if more[j] > -math.inf]
        scores = k[b, h // case.group, kept] @ q[b, h, i] / case.D**0.5 + torch.tensor(more[kept])
        rows.append(scores.softmax(0) @ v[b, h // case.group, kept])
    return torch.stack(rows).view(case.B, case.H, case.Lq, case.Dv)


def error_of_right(words: str) -> float:
    """Return the error of the right kernel and its gradients against float64."""
    import torch

    witness = on(words, wants="qkv")
    case = parse_case(witness.case)
    _, found = results(witness, None)
    wide = [x.detach().double().requires_grad_() for x in inputs(witness, case)]
    out = in_float64(case, *wide)
    draw = torch.Generator().manual_seed(3)
    upstream = torch.randn(out.shape, generator=draw).to(getattr(torch, case.dtype)).double()
    return difference(found, [out.detach(), *torch.autograd.grad(out, wide, upstream)])


def main() -> int:
    """Print the table; return 1 if the right kernel is wrong, or a fault does not show."""
    wrong = 0
    for words in RIGHT_ON:
        error, limit = error_of_right(words), LARGEST_ERROR[parse_case(on(words).case).dtype]
        wrong += error > limit
        print(f"right kernel | {words} | {error:.1e}{'' if error <= limit else ' TOO LARGE'}")
    print("\nname | properties | witness | error")
    for mutant in MUTANTS:
        applied, found = results(mutant.witness, mutant)
        error = difference(found, results(mutant.witness, None)[1])
        shown = applied and error >= LEAST_DIFFERENCE
        wrong += not shown
        witness = mutant.witness
        how = {"values": witness.values, "wants": witness.wants, "offset": witness.offset or ""}
        said = [f"{name} {value}" for name, value in how.items() if value not in ("", "normal")]
        said += [name for name in ("exchanged", "expanded") if getattr(witness, name)]
        said += [f"after {witness.before}"] if witness.before else []
        properties = "; ".join(one.words for one in mutant.properties)
        shape = ", ".join((witness.case.removeprefix("attention/scaled_dot/"), *said))
        print(f"{mutant.name} | {properties} | {shape} | {error:.2g}{'' if shown else ' NOT SHOWN'}")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
