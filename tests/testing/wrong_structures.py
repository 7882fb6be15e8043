"""Kernels whose masks for a structure are wrong as authors err, each named after its known mistake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnbench import Backend, hookimpl
from attnbench.kit.masks import keep_mask

Keep = Callable[[Any, Any, Tensor, Tensor], Tensor]
"""Returns the kept pairs, (Lq, Lk), of a case, its word, the queries' positions p (Lq, 1) and keys j (Lk)."""


def ends(lengths: tuple[int, ...]) -> Tensor:
    """Where each document but the last ends."""
    return torch.tensor(lengths).cumsum(0)[:-1]


def document_ends_one_late(case: Any, word: Any, p: Tensor, j: Tensor) -> Tensor:
    """Forget ``right=True``, so that an end still belongs to the document before it."""
    of_query, of_key = (torch.searchsorted(ends(word.its), x) for x in (p, j))
    return (of_query == of_key) & (j <= p)


def document_ends_one_early(case: Any, word: Any, p: Tensor, j: Tensor) -> Tensor:
    """Take the last key of a document for its end."""
    of_query, of_key = ((x[..., None] >= ends(word.its) - 1).sum(-1) for x in (p, j))
    return (of_query == of_key) & (j <= p)


def earlier_documents_seen(case: Any, word: Any, p: Tensor, j: Tensor) -> Tensor:
    of_query, of_key = (torch.searchsorted(ends(word.its), x, right=True) for x in (p, j))
    return of_key <= of_query


def documents_of_the_first_batch_element(case: Any, word: Any, p: Tensor, j: Tensor) -> Tensor:
    starts = torch.tensor([start for start, _ in word.ranges(case)[0]])
    of_query, of_key = (torch.searchsorted(starts, x, right=True) for x in (p, j))
    return of_query == of_key


def everything(case: Any, word: Any, p: Tensor, j: Tensor) -> Tensor:
    return torch.ones(case.Lq, case.Lk, dtype=torch.bool)


def causal_alone(case: Any, word: Any, p: Tensor, j: Tensor) -> Tensor:
    return j <= p


