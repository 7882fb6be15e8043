"""Kernels for structured masks: wrong at an edge or where words meet, and right ones of unusual form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from attnbench import Backend, hookimpl
from attnbench.types.case import Case
from attnbench.types.mask_base import MaskWord

Words = Mapping[str, Any]
Keep = Callable[[Case, Words, Tensor, Tensor], Tensor]
"""Returns the kept pairs, (B or 1, 1, Lq, Lk), of a case, its words by name, the queries' positions (Lq, 1)
and the keys (Lk)."""


def words_of(case: Case) -> Words:
    words: dict[str, MaskWord] = {word.word: word for word in case.mask.words}
    return words


def causal(words: Words, p: Tensor, j: Tensor) -> Tensor:
    return j <= p if "causal" in words else (j <= p) | (j > p)


def near(case: Case, p: Tensor, j: Tensor) -> Tensor:
    return (p - j).abs() < (case.mask.window or 10**6)


def documents(case: Case, words: Words, p: Tensor, j: Tensor, *, least: int = 1) -> Tensor:
    """Those of at least so many keys; shorter ones belong to the next."""
    if "document" not in words:
        return torch.tensor(True)
    found = []
    for its in words["document"].ranges(case):
        ends = torch.tensor([end for start, end in its if end - start >= least] or [case.Lk])
        of_query, of_key = (torch.searchsorted(ends, x, right=True) for x in (p, j))
        found.append((of_query == of_key) & (p >= 0) & (p < case.Lk))
    return torch.stack(found)[:, None]


def reach_without_its_end(case: Case, words: Words, p: Tensor, j: Tensor) -> Tensor:
    keep = causal(words, p, j) & documents(case, words, p, j)
    if (reach := words.get("reach")) is not None:
        keep = keep & (p - j <= reach.left) & (j - p < reach.right)
    return keep


def short_documents_joined(case: Case, words: Words, p: Tensor, j: Tensor) -> Tensor:
    return causal(words, p, j) & documents(case, words, p, j, least=2)


def whole_prefix_forgotten(case: Case, words: Words, p: Tensor, j: Tensor) -> Tensor:
    """Take a prefix of all keys for none."""
    prefix = words["prefix"].keys if "prefix" in words else 0
    return causal(words, p, j) | (j < (prefix if prefix < case.Lk else 0))


def chunks_from_the_first_query(case: Case, words: Words, p: Tensor, j: Tensor) -> Tensor:
    keep, first = causal(words, p, j), case.query_offset
    if (chunks := words.get("chunked")) is not None:
        of_query, of_key = (torch.div(x - first, chunks.keys, rounding_mode="floor") for x in (p, j))
        keep = keep & (of_query == of_key)
    return keep


def global_rows(case: Case, words: Words, p: Tensor, j: Tensor) -> Tensor:
    """Take the first rows for the first tokens."""
    count = words["global"].keys if "global" in words else 0
    return near(case, p, j) | (j < count) | (p - case.query_offset < count)


def image_without_the_last_key(case: Case, words: Words, p: Tensor, j: Tensor) -> Tensor:
    keep = causal(words, p, j) & near(case, p, j)
    for start, length in words["image"].blocks if "image" in words else ():
        end = min(start + length, case.Lk - 1)
        keep = keep | ((p >= start) & (p < end) & (j >= start) & (j < end))
    return keep


def one_root(case: Case, words: Words, p: Tensor, j: Tensor) -> Tensor:
    """Let every draft follow from the first."""
    if "tree" not in words:
        return causal(words, p, j)
    parents = [max(parent, min(draft, 1)) for draft, parent in enumerate(words["tree"].parents)]
    return causal(words, p, j) & tree_of(parents, case, p, j)


def tree_of(parents: list[int], case: Case, p: Tensor, j: Tensor) -> Tensor:
    """The pairs of a tree, whose ancestors are a power of the matrix of parents."""
    count, text = len(parents), case.Lk - len(parents)
    step = torch.eye(count)
    for draft, parent in enumerate(parents):
        if parent:
            step[draft, parent - 1] = 1
    sees = torch.linalg.matrix_power(step, count) > 0
    whole = torch.zeros(case.Lk, case.Lk, dtype=torch.bool)
    whole[:, :text], whole[text:, text:] = True, sees
    beyond = torch.arange(case.Lk) < text
    return torch.where((p >= 0) & (p < case.Lk), whole[p[:, 0].clamp(0, case.Lk - 1)], beyond)


def prefix_of_all_documents(case: Case, words: Words, p: Tensor, j: Tensor) -> Tensor:
    keep = causal(words, p, j) & documents(case, words, p, j)
    return keep | (j < (words["prefix"].keys if "prefix" in words else 0))


def first_keys_of_each_document(case: Case, words: Words, p: Tensor, j: Tensor) -> Tensor:
    near_or_first = near(case, p, j)
    if "first" in words and "document" in words:
        starts = [
            sum((j >= start) * (j < end) * start for start, end in its)
            for its in words["document"].ranges(case)
        ]
        near_or_first = near_or_first | (j - torch.stack(starts) < words["first"].keys)[:, None, None]
    return causal(words, p, j) & documents(case, words, p, j) & near_or_first


def images_over_documents(case: Case, words: Words, p: Tensor, j: Tensor) -> Tensor:
    keep = causal(words, p, j) & documents(case, words, p, j)
    for start, length in words["image"].blocks if "image" in words else ():
        end = start + length
        keep = keep | ((p >= start) & (p < end) & (j >= start) & (j < end))
    return keep


def prefix_over_padding(case: Case, words: Words, p: Tensor, j: Tensor) -> Tensor:
    padded = torch.tensor(case.mask.lengths(case) or [case.Lk])[:, None, None, None]
    return (causal(words, p, j) & (j < padded)) | (j < (words["prefix"].keys if "prefix" in words else 0))


def remainders_of_later_keys(case: Case, words: Words, p: Tensor, j: Tensor) -> Tensor:
    """Divide distances as C does, where those of later keys have negative remainders."""
    keep = causal(words, p, j)
    if "dilated" in words:
        keep = keep & (torch.fmod(p - j + 1, words["dilated"].keys) == 1)
    return keep


def no_limit_for_no_key(case: Case, words: Words, p: Tensor, j: Tensor) -> Tensor:
    if "reach" not in words:
        return causal(words, p, j)
    left, right = words["reach"].left, words["reach"].right
    return causal(words, p, j) & (p - j <= (case.Lk if left is None else left)) & (j - p <= (right or 0))


def third_branch_on_the_second(case: Case, words: Words, p: Tensor, j: Tensor) -> Tensor:
    if "tree" not in words:
        return causal(words, p, j)
    parents = list(words["tree"].parents)
    roots = [draft for draft, parent in enumerate(parents) if not parent]
    for draft in roots[2:]:
        parents[draft] = roots[1] + 1
    return causal(words, p, j) & tree_of(parents, case, p, j)


def global_queries_look_back(case: Case, words: Words, p: Tensor, j: Tensor) -> Tensor:
    count = words["global"].keys if "global" in words else 0
    return near(case, p, j) | (j < count) | ((p >= 0) & (p < count) & (j <= p))


def blocks_of_positions(case: Case, words: Words, p: Tensor, j: Tensor) -> Tensor:
    """Look up the block of a query by its position, not by its row."""
    keep = causal(words, p, j)
    if "blocks" in words:
        kept_by_word = words["blocks"].formula(case, torch.as_tensor)
        keep = keep & kept_by_word(0, 0, p.clamp(0, case.Lq - 1), j)
    return keep


def right_documents(case: Case, words: Words, p: Tensor, j: Tensor) -> Tensor:
    return causal(words, p, j) & documents(case, words, p, j)


def right_reach(case: Case, words: Words, p: Tensor, j: Tensor) -> Tensor:
    """Fill each row by itself."""
    keep = torch.zeros(case.Lq, case.Lk, dtype=torch.bool)
    left, right = (words["reach"].left, words["reach"].right) if "reach" in words else (None, None)
    for row, at in enumerate(p[:, 0].tolist()):
        low = 0 if left is None else at - left
        high = case.Lk if right is None else at + right + 1
        keep[row, max(low, 0) : max(min(high, at + 1 if "causal" in words else case.Lk), 0)] = True
    return keep


def right_tree(case: Case, words: Words, p: Tensor, j: Tensor) -> Tensor:
    parents = list(words["tree"].parents) if "tree" in words else []
    return causal(words, p, j) & (tree_of(parents, case, p, j) if parents else torch.tensor(True))


SQUARE, FEW = "H2-L24-D8", "H2-Lq10-Lk24-D8"
WRONG: dict[Keep, tuple[tuple[str, ...], str, str]] = {
    reach_without_its_end: (
        ("causal", "reach", "document"), f"{SQUARE}/reach:5,2+document:5,8,2,9",
        "one key too few on the right",
    ),
    short_documents_joined: (
        ("causal", "document"), f"{SQUARE}/causal+document:5,1,9,9",
        "query 6 sees key 5, which causal+document:5,1,9,9 drops; 18 of 1,152 pairs are wrong. "
        "The pairs that it keeps are those of causal+document:5,10,9.",
    ),
    whole_prefix_forgotten: (
        ("causal", "prefix"), f"{SQUARE}/causal+prefix:24", "a prefix that lifts nothing",
    ),
    chunks_from_the_first_query: (
        ("causal", "chunked"), f"{FEW}/causal:lower_right+chunked:8",
        "Of 10 queries and 24 keys, query 0 does not see key 8, which causal:lower_right+chunked:8 keeps",
    ),
    global_rows: (("window", "global"), f"{FEW}/window:3+global:2", "query 0 sees key 2"),
    image_without_the_last_key: (
        ("causal", "window", "image"), f"{SQUARE}/causal+window:5+image:3,6,19,5",
        "The pairs that it keeps are those of causal+window:5+image:3,6,19,4.",
    ),
    one_root: (
        ("causal", "tree"), "H2-Lq6-Lk24-D8/causal:lower_right+tree:0,0,1,1,3,2", "query 1 sees key 18",
    ),
    prefix_of_all_documents: (
        ("causal", "document", "prefix"), f"{SQUARE}/causal+document:5,8,2,9+prefix:3", "query 5 sees key 0",
    ),
    first_keys_of_each_document: (
        ("causal", "window", "document", "first"), f"{SQUARE}/causal+window:2+document:9,15+first:2",
        "query 11 sees key 9",
    ),
    images_over_documents: (
        ("causal", "document", "image"), f"{SQUARE}/causal+document:9,15+image:6,6",
        "query 6 sees key 9, which causal+document:9,15+image:6,6 drops",
    ),
    prefix_over_padding: (
        ("causal", "padding", "prefix"), f"B2-{SQUARE}/causal+padding:24,9+prefix:12",
        "query 0 of batch element 1 and head 0 sees key 9",
    ),
    remainders_of_later_keys: (
        ("causal", "dilated"), f"{SQUARE}/dilated:3", "The pairs that it keeps are those of causal+dilated:3."
    ),
    no_limit_for_no_key: (("reach",), f"{SQUARE}/reach:6,*", "query 0 does not see key 1, which reach:6,*"),
    third_branch_on_the_second: (
        ("causal", "tree"), "H2-Lq6-Lk24-D8/causal:lower_right+tree:0,0,1,0,3,4", "query 3 sees key 19"
    ),
    global_queries_look_back: (
        ("window", "global"), f"{SQUARE}/window:3+global:2", "global queries like all others"
    ),
    # Drawn blocks may have the same size and share, but are others.
    blocks_of_positions: (
        ("causal", "blocks"), "H2-Lq20-Lk60-D8/causal:lower_right+blocks:4",
        "pairs are wrong. attnbench.masks.keep_rows gives",
    ),
}  # fmt: skip
"""The words that a kernel declares, a case that shows it, and words of its diagnosis."""
RIGHT: dict[Keep, tuple[str, ...]] = {
    right_documents: ("causal", "document"),
    right_reach: ("causal", "reach"),
    right_tree: ("causal", "tree"),
}


def backend(keep: Keep, masks: tuple[str, ...]) -> Backend:
    def prepare(setup: Any) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        dropped, scale = ~kept(keep, setup.case), setup.scoring.dot.scale

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            k, v = (x.repeat_interleave(setup.case.group, 1) for x in (k, v))
            # The output of a query that keeps no key is 0.
            return (q @ k.mT * scale).masked_fill(dropped, -torch.inf).softmax(-1).nan_to_num(0) @ v

        return attend

    return Backend(keep.__name__, "a mask of its own", prepare, rules=("scaled_dot",), masks=masks)


def kept(keep: Keep, case: Case) -> Tensor:
    """The pairs that a kernel keeps, (B, 1, Lq, Lk)."""
    p, j = torch.arange(case.Lq)[:, None] + case.query_offset, torch.arange(case.Lk)
    return torch.broadcast_to(keep(case, words_of(case), p, j), (case.B, 1, case.Lq, case.Lk))


@hookimpl
def attnbench_backends() -> list[Backend]:
    wrong = [backend(keep, masks) for keep, (masks, _, _) in WRONG.items()]
    return wrong + [backend(keep, masks) for keep, masks in RIGHT.items()]
