"""A mask tensor in attnbench's words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from attnbench.masks import keep_rows, kept_ranges
from attnbench.types.case import Case
from attnbench.types.errors import BadCase
from attnbench.types.mask import Mask, mask_of, mask_text
from attnbench.types.mask_base import MaskWord
from attnbench.types.mask_structures import (
    Blocks,
    Chunked,
    Dilated,
    Document,
    First,
    Global,
    Image,
    LeftPadding,
    Prefix,
    Reach,
    Tree,
)
from attnbench.types.mask_words import Align, Causal, Padding, Window

if TYPE_CHECKING:
    from torch import Tensor

Ints = NDArray[np.integer[Any]]


MOST_VIEWS = 256
"""The words of so many views of a mask are kept: it may change in every step of a program."""


@dataclass(frozen=True)
class ClassifiedMask:
    """A mask as in an id. kept: of an explicit one, about the share of pairs that it keeps."""

    mask: str
    kept: float | None = None


class MaskReader:
    """Reads masks, each once: many layers share one."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[ref[Any], dict[object, ClassifiedMask]]] = {}

    def words(self, mask: Tensor, B: int, H: int, Lq: int, Lk: int) -> ClassifiedMask:
        """Return :func:`mask_words` of a tensor, which may change in place afterwards."""
        try:
            version = mask._version
        except RuntimeError:  # It was made in inference mode.
            return mask_words(mask, B, H, Lq, Lk)
        base = mask if mask._base is None else mask._base
        view = version, mask.storage_offset(), mask.shape, mask.stride(), B, H, Lq, Lk
        return self.made(base, view, lambda: mask_words(mask, B, H, Lq, Lk))

    def made(self, owner: Any, view: object, make: Callable[[], ClassifiedMask]) -> ClassifiedMask:
        """Return the words for a view of an object, made once in the object's life."""
        # By identity: tensors compare by their numbers. torch's dictionary for this takes several µs.
        key = id(owner)
        known = self._known.get(key)
        if known is None or known[0]() is not owner:
            known = self._known[key] = ref(owner, lambda _: self._known.pop(key, None)), {}
        views = known[1]
        if (found := views.get(view)) is None:
            if len(views) >= MOST_VIEWS:
                views.clear()
            found = views[view] = make()
        return found


def check_readable(mask: Tensor) -> None:
    """Raise ValueError while a program captures a CUDA graph: waiting for the device would end that."""
    import torch

    if mask.is_cuda and torch.cuda.is_current_stream_capturing():
        raise ValueError("its mask can't be read while a CUDA graph is captured")


def mask_words(mask: Tensor, B: int, H: int, Lq: int, Lk: int) -> ClassifiedMask:
    """Return the words for a mask that broadcasts to (B, H, Lq, Lk): True where a pair is kept, or added.

    An added mask drops a pair at -inf, and at the least number of its dtype, which transformers writes: but
    not a whole row, whose softmax is then uniform. A mask without another word is ``bool`` or
    ``float``; so is one that is learned.

    Raises:
        ValueError: see :func:`check_readable`.
    """
    import torch

    check_readable(mask)
    with torch.no_grad():
        learned, mask = mask.requires_grad, mask.detach()
        mask = mask.reshape((1,) * (4 - mask.dim()) + mask.shape) if mask.dim() < 4 else mask.flatten(0, -4)
        kept, adds = mask, mask.dtype != torch.bool
        if adds:
            kept = ~(mask <= torch.finfo(mask.dtype).min / 2)  # NaN isn't dropped.
            uniform = ~kept.any(-1) & (mask > float("-inf")).any(-1)
            adds = learned or bool(((mask != 0) & kept).any() | uniform.any())
        per_head = mask.shape[1] > 1 and not bool((mask == mask[:, :1]).all())
        found = None
        if not adds and not per_head:
            pairs = kept[:, 0].expand(-1, Lq, Lk)
            found = _ranges_words(pairs, B, H) or _structure_words(pairs, B)
        if found is not None:
            return ClassifiedMask(found)
        share = float(kept.expand(-1, -1, Lq, Lk).double().mean())
    word = ("float" if adds else "bool") + (":per_head" if per_head else "")
    return ClassifiedMask(word, round(20 * share) / 20)