def chunk_of_row_numbers(case: Any, word: Any, p: Tensor, j: Tensor) -> Tensor:
    row = torch.arange(case.Lq)[:, None]
    return (j <= p) & (row // word.keys == j // word.keys)


def chunks_from(first: int) -> Keep:
    """Count chunks from another key than 0."""

    def keeps(case: Any, word: Any, p: Tensor, j: Tensor) -> Tensor:
        of_query, of_key = (torch.div(x - first, word.keys, rounding_mode="floor") for x in (p, j))
        return (j <= p) & (of_query == of_key)

    return keeps


def first_keys(more: int) -> Keep:
    return lambda case, word, p, j: (j <= p) & ((p - j < case.mask.window) | (j < word.keys + more))


def global_tokens(more: int) -> Keep:
    def keeps(case: Any, word: Any, p: Tensor, j: Tensor) -> Tensor:
        count = word.keys + more
        return ((p - j).abs() < case.mask.window) | (j < count) | (p < count)

    return keeps


def grandparents_lost(case: Any, word: Any, p: Tensor, j: Tensor) -> Tensor:
    text = case.Lk - len(word.parents)
    parent = torch.tensor(word.parents)[p - text] + text - 1
    return (j < text) | (j == p) | (j == parent)


def images_of(more: int) -> Keep:
    def keeps(case: Any, word: Any, p: Tensor, j: Tensor) -> Tensor:
        keep = j <= p
        for start, length in word.blocks:
            of_query, of_key = ((x >= start) & (x < start + length + more) for x in (p, j))
            keep = keep | (of_query & of_key)
        return keep

    return keeps


def images_as_one(case: Any, word: Any, p: Tensor, j: Tensor) -> Tensor:
    """Look up which tokens are of an image, but not of which."""
    is_image = torch.zeros(case.Lk, dtype=torch.bool)
    for start, length in word.blocks:
        is_image[start : start + length] = True
    return (j <= p) | (is_image[p] & is_image[j])


def left_padding(more: int) -> Keep:
    def keeps(case: Any, word: Any, p: Tensor, j: Tensor) -> Tensor:
        return (j <= p) & (j >= torch.tensor(word.its)[:, None, None, None] + more)

    return keeps


def left_padding_on_the_right(case: Any, word: Any, p: Tensor, j: Tensor) -> Tensor:
    """Take what it drops for what the usual padding drops."""
    return (j <= p) & (j < case.Lk - torch.tensor(word.its)[:, None, None, None])


def blocks_transposed(case: Any, word: Any, p: Tensor, j: Tensor) -> Tensor:
    pairs = keep_mask(case, "cpu")
    assert pairs is not None
    blocks = pairs[0, 0, :: word.size, :: word.size]
    return blocks[j // word.size, p // word.size]


SQUARE = "H2-L24-D8"
DOCUMENTS, CAUSAL_DOCUMENTS = f"{SQUARE}/document:5,8,2,9", f"{SQUARE}/causal+document:5,8,2,9"
CHUNKED = "H2-Lq20-Lk24-D8/causal:lower_right+chunked:5"
PREFIX = f"{SQUARE}/causal+prefix:7"
FIRST = f"{SQUARE}/causal+window:4+first:3"
GLOBAL = f"{SQUARE}/window:3+global:2"
WINDOW = f"{SQUARE}/window:4"
REACH = f"{SQUARE}/reach:5,2"
TREE = "H2-Lq6-Lk24-D8/causal:lower_right+tree:0,0,1,1,3,2"
LEFT = f"B3-{SQUARE}/causal+left_padding:0,5,9"
IMAGES = f"{SQUARE}/causal+image:3,6,12,5"

PLANTED: dict[str, tuple[str, Keep]] = {
    "left_padding_one_longer": (LEFT, left_padding(1)),
    "left_padding_one_shorter": (LEFT, left_padding(-1)),
    "left_padding_on_the_right": (LEFT, left_padding_on_the_right),
    "left_padding_ignored": (LEFT, causal_alone),
    "document_ends_one_late": (CAUSAL_DOCUMENTS, document_ends_one_late),
    "document_ends_one_early": (CAUSAL_DOCUMENTS, document_ends_one_early),
    "earlier_documents_seen": (DOCUMENTS, earlier_documents_seen),
    "documents_of_the_first_batch_element": (f"B2-{SQUARE}/document", documents_of_the_first_batch_element),
    "documents_ignored": (DOCUMENTS, everything),
    "chunk_behind_the_query": (CHUNKED, lambda case, word, p, j: (j <= p) & (p - j < word.keys)),
    "chunk_of_row_numbers": (CHUNKED, chunk_of_row_numbers),
    "chunks_begin_one_early": (CHUNKED, chunks_from(-1)),
    "chunks_begin_one_late": (CHUNKED, chunks_from(1)),
    "chunks_ignored": (CHUNKED, causal_alone),
    "prefix_one_more": (PREFIX, lambda case, word, p, j: (j <= p) | (j <= word.keys)),
    "prefix_one_less": (PREFIX, lambda case, word, p, j: (j <= p) | (j < word.keys - 1)),
    "prefix_stays_causal": (PREFIX, causal_alone),
    "first_one_more": (FIRST, first_keys(1)),
    "first_one_less": (FIRST, first_keys(-1)),
    "first_keys_lost": (FIRST, lambda case, word, p, j: (j <= p) & (p - j < case.mask.window)),
    "window_one_wider": (
        FIRST, lambda case, word, p, j: (j <= p) & ((p - j <= case.mask.window) | (j < word.keys)),
    ),
    "window_one_narrower": (
        FIRST, lambda case, word, p, j: (j <= p) & ((p - j < case.mask.window - 1) | (j < word.keys)),
    ),
    "causal_one_key_more": (
        FIRST, lambda case, word, p, j: (j <= p + 1) & ((p - j < case.mask.window) | (j < word.keys)),
    ),
    "global_queries_do_not_see_all": (
        GLOBAL, lambda case, word, p, j: ((p - j).abs() < case.mask.window) | (j < word.keys),
    ),
    "global_one_more": (GLOBAL, global_tokens(1)),
    "global_one_less": (GLOBAL, global_tokens(-1)),
    "global_tokens_lost": (GLOBAL, lambda case, word, p, j: (p - j).abs() < case.mask.window),
    "dilation_from_key_0": (
        f"{SQUARE}/causal+dilated:3", lambda case, word, p, j: (j <= p) & (j % word.keys == 0),
    ),
    "dilation_ignored": (f"{SQUARE}/causal+dilated:3", causal_alone),
    "reach_ignored": (REACH, everything),
    "reach_left_ignored": (REACH, lambda case, word, p, j: j - p <= word.right),
    "reach_right_ignored": (REACH, lambda case, word, p, j: p - j <= word.left),
    "reach_sides_exchanged": (
        REACH, lambda case, word, p, j: (p - j <= word.right) & (j - p <= word.left),
    ),
    "reach_left_one_less": (REACH, lambda case, word, p, j: (p - j < word.left) & (j - p <= word.right)),
    "reach_left_one_more": (REACH, lambda case, word, p, j: (p - j <= word.left + 1) & (j - p <= word.right)),
    "reach_right_one_less": (REACH, lambda case, word, p, j: (p - j <= word.left) & (j - p < word.right)),
    "reach_right_one_more": (
        REACH, lambda case, word, p, j: (p - j <= word.left) & (j - p <= word.right + 1),
    ),
    "sibling_drafts_seen": (TREE, causal_alone),
    "grandparents_lost": (TREE, grandparents_lost),
    "image_stays_causal": (IMAGES, causal_alone),
    "image_one_longer": (IMAGES, images_of(1)),
    "image_one_shorter": (IMAGES, images_of(-1)),
    "images_as_one": (IMAGES, images_as_one),
    "blocks_transposed": (f"{SQUARE}/blocks:4", blocks_transposed),
    "blocks_ignored": (f"{SQUARE}/blocks:4", everything),
    "tree_ignored": (TREE.replace("causal:lower_right+", ""), everything),
    "mask_ignored": (CAUSAL_DOCUMENTS, everything),
    "window_one_more_behind": (
        WINDOW, lambda case, word, p, j: (p - j <= case.mask.window) & (j - p < case.mask.window),
    ),
    "window_one_less_behind": (
        WINDOW, lambda case, word, p, j: (p - j < case.mask.window - 1) & (j - p < case.mask.window),
    ),
    "window_one_more_ahead": (
        WINDOW, lambda case, word, p, j: (p - j < case.mask.window) & (j - p <= case.mask.window),
    ),
    "window_one_less_ahead": (
        WINDOW, lambda case, word, p, j: (p - j < case.mask.window) & (j - p < case.mask.window - 1),
    ),
}  # fmt: skip
"""By the known mistake: a case that shows it, and the mask."""


def backend(name: str, keep: Keep) -> Backend:
    def prepare(setup: Any) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        case, (word,) = setup.case, setup.case.mask.more or (None,)
        p, j = torch.arange(case.Lq)[:, None] + case.query_offset, torch.arange(case.Lk)
        dropped, scale = ~keep(case, word, p, j), setup.scoring.dot.scale

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            scores = (q @ k.mT * scale).masked_fill(dropped, -torch.inf)
            # The output of a query that keeps no key is 0.
            return scores.softmax(-1).nan_to_num(0) @ v

        return attend

    return Backend(name, "a mask of its own", prepare, rules=("scaled_dot",), masks=("any",))


@hookimpl
def attnbench_backends() -> list[Backend]:
    return [backend(name, keep) for name, (_, keep) in PLANTED.items()]
