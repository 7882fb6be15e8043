"""What is particular to one backend: its blocks, its limits, the path it takes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from judging import operators
from solved import BACKENDS, QUICK, RULES, refusal, solved, solved_by

from attnbench.backends import weighted_sum
from attnbench.backends.chunked import block_shape
from attnbench.cases.ids import parse_case
from attnbench.kit.masks import Chunk, additive_mask, chunks_of
from attnbench.types.backend import Setup


def setup(text: str) -> Setup:
    return solved(text).setup


def put_together(chunks: tuple[Chunk, ...], case: Setup) -> torch.Tensor:
    """The additive mask that the blocks say: -inf where there is none."""
    c = case.case
    whole = torch.full((c.B, c.H, c.Lq, c.Lk), -torch.inf, dtype=torch.float64)
    for chunk in chunks:
        for cols, added in chunk.blocks:
            whole[:, :, chunk.rows, cols] = 0 if added is None else added
    return whole


@pytest.mark.parametrize(
    "mask", ["none", "causal", "causal:lower_right+window:3", "padding:0,9", "bool", "float"]
)
@pytest.mark.parametrize("rule", ["dot", "alibi"])
def test_blocks_say_what_the_whole_mask_says(rule: str, mask: str) -> None:
    case = setup(f"attention/{rule}/B2-H4-Lq13-Lk11-D4/{mask}/float64")
    chunks = chunks_of(case, torch.float64, (3, 4))
    whole = additive_mask(case.case, torch.float64, "cpu", case.scoring)
    assert len(chunks) > 3
    expected = torch.zeros(2, 4, 13, 11, dtype=torch.float64) if whole is None else whole.expand(2, 4, 13, 11)
    assert torch.equal(put_together(chunks, case), expected)


def test_blocks_that_are_alike_are_one_and_dropped_ones_are_gone() -> None:
    case = setup("attention/alibi/B1-H4-L1024-D4/causal/float32")
    case = replace(case, case=replace(case.case, H=64, Hkv=64))
    rows, cols = block_shape(case)
    chunks = chunks_of(case, torch.float32, (rows, cols))
    blocks = [(chunk.rows, span, added) for chunk in chunks for span, added in chunk.blocks]
    assert all(span.start < rows_.stop for rows_, span, _ in blocks)
    distinct = {id(added) for *_, added in blocks}
    # One for each distance between a block's first row and first column: O(L), not O(L²).
    assert len(distinct) <= 1024 // rows + 1024 // cols
    assert len(blocks) > 2 * len(distinct)


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("attention/dot/B1-H1-L4096-D8", (512, 256)),
        ("attention/dot/B4-H32-L4096-D8", (16, 128)),
        ("attention/dot/B64-H64-L4096-D8", (16, 16)),
        ("attention/dot/B1-H8-Lq1-Lk100000-D8", (1, 32768)),
        ("attention/additive/B1-H8-L512-D64", (16, 32)),
        ("attention/dot/B1-H1-Lq3-Lk5-D8", (3, 5)),
    ],
)
def test_a_block_stays_in_cache(text: str, shape: tuple[int, int]) -> None:
    case = parse_case(text)
    assert block_shape(Setup(case, RULES[case.rule], None, {}, {})) == shape  # type: ignore[arg-type]


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("size", [30.0, 1000.0])
def test_large_scores_neither_overflow_nor_lose_their_largest(name: str, size: float) -> None:
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((1, 2, 9, 8)) for _ in range(3))
    # Scores reach thousands; the largest of row 0 is at the first key, of row 1 at the last.
    q[:, :, 0], q[:, :, 1] = k[:, :, 0] * 9, k[:, :, 8] * 9
    case = solved_by("attention/dot/H2-L9-D8/float64", (q * size, k, v))
    if refusal(BACKENDS[name], case.case) is None:
        np.testing.assert_allclose(
            case.run(BACKENDS[name]).numpy(), np.asarray(case.expected, np.float64), atol=1e-11
        )


def test_weighted_sum_stops_where_memory_would(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = BACKENDS["weighted_sum"]
    assert refusal(backend, parse_case("attention/dot/H8-L512-D64/float32")) is None
    words = refusal(backend, parse_case("attention/dot/B2-H8-L1024-D64/float32"))
    assert words == "stores B·H·Lq·Lk·Dv weighted values, 4.0 GiB here; at most 1 GiB is allowed"
    assert refusal(backend, parse_case("attention/dot/H8-L1024-D32/bfloat16")) is None
    monkeypatch.setattr(weighted_sum, "LARGEST_BYTES", 100)
    assert refusal(backend, parse_case("attention/dot/H8-L16-D8")) is not None


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ("H4-Hkv2-L8-D8-E32", "the module has no shared heads: Hkv must be H; here Hkv = 2 and H = 4"),
        ("H4-L8-D8-Dv4-E32", "the module needs Dv = D; here D = 8 and Dv = 4"),
        ("H4-L8-D8-E24", "the module needs E = H·D; here E = 24 and H·D = 32"),
        ("H4-L8-D8-E32-noout", "the module always has an output projection"),
        ("H4-L8-D8-E32", None),
    ],
)
def test_the_module_says_what_it_cannot_express(sizes: str, words: str | None) -> None:
    assert refusal(BACKENDS["nn_multihead_attention"], parse_case(f"multihead/scaled_dot/{sizes}")) == words


@pytest.mark.parametrize(
    ("text", "fast"),
    [
        ("L8-D8-E32-bias/causal", True),
        ("L8-D8-E32-bias/padding:4,8", True),
        ("L8-D8-E32-bias/padding:0,8", False),
        ("L8-D8-E32-bias/float", False),
        ("L8-D8-E32/none", False),
        ("Lq8-Lk9-D8-E32-bias/none", False),
    ],
)
def test_the_module_takes_its_fast_path_where_that_is_right(text: str, fast: bool) -> None:
    ran = operators(solved(f"multihead/scaled_dot/B2-H4-{text}/float32"), BACKENDS["nn_multihead_attention"])
    assert ("aten::_native_multi_head_attention" in ran) == fast


def test_the_modules_fast_path_still_gives_nan_for_an_empty_row() -> None:
    # The reason for keeping such cases off it: once this fails, they needn't be.
    module = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x, drop = torch.randn(1, 4, 8), torch.zeros(4, 4, dtype=torch.bool)
    drop[1] = True
    with torch.inference_mode():
        out = module(x, x, x, need_weights=False, attn_mask=drop)[0]
    assert out[0, 1].isnan().all()


def test_one_matrix_product_makes_q_k_and_v_in_self_attention() -> None:
    products = {}
    for name in ("eager", "fused_multihead"):
        case = solved("multihead/dot/B2-H4-L8-D8-E32/none/float32")
        with torch.inference_mode():
            call = BACKENDS[name].prepare(case.setup)
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
                call(*case.inputs)
        products[name] = sum(event.name == "aten::linear" for event in profiler.events())
    assert products == {"eager": 4, "fused_multihead": 2}


def test_numpy_shares_memory_with_the_tensors() -> None:
    seen: list[int] = []
    case = solved("attention/cosine/H2-L4-D4/none/float32")

    def reference(q: np.ndarray, k: np.ndarray, parameters: object, positions: np.ndarray) -> np.ndarray:
        seen.append(k.__array_interface__["data"][0])
        return q @ k.T

    rule = replace(case.setup.rule, reference=reference)
    BACKENDS["numpy"].prepare(replace(case.setup, rule=rule))(*case.inputs)
    assert seen[0] == case.inputs[1].data_ptr()