def _ranges_words(kept: Tensor, B: int, H: int) -> str | None:
    """Return the words for kept pairs (B or 1, Lq, Lk); None where a row's are not one range of those."""
    import torch

    Lq, Lk = kept.shape[1:]
    low = kept.to(torch.uint8).argmax(-1)
    high = low + kept.sum(-1)
    keys = torch.arange(Lk, device=kept.device)
    between = (keys >= low[..., None]) & (keys < high[..., None])
    if not bool((kept == between).all()):
        return None
    lows, highs = low.cpu().numpy(), high.cpu().numpy()
    for mask in _candidates(lows, highs, B, Lk):
        case = Case("attention", "scaled_dot", B, H, H, Lq, Lk, 1, 1, mask=mask)
        wanted_low, wanted_high = kept_ranges(case, np.arange(Lq))
        empty = (wanted_high <= wanted_low) & (highs <= lows)
        if (empty | ((wanted_low == lows) & (wanted_high == highs))).all():
            return mask_text(mask)
    return None


def _candidates(low: Ints, high: Ints, B: int, Lk: int) -> Iterator[Mask]:
    """Yield the masks that may have these ranges (B or 1, Lq), the simplest first."""
    Lq, some = low.shape[1], high > low
    lengths = np.broadcast_to(high.max(axis=1), B)
    # A row that keeps nothing begins after the keys that there are.
    begin = np.where(some, low, np.broadcast_to(high.max(axis=1)[:, None], low.shape))
    dropped = np.where(some, low, Lk).min(axis=1)
    for left, padding, causal in product((False, True), (None, _listed(lengths)), ALIGNS):
        more = (LeftPadding(_listed(np.broadcast_to(dropped, B))),) if left else ()
        plain = Mask(causal=causal, padding=padding, more=more)
        yield plain
        position = np.arange(Lq) + plain.query_offset(Lq, Lk)
        first = dropped[:, None] if left else 0
        behind = (position - begin + 1)[(begin > first) & (position >= begin)]
        width = int(behind.min() if behind.size else (high - position).max())
        if width > 0:
            yield Mask(causal=causal, window=width, padding=padding, more=more)


def _listed(numbers: Ints) -> tuple[int, ...]:
    return tuple(numbers.tolist())


MOST_PAIRS = 1 << 24
"""A mask of more pairs is not held against words of a structure: that would take the program's time."""
MOST_DRAFTS = 64
BLOCK_SIZES = (256, 128, 64, 32, 16, 8)
SOME_ROWS = 8
"""Queries whose keys tell most wrong masks apart, before all pairs are compared."""
ALIGNS: tuple[Align | None, ...] = (None, "upper_left", "lower_right")


def _structure_words(kept: Tensor, B: int) -> str | None:
    """Return the words for a structure of kept pairs (B or 1, Lq, Lk), or None.

    Batch elements may differ by padding on either side. Where they differ by more, each may have documents of
    its own, drawn in a case. Blocks are drawn too.
    """
    if kept.numel() > MOST_PAIRS:
        return None
    every: NDArray[np.bool_] = (kept[:1] if bool((kept == kept[:1]).all()) else kept).cpu().numpy()
    seen = np.asarray(every.any(1))
    lengths = np.where(seen.any(1), every.shape[2] - seen[:, ::-1].argmax(1), 0)
    dropped = np.where(seen.any(1), seen.argmax(1), every.shape[2])
    pairs, keys = every[(lengths - dropped).argmax()], int(lengths.max())
    at = np.arange(every.shape[2])
    inside = (at >= dropped[:, None, None]) & (at < lengths[:, None, None])
    if not np.array_equal(every, pairs & inside):
        return _own_documents(every, lengths)
    right = Padding(_listed(np.broadcast_to(lengths, B)))
    left = LeftPadding(_listed(np.broadcast_to(dropped, B)))
    for mask in _structured_masks(pairs, keys):
        for padding in ([], [right], [left], [left, right]):
            whole = mask_of([*mask.words, *padding])
            if _keeps(whole, every, B):
                return mask_text(whole)
    return _blocks(pairs) if len(every) == 1 else None


