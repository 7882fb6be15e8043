"""A mask tensor in attnbench's words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
    Prefix,
    Reach,
    Tree,
)
from attnbench.types.mask_words import Align, Window

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
            found = _ranges_words(pairs, B, H) or _structure_words(pairs, B, H)
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
    Lq = low.shape[1]
    lengths = np.broadcast_to(high.max(axis=1), B)
    # A row that keeps nothing begins after the keys that there are.
    begin = np.where(high > low, low, np.broadcast_to(high.max(axis=1)[:, None], low.shape))
    for padding in (None, tuple(int(length) for length in lengths)):
        for causal in (None, "upper_left", "lower_right"):
            plain = Mask(causal=causal, padding=padding)
            yield plain
            position = np.arange(Lq) + plain.query_offset(Lq, Lk)
            behind = (position - begin + 1)[(begin > 0) & (position >= begin)]
            width = int(behind.min() if behind.size else (high - position).max())
            if width > 0:
                yield Mask(causal=causal, window=width, padding=padding)


MOST_PAIRS = 1 << 24
"""A mask of more pairs is not held against words of a structure: that would take the program's time."""
MOST_DRAFTS = 64
BLOCK_SIZES = (256, 128, 64, 32, 16, 8)
ALIGNS: tuple[Align | None, ...] = (None, "upper_left", "lower_right")


def _structure_words(kept: Tensor, B: int, H: int) -> str | None:
    """Return the words for a structure of kept pairs (B or 1, Lq, Lk), or None.

    Where batch elements differ, each may have documents of its own, drawn in a case. Blocks are drawn too.
    """
    Lq, Lk = kept.shape[1:]
    if Lq * Lk > MOST_PAIRS:
        return None
    if not bool((kept == kept[:1]).all()):
        return None if kept.numel() > MOST_PAIRS else _own_documents(kept.cpu().numpy())
    pairs = kept[0].cpu().numpy()
    tree = _tree(pairs)
    for mask in (*_structured_masks(pairs), *([tree] if tree else [])):
        if _keeps(mask, pairs):
            return mask_text(mask)
    return _blocks(pairs)


def _keeps(mask: Mask, pairs: NDArray[np.bool_]) -> bool:
    """Return whether a mask keeps just these pairs (Lq, Lk)."""
    Lq, Lk = pairs.shape
    try:
        case = Case("attention", "scaled_dot", 1, 1, 1, Lq, Lk, 1, 1, mask=mask)
    except BadCase:
        return False
    found = keep_rows(case, np.arange(Lq))
    return bool(pairs.all()) if found is None else np.array_equal(found[0, 0], pairs)


def _own_documents(kept: NDArray[np.bool_]) -> str | None:
    """Return the words where each element (B, Lq, Lk) has documents of its own; None where one has none."""
    shared: set[Mask] | None = None
    for pairs in kept:
        masks = (
            mask
            for mask in _structured_masks(pairs)
            if any(isinstance(word, Document) for word in mask.words)
        )
        fits = {mask.unlisted() for mask in masks if _keeps(mask, pairs)}
        shared = fits if shared is None else shared & fits
    return min(map(mask_text, shared), key=len) if shared else None


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


def _structured_masks(pairs: NDArray[np.bool_]) -> Iterator[Mask]:
    Lq, Lk = pairs.shape
    for causal in map(_causal, ALIGNS):
        position = np.arange(Lq) + causal.query_offset(Lq, Lk)
        for words in _structures(pairs, position):
            yield mask_of([*causal.words, *words])


def _structures(pairs: NDArray[np.bool_], position: Ints) -> Iterator[tuple[MaskWord, ...]]:
    """Yield words that may keep these pairs (Lq, Lk), beside a causal mask that puts queries at positions."""
    Lk = pairs.shape[1]
    some = pairs.any(1)
    if not some.any():
        return
    low, high = pairs.argmax(1), Lk - pairs[:, ::-1].argmax(1)
    starts = sorted({0, *low[some].tolist()})
    lengths = tuple(end - start for start, end in zip(starts, [*starts[1:], Lk], strict=True))
    if len(lengths) > 1:
        yield (Chunked(lengths[0]),)
    yield (Document(lengths),)
    far = position - low + 1
    width = int(far[some & (low > 0)].min(initial=Lk))
    # Behind a window or not, the first query of a document sees its own key first.
    begins = sorted({0, *position[some & (low == position) & (low >= 0)].tolist()})
    own = tuple(end - start for start, end in zip(begins, [*begins[1:], Lk], strict=True))
    if far[some].max() > 0:
        yield Window(int(far[some].max())), Document(own)
    behind, ahead = (position - low)[some & (low > 0)], (high - 1 - position)[some & (high < Lk)]
    left, right = (int(side.max()) if side.size else None for side in (behind, ahead))
    if (left is None or left >= 0) and (right is None or right >= 0):
        yield (Reach(left, right),)
    kept_last = np.flatnonzero(pairs[-1])
    if len(kept_last) > 1 and kept_last[-1] - kept_last[-2] > 1:
        yield (Dilated(int(kept_last[-1] - kept_last[-2])),)
    # Leading keys that every query keeps, and those up to the last query's own.
    shown = int(np.where(pairs.all(1), Lk, (~pairs).argmax(1)).min())
    last = min(int(position[-1]), Lk - 1)
    past = pairs[-1, : last + 1][::-1]
    recent = 0 if past.all() else int((~past).argmax())
    first = int((~pairs[-1]).argmax())
    if shown:
        yield (Prefix(shown),)
    if recent and first:
        yield Window(recent), First(first)
    if recent and shown:
        yield Window(recent), Global(shown)
    images: list[tuple[int, int]] = []
    for end in sorted({*high[some & (high > position + 1)].tolist()}):
        start = int(position[high == end].min())
        if start < sum(images[-1] if images else (0, 0)):
            return
        images.append((start, int(end) - start))
    if images:
        image = Image(tuple(images))
        yield (image,)
        if width > 0:
            yield Window(width), image
        outside = np.all([(position < start) | (position >= start + n) for start, n in images], axis=0)
        if (begins_later := low[some & outside & (low > 0)]).size:
            yield Chunked(int(begins_later.min())), image


def _tree(pairs: NDArray[np.bool_]) -> Mask | None:
    """Return the tree of drafts that these pairs may be, if all queries are drafts behind a text."""
    Lq, Lk = pairs.shape
    if not 2 <= Lq <= min(MOST_DRAFTS, Lk - 1):
        return None
    drafts = np.tril(pairs[:, Lk - Lq :], -1)
    parents = tuple(int(np.flatnonzero(row)[-1]) + 1 if row.any() else 0 for row in drafts)
    return Mask(more=(Tree(parents),))
