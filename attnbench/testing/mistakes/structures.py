"""Mistakes in words of masks for a structure: documents, chunks, prefixes, trees and their kin."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from attnbench.testing.mistakes.masks import added_mask, positions, right_pairs
from attnbench.testing.mistakes.parts import Form, Mistake
from attnbench.types.case import Case
from attnbench.types.mask_base import MaskWord
from attnbench.types.mask_structures import (
    Blocks,
    Chunked,
    Counted,
    Dilated,
    Document,
    First,
    Global,
    Groups,
    Image,
    LeftPadding,
    Prefix,
    Reach,
    Tree,
)

Pairs = NDArray[np.bool_]

_LEFT = "left_padding:n drops the first n keys of a batch element, 0 to n - 1, and no other"
_OWN_DOCUMENT = "a query sees the keys of its own document alone; each ends before the next begins"
_OWN_CHUNK = "chunks begin at key 0, and a query at position p sees the keys j with j // n == p // n"
_FIRST = "the first n keys, 0 to n - 1, stay visible whatever the window says"
_GLOBAL = "the first n queries see every key, and every query sees the first n keys"
_DISTANCE = "a query at position p sees the keys j with (p - j) % n == 0"
_PREFIX = "every query sees the first n keys, 0 to n - 1, later ones than its own too"
_REACH = "reach:L,R keeps p - L <= j <= p + R, without counting the query's own key"
_ANCESTORS = "a draft sees itself, its parent, that one's parent and so on, and no other draft"
_IMAGE = "an image at s of n keys ends before key s + n"
_BLOCK = "the block of query i and key j is [i // size, j // size]"


def _changed(kind: type[MaskWord], make: Callable[[MaskWord, Case], Pairs]) -> Form:
    """Attention in which the words of one kind keep other pairs."""

    def keeps(word: MaskWord, case: Case) -> Pairs:
        return make(word, case) if type(word) is kind else right_pairs(word, case)

    def masked(case: Case) -> NDArray[np.float64]:
        if not any(type(word) is kind for word in case.mask.words):
            raise AssertionError(f"the mask has no {kind.word}")
        return added_mask(case, structure=keeps)

    return Form(mask=masked)


def _left_out(kind: type[MaskWord]) -> Form:
    """Attention that ignores a word."""

    def masked(case: Case) -> NDArray[np.float64]:
        if not any(type(word) is kind for word in case.mask.words):
            raise AssertionError(f"the mask has no {kind.word}")
        return added_mask(case, left_out=(kind.part,))

    return Form(mask=masked)


def _axes(case: Case) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The positions of queries, (Lq, 1), and keys, (Lk,)."""
    return positions(case), np.arange(case.Lk)


def _moved_ends(by: int) -> Callable[[MaskWord, Case], Pairs]:
    """Documents whose ends, but the last, lie elsewhere."""

    def kept(word: MaskWord, case: Case) -> Pairs:
        assert isinstance(word, Groups)
        at, keys = _axes(case)
        pairs = []
        for its in word.ranges(case):
            ends = np.array([end + by for _, end in its[:-1]])
            pairs.append(np.searchsorted(ends, at, "right") == np.searchsorted(ends, keys, "right"))
        return np.stack(pairs)

    return kept


def _document_without_beginning(word: MaskWord, case: Case) -> Pairs:
    low, high = word.bounds(case, np.arange(case.Lq))
    return np.asarray(np.arange(case.Lk) < np.where(high > low, high, 0)[..., None])


def _document_of_the_first(word: MaskWord, case: Case) -> Pairs:
    return right_pairs(word, case)[:1]


def _left_padding(by: int) -> Callable[[MaskWord, Case], Pairs]:
    def kept(word: MaskWord, case: Case) -> Pairs:
        assert isinstance(word, LeftPadding)
        return np.arange(case.Lk) >= (word.dropped(case) + by)[:, None, None]

    return kept


def _padding_on_the_right(word: MaskWord, case: Case) -> Pairs:
    return right_pairs(word, case)[..., ::-1]


def _counted(word: MaskWord) -> int:
    assert isinstance(word, Counted)
    return word.keys


def _chunk_behind(word: MaskWord, case: Case) -> Pairs:
    at, keys = _axes(case)
    return (keys <= at) & (at - keys < _counted(word))