def _keeps(mask: Mask, every: NDArray[np.bool_], B: int) -> bool:
    """Return whether a mask of B elements keeps just these pairs (B or 1, Lq, Lk)."""
    _, Lq, Lk = every.shape
    try:
        case = Case("attention", "scaled_dot", B, 1, 1, Lq, Lk, 1, 1, mask=mask)
    except BadCase:
        return False
    found = keep_rows(case, np.arange(Lq))
    return bool(every.all() if found is None else (found[:, 0] == every).all())


def _own_documents(every: NDArray[np.bool_], lengths: Ints) -> str | None:
    """Return the words where each element (B, Lq, Lk) has documents of its own; None where one has none."""
    shared: set[Mask] | None = None
    for pairs, keys in zip(every, lengths.tolist(), strict=True):
        padding = () if keys == pairs.shape[1] else (Padding((keys,)),)
        fits = {
            mask.unlisted()
            for mask in _structured_masks(pairs, keys)
            if any(isinstance(word, Document) for word in mask.words)
            and _keeps(mask_of([*mask.words, *padding]), pairs[None], 1)
        }
        shared = fits if shared is None else shared & fits
    if not shared:
        return None
    padded = [] if lengths.min() == every.shape[2] else [Padding(tuple(lengths.tolist()))]
    return mask_text(mask_of([*min(shared, key=_unlikely).words, *padded]))


def _blocks(pairs: NDArray[np.bool_]) -> str | None:
    """Return the words for square blocks that are kept or dropped whole, the largest that there are."""
    Lq, Lk = pairs.shape
    for size in BLOCK_SIZES:
        edges = np.arange(0, Lq, size), np.arange(0, Lk, size)
        kept = np.logical_or.reduceat(np.logical_or.reduceat(pairs, edges[0], axis=0), edges[1], axis=1)
        whole = kept.repeat(size, 0).repeat(size, 1)[:Lq, :Lk]
        for causal in map(_causal, ALIGNS):
            case = Case("attention", "scaled_dot", 1, 1, 1, Lq, Lk, 1, 1, mask=causal)
            by_causal = keep_rows(case, np.arange(Lq))
            seen = np.ones_like(pairs) if by_causal is None else by_causal[0, 0]
            share = float(whole[seen].mean()) if seen.any() else 1.0
            if min(kept.shape) > 1 and share < 1 and np.array_equal(whole & seen, pairs):
                percent = min(95, max(5, 5 * round(20 * share)))
                return mask_text(mask_of([*causal.words, Blocks(size, percent)]))
    return None


def _causal(align: Align | None) -> Mask:
    return Mask(causal=align)


def _structured_masks(pairs: NDArray[np.bool_], keys: int) -> list[Mask]:
    """Return masks that may keep these pairs (Lq, Lk) of the first so many keys, those of few words first.

    Each has at most one word for distances, one for groups of tokens, and one that lifts these. The numbers
    of a word are read where no other word decides; whether they fit is asked of a few queries here.
    """
    Lq, Lk = pairs.shape
    rows = np.unique(np.linspace(0, Lq - 1, SOME_ROWS).astype(int))
    some = pairs[rows, :keys]
    everything: NDArray[np.bool_] = np.ones_like(some)
    found: dict[Mask, None] = {}
    for causal in map(_causal, ALIGNS):
        case = Case("attention", "scaled_dot", 1, 1, 1, Lq, Lk, 1, 1, mask=causal)
        position = np.arange(Lq) + case.query_offset
        kept = {word: word.keeps(case, rows)[0, 0, :, :keys] for word in causal.words}
        for lifting in (None, *_lifting(pairs, position)):
            known = pairs
            if lifting is not None:
                known = pairs & ~lifting.keeps(case, np.arange(Lq))[0, 0]
            near, groups = _near(known, position, bool(causal.words)), _groups(pairs, known, position, keys)
            for words in product((None, *near), (None, *groups), (lifting,)):
                given = [word for word in words if word is not None]
                kept |= {word: word.keeps(case, rows)[0, 0, :, :keys] for word in given if word not in kept}
                mask = mask_of([*causal.words, *given])
                each = (reduce(np.logical_or, (kept[word] for word in group)) for group in mask.groups)
                if given and np.array_equal(reduce(np.logical_and, each, everything), some):
                    found[mask] = None
    return sorted(found, key=_unlikely)


