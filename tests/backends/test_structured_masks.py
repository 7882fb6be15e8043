"""Every backend computes masks of documents, prefixes, chunks and their kin, or declines them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from solved import BACKENDS, QUICK, RULES, refusal, solved
from torch.nn.attention.flex_attention import create_block_mask

from attnbench.backends.flex import block_mask
from attnbench.backends.selected import SELECTED_GATHER, SELECTED_MASK
from attnbench.cases.ids import parse_case
from attnbench.masks import keep_rows
from attnbench.runner.case import refusal as declared
from attnbench.types.backend import Backend, Setup
from attnbench.types.case import Case
from attnbench.types.mask import parse_mask
from attnbench.types.mask_structures import STRUCTURES
from attnbench.types.mask_words import WORDS

Keep = NDArray[np.bool_]

MASKS = (
    "causal:lower_right+window:3+document:4,5+first:2",
    "causal+chunked:4+image:1,3",
    "window:2+padding:9,6+global:2",
    "causal:lower_right+tree:0,0,1,2",
    "reach:3,1+prefix:2",
    "dilated:2+blocks:3+float",
    "document",
)

ANCESTORS = {(3, 3), (4, 4), (5, 5), (5, 3), (6, 6), (6, 5), (6, 3)}
"""The drafts of tree:0,0,1,3 on the last 4 of 7 keys, each with those that it sees."""

DEFINED: dict[str, Callable[[int, int], bool]] = {
    "left_padding:2,2": lambda p, j: j >= 2,
    "causal:lower_right+window:3+left_padding:4,4": lambda p, j: j >= 4 and p - 3 < j <= p,
    "document:3,4": lambda p, j: 0 <= p < 7 and (p < 3) == (j < 3),
    "causal:lower_right+window:2+document:3,4": lambda p, j: p - 2 < j <= p and (p < 3) == (j < 3),
    "causal+window:3+prefix:2": lambda p, j: p - 3 < j <= p or j < 2,
    "causal:lower_right+window:2+first:2": lambda p, j: j <= p and (p - j < 2 or j < 2),
    "causal:lower_right+chunked:3": lambda p, j: j <= p and p // 3 == j // 3,
    "window:2+chunked:3": lambda p, j: abs(p - j) < 2 and p // 3 == j // 3,
    "window:2+global:2": lambda p, j: abs(p - j) < 2 or j < 2 or 0 <= p < 2,
    "causal+window:2+global:2": lambda p, j: j <= p and (p - j < 2 or j < 2 or p < 2),
    "window:5+dilated:3": lambda p, j: abs(p - j) in (0, 3),
    "causal+dilated:2": lambda p, j: p - j in (0, 2, 4, 6, 8),
    "reach:2,1": lambda p, j: -1 <= p - j <= 2,
    "causal:lower_right+reach:3,*": lambda p, j: 0 <= p - j <= 3,
    "tree:0,0,1,3": lambda p, j: j < 3 or (p, j) in ANCESTORS,
    "causal:lower_right+tree:0,0,1,3": lambda p, j: j <= p and (j < 3 or (p, j) in ANCESTORS),
    "causal+image:1,3,5,2": lambda p, j: j <= p or {p, j} <= {1, 2, 3} or {p, j} <= {5, 6},
    "window:2+causal:lower_right+image:2,4": lambda p, j: p - 2 < j <= p or {p, j} <= {2, 3, 4, 5},
    "blocks:2,25": lambda p, j: True,
    "causal:lower_right+window:4+blocks:2": lambda p, j: p - 4 < j <= p,
}
"""Whether a query at position p sees key j of 7, by mask; which blocks are drawn comes on top."""


def defined(case: Case, keeps: Callable[[int, int], bool]) -> Keep:
    """The pairs of a case, one by one, (Lq, Lk)."""
    pairs = np.zeros((case.Lq, case.Lk), bool)
    for i, j in np.ndindex(pairs.shape):
        pairs[i, j] = keeps(i + case.query_offset, j)
    for word in case.mask.words:
        if word.word == "blocks":  # the first pair of each block, without causal and window, tells the draw
            drawn = keep_rows(replace(case, mask=parse_mask(word.text())), np.arange(case.Lq))
            assert drawn is not None
            pairs &= drawn[0, 0, ::2, ::2].repeat(2, 0).repeat(2, 1)[: case.Lq, : case.Lk]
    return pairs


def test_each_word_stands_among_the_definitions() -> None:
    assert {word.word for text in DEFINED for word in parse_mask(text).words} >= {
        word.word for word in STRUCTURES
    }


@pytest.mark.parametrize("Lq", [5, 9])  # with 9, queries stand before the first key, or after the last
@pytest.mark.parametrize("mask", DEFINED)
def test_numpy_sdpa_and_the_oracle_compute_each_word_as_it_is_defined(mask: str, Lq: int) -> None:
    case = solved(f"attention/scaled_dot/B2-H2-Lq{Lq}-Lk7-D4/{mask}/float64")
    pairs = defined(case.case, DEFINED[mask])
    q, k, v = (x.numpy() for x in case.inputs)
    weights = np.exp(q @ k.swapaxes(-1, -2) / 2) * pairs
    total = weights.sum(-1, keepdims=True)
    expected = np.divide(weights @ v, total, out=np.zeros(q.shape), where=total > 0)
    np.testing.assert_allclose(case.expected, expected, atol=1e-13)
    for name in ("numpy", "sdpa_math"):
        assert refusal(BACKENDS[name], case.case) is None
        np.testing.assert_allclose(case.run(BACKENDS[name]).numpy(), expected, atol=1e-13)


@pytest.mark.parametrize("mask", DEFINED)
def test_block_sparse_kernels_compute_each_word_as_it_is_defined(mask: str) -> None:
    case = parse_case(f"selected/scaled_dot/B2-H2-Lq5-Lk7-D4-block2-top3/{mask}/float64")
    rng = np.random.default_rng(len(mask))
    q, k, v = (rng.standard_normal((2, 2, length, 4)) for length in (5, 7, 7))
    # Two or three of the four blocks, in any order.
    indices = rng.permuted(np.broadcast_to(np.arange(4), (2, 2, 5, 4)), axis=-1)[..., :3].astype(np.int32)
    indices[:, :, ::2, 1] = -1
    chosen = (indices[..., None] == np.arange(7) // 2).any(-2)
    weights = np.exp(q @ k.swapaxes(-1, -2) / 2) * (chosen & defined(case, DEFINED[mask]))
    total = weights.sum(-1, keepdims=True)
    expected = np.divide(weights @ v, total, out=np.zeros(q.shape), where=total > 0)
    setup = Setup(case, RULES["scaled_dot"], RULES["scaled_dot"].bind(case, {}), {}, {})
    for backend in (SELECTED_GATHER, SELECTED_MASK):
        found = backend.prepare(setup)(*map(torch.from_numpy, (q, k, v, indices)))
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-13, err_msg=backend.name)


def blocks_with_a_pair(kept: Keep, height: int, width: int) -> Keep:
    """The blocks, (B, H, rows, columns), in which a pair of (B, H, Lq, Lk) is kept."""
    B, H, Lq, Lk = kept.shape
    kept = np.pad(kept, [(0, 0), (0, 0), (0, -Lq % height), (0, -Lk % width)])
    return kept.reshape(B, H, -1, height, kept.shape[3] // width, width).any((3, 5))


@pytest.mark.parametrize("name", ["seeded documents", *(word.word for word in STRUCTURES)])
def test_flex_is_given_the_same_pairs_and_the_blocks_that_have_one(name: str) -> None:
    for seed in range(8):
        random = Random(seed)
        Lq, Lk, text = random.randint(1, 300), random.randint(2, 300), "document"
        if name in WORDS:
            text = WORDS[name].of_sort(WORDS[name].sorts[0], 2, Lk, random).text()
        beside = ("", "causal+", "causal:lower_right+window:20+", "padding+")[seed % 4]
        # A sink is one more key, which all queries see.
        rule = ("scaled_dot", "sinks")[seed // 4]
        case = parse_case(f"attention/{rule}/B2-H2-Lq{Lq}-Lk{Lk}-D1/{beside}{text}/float32")
        kept = np.ones((2, 2, Lq, Lk + (rule == "sinks")), bool)
        by_rows = keep_rows(case, np.arange(Lq))
        if by_rows is not None:
            kept[..., :Lk] = by_rows

        own = {"sink": torch.zeros(2)} if rule == "sinks" else {}
        mask = block_mask(Setup(case, RULES[rule], RULES[rule].bind(case, own), own, {}))
        assert mask is not None
        places = torch.meshgrid(*map(torch.arange, kept.shape), indexing="ij")
        assert np.array_equal(mask.mask_mod(*places).numpy(), kept), case
        finer = create_block_mask(mask.mask_mod, *kept.shape, device="cpu", BLOCK_SIZE=16)
        for blocks in (mask, finer):
            found = blocks.to_dense().bool().numpy()
            expected = blocks_with_a_pair(kept, *blocks.BLOCK_SIZE)
            assert np.array_equal(np.broadcast_to(found, expected.shape), expected), case


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("mask", MASKS)
def test_a_backend_computes_them_or_declines(name: str, mask: str) -> None:
    text = f"attention/sinks/B2-H4-Hkv2-Lq7-Lk9-D8/{mask}/float64"
    if refusal(BACKENDS[name], parse_case(text)) is not None:
        text = text.replace("sinks", "scaled_dot")
    if refusal(BACKENDS[name], parse_case(text)) is None:
        case = solved(text)
        np.testing.assert_allclose(case.run(BACKENDS[name]).numpy(), case.expected, atol=1e-13)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("rule", "mask"), [("sinks", MASKS[0]), ("scaled_dot", MASKS[3]), ("sinks", MASKS[4])]
)
def test_flex_computes_them_by_formula(rule: str, mask: str) -> None:
    case = solved(f"attention/{rule}/B2-H4-Hkv2-Lq7-Lk9-D16/{mask}/float32")
    if refusal(BACKENDS["flex"], case.case) is not None:
        pytest.skip("no compiler, or this torch compiles it wrongly")
    np.testing.assert_allclose(case.run(BACKENDS["flex"]).numpy(), case.expected, atol=2e-6)


def test_a_backend_that_does_not_declare_a_word_is_not_asked() -> None:
    mine = Backend("mine", "a test", prepare=lambda setup: lambda q, k, v: v)
    case = parse_case("attention/scaled_dot/H1-L8-D4/causal+chunked:4+first:1")
    said = ("unsupported", "takes no mask with chunked and first")
    assert declared(mine, case, RULES["scaled_dot"], devices=()) == said
    some = Backend("some", "a test", prepare=mine.prepare, masks=("causal", "chunked", "first"))
    assert declared(some, case, RULES["scaled_dot"], devices=()) is None
    other = parse_case("attention/scaled_dot/H1-L8-D4/window:2")
    assert declared(some, other, RULES["scaled_dot"], devices=()) == (
        "unsupported",
        "takes no mask with window",
    )
