"""Mask tensors told in words: the words must make the same mask again."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbench.cases.ids import parse_case
from attnbench.masks import keep_rows
from attnbench.programs.classify import mask_words
from attnbench.types.case import Case


def kept(case: Case) -> torch.Tensor:
    """Which pairs a case keeps, (B, Lq, Lk)."""
    found = keep_rows(case, np.arange(case.Lq))
    shape = (case.B, case.Lq, case.Lk)
    return torch.ones(shape, dtype=torch.bool) if found is None else torch.tensor(found[:, 0]).expand(shape)


def case_of(mask: str, B: int, Lq: int, Lk: int) -> Case:
    return parse_case(f"attention/dot/B{B}-H2-Lq{Lq}-Lk{Lk}-D4/{mask}")


@st.composite
def cases(draw: st.DrawFn) -> Case:
    B, Lq = draw(st.integers(1, 3)), draw(st.integers(1, 12))
    Lk = Lq + draw(st.integers(0, 6))  # With fewer keys than queries, windows may be told as bool.
    words = [draw(st.sampled_from(["", "causal", "causal:lower_right"]))]
    if draw(st.booleans()):
        words.append(f"window:{draw(st.integers(1, 12))}")
    if draw(st.booleans()):
        lengths = draw(st.lists(st.integers(0, Lk), min_size=B, max_size=B))
        words.append(f"padding:{','.join(map(str, lengths))}")
    return case_of("+".join(filter(None, words)) or "none", B, Lq, Lk)


@given(cases(), st.booleans())
@settings(max_examples=300, deadline=None)
def test_words_make_the_mask_again(case: Case, added: bool) -> None:
    mask = kept(case)[:, None]
    given_mask = torch.zeros(mask.shape).masked_fill(~mask, float("-inf")) if added else mask
    found = mask_words(given_mask, case.B, case.H, case.Lq, case.Lk)
    again = case_of(found.mask, case.B, case.Lq, case.Lk)
    assert found.kept is None
    assert torch.equal(kept(again), kept(case))


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (torch.ones(6, 6, dtype=torch.bool), "none"),
        (torch.zeros(6, 6), "none"),
        (torch.ones(6, 6, dtype=torch.bool).tril(), "causal"),
        (torch.ones(4, 6, dtype=torch.bool).tril(2), "causal:lower_right"),
        (torch.ones(6, 6, dtype=torch.bool).tril().triu(-2), "causal+window:3"),
        (torch.ones(6, 6, dtype=torch.bool).tril(1).triu(-1), "window:2"),
        (torch.arange(6)[None, None, None] < torch.tensor([4, 6]).view(2, 1, 1, 1), "padding:4,6"),
    ],
)  # fmt: skip
def test_words_of_common_masks(mask: torch.Tensor, words: str) -> None:
    Lq, Lk = (4, 6) if mask.shape[-2] == 4 else (6, 6)
    assert mask_words(mask, 2, 2, Lq, Lk).mask == words


@pytest.mark.parametrize("Lq", [12, 5])
@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("document:3,4,5", None),
        ("causal+document:3,4,5", None),
        ("causal:lower_right+chunked:5", "chunked"),
        ("causal+prefix:4", "prefix"),
        ("causal:lower_right+window:3+first:2", "first"),
        ("window:3+global:2", "global"),
        ("reach:3,1", "reach"),
        ("reach:2,*", "reach"),
        ("causal:lower_right+dilated:2", "dilated"),
        ("causal+image:2,2", "image"),
        ("causal+window:3+document:5,7", "window:3+document"),
        ("causal+window:3+image:4,5", "window:3+image"),
        ("causal+chunked:6+image:4,4", "chunked:6+image"),
    ],
)
def test_structures_are_told(written: str, told: str | None, Lq: int) -> None:
    case = case_of(written, 2, Lq, 12)
    found = mask_words(kept(case)[:, None], 2, 2, Lq, 12)
    assert torch.equal(kept(case_of(found.mask, 2, Lq, 12)), kept(case))
    assert found.kept is None
    if told is not None and Lq == 12:
        assert told in found.mask


@pytest.mark.parametrize(
    "written",
    [
        "causal+window:5+document:9,3,12,16", "causal:lower_right+window:8+first:2+tree:0,0,1,1",
        "causal+chunked:10+first:2", "causal+chunked:10+prefix:13", "causal+window:10+dilated:3",
        "causal+dilated:2+first:3", "window:7+dilated:2+global:3", "global:2+reach:6,2",
        "document:9,3,12,16+reach:6,2", "causal+document:9,3,12,16+image:14,5",
        "causal+document:9,3,12,16+prefix:4", "causal+window:4+chunked:8", "causal+window:4+prefix:6",
        "window:3+chunked:10+global:1", "window:4+document:9,3,12,16+first:2", "causal+tree:0,0,1,2,2",
        "causal+window:6+image:4,7,20,5", "causal+padding:40,30+prefix:7", "causal+padding:40,30+chunked:9",
        "causal+window:5+padding:31,22+first:2", "causal+left_padding:0,17", "left_padding:3,9",
        "causal+window:9+left_padding:2,0", "causal+padding:30,30+left_padding:0,12",
        "causal+document:9,3,28+left_padding:0,13", "causal+image:14,5+left_padding:0,3",
        "causal+chunked:9+left_padding:4,0", "causal+padding:29,29+image:5,8",
        "window:4+padding:40,11+global:2",
    ],
)  # fmt: skip
def test_words_that_meet_are_told(written: str) -> None:
    mask = kept(case_of(written, 2, 40, 40))[:, None]
    found = mask_words(mask, 2, 2, 40, 40).mask
    assert found.replace(":lower_right", "") == written.replace(":lower_right", "")
    changed = mask.clone()
    changed[:, 0, 33, 17] ^= True
    assert mask_words(changed, 2, 2, 40, 40).mask == "bool"
    # Of fewer queries the tensor may be said in other words.
    few = kept(case_of(written, 2, 11, 40))
    assert torch.equal(kept(case_of(mask_words(few[:, None], 2, 2, 11, 40).mask, 2, 11, 40)), few)


def test_documents_of_each_batch_element_are_drawn_in_a_case() -> None:
    for beside in ("", "causal+", "causal+window:3+"):
        own = [kept(case_of(f"{beside}document:{its}", 1, 12, 12)) for its in ("3,4,5", "7,5", "12")]
        assert mask_words(torch.stack(own), 3, 2, 12, 12).mask == f"{beside}document"
        padded = torch.stack(own) & (torch.arange(12) < torch.tensor([11, 12, 9]).view(3, 1, 1, 1))
        assert set(mask_words(padded, 3, 2, 12, 12).mask.split("+")) == {
            *filter(None, beside.split("+")), "padding:11,12,9", "document",
        }  # fmt: skip
        own[2] = own[2].clone()
        own[2][0, 8, 7] ^= True
        assert mask_words(torch.stack(own), 3, 2, 12, 12).mask == "bool"


def test_blocks_are_told_by_their_size_and_share() -> None:
    for beside in ("", "causal+"):
        drawn = case_of(f"{beside}blocks:16,25", 1, 100, 130)
        found = mask_words(kept(drawn)[:, None], 1, 2, 100, 130).mask
        assert found.startswith(f"{beside}blocks:16,"), found
        assert abs(int(found.split(",")[1]) - 25) <= 15, "about so many: blocks are drawn"
    other = kept(drawn).clone()
    other[0, 70, 3] ^= True
    assert mask_words(other[:, None], 1, 2, 100, 130).mask == "bool"


def test_drafts_behind_a_text_are_told_as_a_tree() -> None:
    case = case_of("tree:0,0,1,1,3", 1, 5, 12)
    assert mask_words(kept(case)[:, None], 1, 2, 5, 12).mask == "tree:0,0,1,1,3"


def test_a_mask_as_transformers_writes_it_drops_at_the_least_number() -> None:
    least = torch.finfo(torch.bfloat16).min
    mask = torch.zeros(1, 1, 5, 5, dtype=torch.bfloat16).masked_fill(torch.ones(5, 5).triu(1).bool(), least)
    assert mask_words(mask.expand(2, 1, 5, 5), 2, 4, 5, 5).mask == "causal"


def test_other_masks_keep_their_kind_and_share() -> None:
    checkers = (torch.arange(8)[:, None] + torch.arange(8)) % 2 == 0
    assert mask_words(checkers, 1, 2, 8, 8).mask == "dilated:2"
    checkers[2, 3:5] = checkers[2, 3:5].flip(0)
    assert mask_words(checkers, 1, 2, 8, 8) == mask_words(checkers[None, None], 1, 2, 8, 8)
    found = mask_words(checkers, 1, 2, 8, 8)
    assert (found.mask, found.kept) == ("bool", 0.5)
    bias = torch.arange(8.0)[None, :].expand(8, 8)
    assert (mask_words(bias, 1, 2, 8, 8).mask, mask_words(bias, 1, 2, 8, 8).kept) == ("float", 1.0)
    by_head = torch.stack([checkers, ~checkers])[None]
    assert mask_words(by_head, 1, 2, 8, 8).mask == "bool:per_head"


def test_numbers_that_change_the_answer_are_not_told_as_dropped_pairs() -> None:
    least = torch.finfo(torch.float32).min
    dropped = torch.ones(6, 6).triu(1).bool()
    causal = torch.zeros(6, 6).masked_fill(dropped, least)
    uniform = causal.clone()
    uniform[0] = least
    nan = torch.zeros(6, 6).masked_fill(dropped, float("nan"))
    learned = torch.zeros(6, 6, requires_grad=True)
    told = [mask_words(mask, 1, 2, 6, 6).mask for mask in (causal, uniform, nan, learned)]
    assert told == ["causal", "float", "float", "float"]