def _unlikely(mask: Mask) -> tuple[bool, int, bool, int]:
    """Order masks that say the same: a tree may say documents, and a reach a causal window."""
    kinds = {type(word) for word in mask.words}
    return Tree in kinds, len(kinds - {Causal}), Reach in kinds, len(mask_text(mask))


def _lifting(pairs: NDArray[np.bool_], position: Ints) -> Iterator[MaskWord]:
    """Yield words whose keys may be seen whatever other words say."""
    Lk = pairs.shape[1]
    run = np.where(pairs.all(1), Lk, (~pairs).argmax(1))
    # Leading keys that every query keeps, if it keeps the first; those of the last queries.
    counts = {int(run[run > 0].min(initial=Lk)), int(run[-1]), int(run[-SOME_ROWS // 2 :].min())}
    for count in sorted(count for count in counts if 0 < count < Lk):
        yield from (Prefix(count), First(count), Global(count))
    images: list[tuple[int, int]] = []
    high = np.where(pairs.any(1), Lk - pairs[:, ::-1].argmax(1), 0)
    for end in sorted({*high[high > position + 1].tolist()}):
        start = int(position[high == end].min())
        if start < sum(images[-1] if images else (0, 0)):
            return
        images.append((start, end - start))
    if images:
        yield Image(tuple(images))


def _near(known: NDArray[np.bool_], position: Ints, causal: bool) -> Iterator[MaskWord]:
    """Yield words for the farthest keys that are seen."""
    some = known.any(1)
    if not some.any():
        return
    behind = int((position - known.argmax(1))[some].max())
    ahead = int((known.shape[1] - 1 - known[:, ::-1].argmax(1) - position)[some].max())
    if (width := behind if causal else max(behind, ahead)) >= 0:
        yield Window(width + 1)
    if causal:
        return
    for left, right in ((behind, ahead), (behind, None), (None, ahead)):
        if min(side for side in (left, right) if side is not None) >= 0:
            yield Reach(left, right)


def _groups(
    pairs: NDArray[np.bool_], known: NDArray[np.bool_], position: Ints, keys: int
) -> Iterator[MaskWord]:
    """Yield words for groups of tokens. known: the pairs that no word lifts."""
    Lk = pairs.shape[1]
    some = known.any(1)
    inside = (position > 0) & (position < keys)
    begins = position[inside][~pairs[inside, position[inside] - 1]]
    low = known.argmax(1)[some]
    # The first query of a group does not see the key before; without a window each query sees the first key.
    for starts in {(*low,), (*begins,), (*begins, *low[:1])}:
        bounds = sorted({0, *map(int, starts)})
        yield Document(tuple(end - start for start, end in zip(bounds, [*bounds[1:], Lk], strict=True)))
    sizes = {
        shared // part
        for shared in (int(np.gcd.reduce(low, initial=0)), int(np.gcd.reduce(begins, initial=0)))
        for part in range(1, SOME_ROWS)
        if shared and shared % part == 0
    }
    yield from map(Chunked, sorted(sizes))
    last = int(np.flatnonzero(some)[-1]) if some.any() else 0
    apart = int(np.gcd.reduce(np.abs(position[last] - np.flatnonzero(known[last])), initial=0))
    if apart > 1:
        yield Dilated(apart)
    # All queries are drafts, or the first key that a later query does not see is the first draft.
    later = np.arange(Lk) < position[:, None]
    unseen = np.flatnonzero((later & ~pairs).any(0))
    for count in {len(position), Lk - int(unseen[0]) if unseen.size else 0}:
        if 2 <= count <= min(MOST_DRAFTS, Lk, len(position)):
            drafts = np.tril(pairs[-count:, Lk - count :], -1)
            parents = [int(np.flatnonzero(row)[-1]) + 1 if row.any() else 0 for row in drafts]
            yield Tree(tuple(parents))
            # Beside a causal mask, first drafts that all others follow from are as good as text.
            shared = [n for n in range(1, count) if parents[:n] == [*range(n)] and min(parents[n:]) >= n]
            if shared:
                yield Tree(tuple(parent - shared[-1] for parent in parents[shared[-1] :]))
