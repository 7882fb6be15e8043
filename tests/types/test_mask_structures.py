"""Words for a structure of pairs against definitions pair by pair, and what such words refuse."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbench.cases.ids import case_id, parse_case
from attnbench.masks import keep_rows, kept_keys, kept_pairs, kept_ranges
from attnbench.types.case import Case
from attnbench.types.errors import BadCase
from attnbench.types.mask import mask_of, mask_text, parse_mask
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
from attnbench.types.mask_words import WORDS

STRUCTURED = (
    "left_padding", "document", "chunked", "reach", "dilated", "tree", "prefix", "first", "global", "image",
)  # fmt: skip
"""Those whose pairs follow from the word alone; blocks are drawn."""


def case_with(text: str, Lq: int, Lk: int, B: int = 1) -> Case:
    return parse_case(f"attention/scaled_dot/B{B}-H2-Lq{Lq}-Lk{Lk}-D4/{text}")


def document_of(lengths: tuple[int, ...], place: int) -> int | None:
    """The number of the document that a place lies in."""
    for number, length in enumerate(lengths):
        if 0 <= place < length:
            return number
        place -= length
    return None


def ancestors(parents: tuple[int, ...], draft: int) -> set[int]:
    """A draft and the drafts that it follows from, numbered from 1."""
    found = set()
    while draft:
        found.add(draft)
        draft = parents[draft - 1]
    return found


def keeps(word: MaskWord, p: int, j: int, Lk: int) -> bool:
    """Whether a query at position p sees key j, by the word alone, as its definition says."""
    match word:
        case LeftPadding():
            assert word.its != "seeded"
            return j >= word.its[0]
        case Document():
            assert word.its != "seeded"
            return document_of(word.its, p) is not None and document_of(word.its, p) == document_of(
                word.its, j
            )
        case Chunked():
            return p // word.keys == j // word.keys
        case Dilated():
            return (p - j) % word.keys == 0
        case Reach():
            behind = word.left is None or p - j <= word.left
            return behind and (word.right is None or j - p <= word.right)
        case Prefix():  # and First
            return j < word.keys
        case Global():
            return j < word.keys or 0 <= p < word.keys
        case Image():
            return any(start <= p < start + n and start <= j < start + n for start, n in word.blocks)
        case Tree():
            text = Lk - len(word.parents)
            if j < text:
                return True
            return text <= p < Lk and j - text + 1 in ancestors(word.parents, p - text + 1)
    raise AssertionError(word)


@settings(max_examples=60)
@given(st.data())
@pytest.mark.parametrize("name", [*STRUCTURED, "blocks"])
def test_the_pairs_of_a_word_are_those_of_its_definition(name: str, data: st.DataObject) -> None:
    Lq, Lk = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9))
    word = WORDS[name].of_sort(WORDS[name].sorts[0], 1, Lk, Random(data.draw(st.integers(0, 10**6))))
    if name == "blocks":  # of_sort draws blocks that are larger than these cases
        word = Blocks(data.draw(st.integers(1, 4)), data.draw(st.integers(1, 100)))
    align = data.draw(st.sampled_from(["", "causal+", "causal:lower_right+"]))
    window = data.draw(st.sampled_from(["", "window:2+", "window:4+"]))
    case = case_with(f"{align}{window}{word.text()}", Lq, Lk)
    width = {"": 99, "window:2+": 2, "window:4+": 4}[window]
    drawn = keep_rows(case_with(word.text(), Lq, Lk), np.arange(Lq))
    expected = np.zeros((Lq, Lk), bool)
    for i, j in np.ndindex(expected.shape):
        p = i + case.query_offset
        if isinstance(word, Blocks):
            # The first pair of a block, without causal and window, tells whether the block is drawn.
            own = drawn is None or bool(drawn[0, 0, i - i % word.size, j - j % word.size])
        else:
            own = keeps(word, p, j, Lk)
        past, near = not align or j <= p, abs(p - j) < width
        if word.lifts:
            near = near or own
            past = past or (own and "causal" in word.lifts)
            own = True
        expected[i, j] = own and past and near
    rows = np.arange(Lq)
    found = keep_rows(case, rows)
    assert np.array_equal(np.ones_like(expected) if found is None else found[0, 0], expected)
    low, high = kept_ranges(case, rows)
    outside = (np.arange(Lk) < low[..., None]) | (np.arange(Lk) >= high[..., None])
    assert not (outside[0] & expected).any()
    assert kept_pairs(case) == 2 * expected.sum()
    assert np.array_equal(kept_keys(case)[0, 0], expected.any(0))
    assert parse_case(case_id(case)) == case


@pytest.mark.parametrize("text", ["document", "blocks:4", "blocks:4,10"])
def test_what_is_drawn_is_the_same_for_all_who_ask(text: str) -> None:
    case = case_with(text, 21, 23, B=3)
    rows = np.arange(21)
    kept = keep_rows(case, rows)
    assert kept is not None
    assert kept.any(-1).all(), "each query keeps a key"
    one_by_one = [keep_rows(case, rows[i : i + 1]) for i in rows]
    assert np.array_equal(kept, np.concatenate([x for x in one_by_one if x is not None], axis=2))
    if text == "document":
        assert not np.array_equal(kept[0], kept[1]), "batch elements have lengths of their own"
    else:
        blocks = kept[0, 0][:20, :20].reshape(5, 4, 5, 4)
        assert np.array_equal(blocks.all((1, 3)), blocks.any((1, 3)))


@pytest.mark.parametrize("percent", [10, 25, 50, 90])
def test_blocks_are_as_dense_as_the_word_says_in_each_place(percent: int) -> None:
    seeds, rows, columns, share = 300, 4, 9, percent / 100
    case = case_with(f"blocks:4,{percent}", 15, 35)
    counts = np.zeros((rows, columns), int)
    for seed in range(seeds):
        kept = keep_rows(replace(case, seed=seed), np.arange(15))
        assert kept is not None
        blocks = kept[0, 0, ::4, ::4]
        assert blocks.any(1).all(), "each row of blocks keeps one"
        assert not blocks.all(1).any(), "each row of blocks drops one"
        counts += blocks

    def spread(draws: int, share: float) -> float:
        """Five standard deviations of a binomial; one count in two million lies outside."""
        return 5 * float(np.sqrt(draws * share * (1 - share)))

    # One block of a row is kept and one dropped, wherever; the others are kept with the share of the word.
    free = seeds * rows * (columns - 2)
    assert abs(int(counts.sum()) - seeds * rows - free * share) < spread(free, share)
    each = (1 + (columns - 2) * share) / columns
    assert (abs(counts - seeds * each) < spread(seeds, each)).all()


@pytest.mark.parametrize("name", [*STRUCTURED, "blocks"])
def test_a_smaller_relative_fits_and_still_drops_or_adds_a_pair(name: str) -> None:
    rng, random = np.random.default_rng(0), Random(0)
    for Lk in (2, 3, 9, 40):
        word = WORDS[name].of_sort(WORDS[name].sorts[0], 1, 64, random)
        beside = "causal+window:2" if word.lifts else "none"
        smaller = word.smaller(1, Lk, Lk, rng)
        for one in (smaller, word.fitted(1, Lk)):
            mask = mask_of([*parse_mask(beside).words, one])
            keep_rows(case_with(mask_text(mask), Lk, Lk), np.arange(Lk))
    assert type(smaller) is WORDS[name]
    drawn = mask_of([*parse_mask(beside).words, smaller])
    assert kept_pairs(case_with(beside, 40, 40)) != kept_pairs(case_with(mask_text(drawn), 40, 40))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("document:3,4", "documents of 7 keys together, but Lk = 8"),
        ("document:3,0,5", "a length is 1 or more"),
        ("document:a", "'a' is not a whole number; write it as in 'document:3,5'"),
        ("left_padding:3,4", "left_padding gives 2 lengths for a batch of 1"),
        ("left_padding:9", "left_padding length 9 is more than Lk = 8"),
        ("chunked:0", "chunked of 0 keys: give at least 1"),
        ("prefix", "'' is not a whole number; write it as in 'prefix:4'"),
        ("reach:3", "give both sides, as in 'reach:128,0'"),
        ("reach:3,-1", "'-1' is not a whole number"),
        ("tree:0,2", "draft 2 has the parent 2; give a draft before it, or 0 for the text"),
        ("tree:0,0,1,1,2,3,4,5,6", "a tree of 9 drafts, but Lk = 8"),
        ("image:4,5", "an image ends at key 9, but Lk = 8"),
        ("image:4", "give the first key and the keys of each image"),
        ("image:4,2,5,1", "give images one after the other"),
        ("blocks:4,0", "give a size of 1 or more, and 1 to 100 percent"),
        ("blocks:4,5,6", "give a size, and the percentage of blocks kept"),
        ("prefix:2+prefix:3", "has two parts for prefix"),
    ],
)
def test_impossible_words_have_a_sentence(text: str, said: str) -> None:
    with pytest.raises(BadCase, match=said.replace("(", r"\(").replace(".", r"\.")):
        case_with(text, 8, 8)


def test_words_combine_and_ids_write_them_in_one_order() -> None:
    one = case_with("chunked:4+causal+first:1+document:3,5", 8, 8)
    assert one == case_with("first:1+document:3,5+causal+chunked:4", 8, 8)
    kept = keep_rows(one, np.arange(8))
    assert kept is not None
    assert kept[0, 0].sum(1).tolist() == [1, 2, 3, 1, 1, 2, 3, 4], "document 2 begins within chunk 1"


def test_first_keys_are_those_of_a_prefix_that_stays_causal() -> None:
    case = case_with("causal+window:2+first:2", 6, 6)
    kept = keep_rows(case, np.arange(6))
    assert kept is not None
    assert (1 * kept[0, 0]).tolist() == [
        [1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 0, 0], [1, 1, 0, 1, 1, 0], [1, 1, 0, 0, 1, 1],
    ]  # fmt: skip
    assert isinstance(case.mask.words[-1], First)