def _chunk_of_rows(word: MaskWord, case: Case) -> Pairs:
    return np.asarray(np.arange(case.Lq)[:, None] // _counted(word) == np.arange(case.Lk) // _counted(word))


def _moved_chunks(by: int) -> Callable[[MaskWord, Case], Pairs]:
    """Chunks whose boundaries lie elsewhere."""

    def kept(word: MaskWord, case: Case) -> Pairs:
        at, keys = _axes(case)
        return np.asarray((at - by) // _counted(word) == (keys - by) // _counted(word))

    return kept


def _first_keys(by: int) -> Callable[[MaskWord, Case], Pairs]:
    def kept(word: MaskWord, case: Case) -> Pairs:
        return np.broadcast_to(np.arange(case.Lk) < _counted(word) + by, (case.Lq, case.Lk))

    return kept


def _global_tokens(by: int) -> Callable[[MaskWord, Case], Pairs]:
    def kept(word: MaskWord, case: Case) -> Pairs:
        at, keys = _axes(case)
        count = _counted(word) + by
        return (keys < count) | ((at >= 0) & (at < count))

    return kept


def _dilated_from_key_0(word: MaskWord, case: Case) -> Pairs:
    return np.broadcast_to(np.arange(case.Lk) % _counted(word) == 0, (case.Lq, case.Lk))


def _reach(change: Callable[[Reach], Reach]) -> Callable[[MaskWord, Case], Pairs]:
    def kept(word: MaskWord, case: Case) -> Pairs:
        assert isinstance(word, Reach)
        return right_pairs(change(word), case)

    return kept


def _more(side: int | None, by: int) -> int | None:
    return None if side is None else max(0, side + by)


def _tree(sees: Callable[[Tree], Pairs]) -> Callable[[MaskWord, Case], Pairs]:
    """A tree in which drafts see other drafts."""

    def kept(word: MaskWord, case: Case) -> Pairs:
        assert isinstance(word, Tree)
        at, keys = _axes(case)
        first, seen = case.Lk - len(word.parents), sees(word)
        inside = (at >= first) & (at < case.Lk) & (keys >= first)
        drafts = seen[np.clip(at - first, 0, len(seen) - 1), np.clip(keys - first, 0, len(seen) - 1)]
        return (keys < first) | (inside & drafts)

    return kept


def _earlier_drafts(word: Tree) -> Pairs:
    return np.tri(len(word.parents), dtype=bool)


def _parents_alone(word: Tree) -> Pairs:
    seen = np.eye(len(word.parents), dtype=bool)
    for draft, parent in enumerate(word.parents):
        if parent:
            seen[draft, parent - 1] = True
    return seen


def _transposed(word: MaskWord, case: Case) -> Pairs:
    return right_pairs(word, case).swapaxes(1, 2)


def _images_longer(by: int) -> Callable[[MaskWord, Case], Pairs]:
    def kept(word: MaskWord, case: Case) -> Pairs:
        assert isinstance(word, Image)
        at, keys = _axes(case)
        pairs = np.zeros((case.Lq, case.Lk), bool)
        for start, length in word.blocks:
            end = start + length + by
            pairs |= (at >= start) & (at < end) & (keys >= start) & (keys < end)
        return pairs

    return kept


def _one_image(word: MaskWord, case: Case) -> Pairs:
    """All images as one: the first sees the keys of the last."""
    assert isinstance(word, Image)
    at, keys = _axes(case)
    queries, seen = (
        np.any([(x >= start) & (x < start + length) for start, length in word.blocks], axis=0)
        for x in (at, keys)
    )
    return np.asarray(queries & seen)


STRUCTURES: tuple[Mistake, ...] = (
    Mistake(
        "left_padding_one_longer", "padding on the left, one key more", _LEFT,
        _changed(LeftPadding, _left_padding(1)),
    ),
    Mistake(
        "left_padding_one_shorter", "padding on the left, one key less", _LEFT,
        _changed(LeftPadding, _left_padding(-1)),
    ),
    Mistake(
        "left_padding_on_the_right", "padding on the right, of as many keys", _LEFT,
        _changed(LeftPadding, _padding_on_the_right),
    ),
    Mistake("left_padding_ignored", "no padding on the left", _LEFT, _left_out(LeftPadding)),
    Mistake(
        "document_ends_one_late", "documents that end one key late", _OWN_DOCUMENT,
        _changed(Document, _moved_ends(1)),
    ),
    Mistake(
        "document_ends_one_early", "documents that end one key early", _OWN_DOCUMENT,
        _changed(Document, _moved_ends(-1)),
    ),
    Mistake(
        "earlier_documents_seen", "the keys of earlier documents too", _OWN_DOCUMENT,
        _changed(Document, _document_without_beginning),
    ),
    Mistake(
        "documents_of_the_first_batch_element", "the documents of the first batch element for all",
        "each batch element has documents of its own", _changed(Document, _document_of_the_first),
    ),
    Mistake("documents_ignored", "no documents", _OWN_DOCUMENT, _left_out(Document)),
    Mistake(
        "chunk_behind_the_query", "a chunk counted back from the query, as a window", _OWN_CHUNK,
        _changed(Chunked, _chunk_behind),
    ),
    Mistake(
        "chunk_of_row_numbers", "chunks by the number of the query's row, not by its position", _OWN_CHUNK,
        _changed(Chunked, _chunk_of_rows),
    ),
    Mistake(
        "chunks_begin_one_early", "chunks that begin one key early", _OWN_CHUNK,
        _changed(Chunked, _moved_chunks(-1)),
    ),
    Mistake(
        "chunks_begin_one_late", "chunks that begin one key late", _OWN_CHUNK,
        _changed(Chunked, _moved_chunks(1)),
    ),
    Mistake("chunks_ignored", "no chunks", _OWN_CHUNK, _left_out(Chunked)),
    Mistake("prefix_one_more", "one of the first keys too many", _PREFIX, _changed(Prefix, _first_keys(1))),
    Mistake("prefix_one_less", "one of the first keys too few", _PREFIX, _changed(Prefix, _first_keys(-1))),
    Mistake("prefix_stays_causal", "a prefix that lifts nothing", _PREFIX, _left_out(Prefix)),
    Mistake("first_one_more", "one of the first keys too many", _FIRST, _changed(First, _first_keys(1))),
    Mistake("first_one_less", "one of the first keys too few", _FIRST, _changed(First, _first_keys(-1))),
    Mistake("first_keys_lost", "the first keys lost behind the window", _FIRST, _left_out(First)),
    Mistake(
        "global_queries_do_not_see_all", "global keys, but global queries like all others", _GLOBAL,
        _changed(Global, _first_keys(0)),
    ),
    Mistake("global_one_more", "one global token too many", _GLOBAL, _changed(Global, _global_tokens(1))),
    Mistake("global_one_less", "one global token too few", _GLOBAL, _changed(Global, _global_tokens(-1))),
    Mistake("global_tokens_lost", "no global tokens", _GLOBAL, _left_out(Global)),
    Mistake(
        "dilation_from_key_0", "every n-th key counted from key 0, not from the query", _DISTANCE,
        _changed(Dilated, _dilated_from_key_0),
    ),
    Mistake("dilation_ignored", "no dilation", _DISTANCE, _left_out(Dilated)),
    Mistake(
        "reach_sides_exchanged", "left and right exchanged", _REACH,
        _changed(Reach, _reach(lambda word: Reach(word.right, word.left))),
    ),
    Mistake(
        "reach_left_one_less", "one key too few on the left", _REACH,
        _changed(Reach, _reach(lambda word: Reach(_more(word.left, -1), word.right))),
    ),
    Mistake(
        "reach_left_one_more", "one key too many on the left", _REACH,
        _changed(Reach, _reach(lambda word: Reach(_more(word.left, 1), word.right))),
    ),
    Mistake(
        "reach_right_one_less", "one key too few on the right", _REACH,
        _changed(Reach, _reach(lambda word: Reach(word.left, _more(word.right, -1)))),
    ),
    Mistake(
        "reach_right_one_more", "one key too many on the right", _REACH,
        _changed(Reach, _reach(lambda word: Reach(word.left, _more(word.right, 1)))),
    ),
    Mistake(
        "reach_left_ignored", "no limit on the left", _REACH,
        _changed(Reach, _reach(lambda word: Reach(None, word.right))),
    ),
    Mistake(
        "reach_right_ignored", "no limit on the right", _REACH,
        _changed(Reach, _reach(lambda word: Reach(word.left, None))),
    ),
    Mistake("reach_ignored", "no limit on either side", _REACH, _left_out(Reach)),
    Mistake(
        "sibling_drafts_seen", "drafts see all drafts before them, siblings too", _ANCESTORS,
        _changed(Tree, _tree(_earlier_drafts)),
    ),
    Mistake(
        "grandparents_lost", "drafts see their parent and no earlier ancestor", _ANCESTORS,
        _changed(Tree, _tree(_parents_alone)),
    ),
    Mistake("tree_ignored", "no tree", _ANCESTORS, _left_out(Tree)),
    Mistake(
        "image_stays_causal", "images that stay causal", "queries of an image see its last key too",
        _left_out(Image),
    ),
    Mistake(
        "image_one_longer", "images of one key too many", _IMAGE, _changed(Image, _images_longer(1))
    ),
    Mistake("image_one_shorter", "images of one key too few", _IMAGE, _changed(Image, _images_longer(-1))),
    Mistake(
        "images_as_one", "all images as one", "queries of an image see the keys of their own alone",
        _changed(Image, _one_image),
    ),
    Mistake(
        "blocks_transposed", "blocks of keys and queries exchanged", _BLOCK, _changed(Blocks, _transposed)
    ),
    Mistake("blocks_ignored", "all blocks kept", _BLOCK, _left_out(Blocks)),
)  # fmt: skip
"""Of two that give the same answer the more particular one comes first."""
