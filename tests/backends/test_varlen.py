"""torch's varlen_attn is called as its text says; a stand-in with its signature computes on a CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from attnbench.backends.varlen import VARLEN, supports
from attnbench.cases.ids import parse_case
from attnbench.plugins.registry import Registry, load_wanted
from attnbench.runner.case import refusal
from attnbench.storages.packed import plan
from attnbench.types.backend import Setup

varlen = pytest.importorskip("torch.nn.attention.varlen", reason="this torch has no such function")

HEADS = "H4-Hkv2-D16"


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_wanted([])


def stand_in(
    query: Tensor, key: Tensor, value: Tensor, cu_seq_q: Tensor, cu_seq_k: Tensor | None, max_q: int,
    max_k: int, *, return_aux: Any = None, scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1), enable_gqa: bool = False, seqused_k: Tensor | None = None,
    block_table: Tensor | None = None, num_splits: int | None = None,
) -> Any:  # fmt: skip
    """Attend one sequence after the other, from the lower right; lse is (H, T), as torch 2.13 returns it."""
    outs, sums = [], []
    for n in range(len(cu_seq_q) - 1):
        q = query[cu_seq_q[n] : cu_seq_q[n + 1]].double().transpose(0, 1)
        if block_table is None:
            assert cu_seq_k is not None
            own = [x[cu_seq_k[n] : cu_seq_k[n + 1]] for x in (key, value)]
        else:
            assert cu_seq_k is None
            assert seqused_k is not None
            pages = block_table[n, : -(-int(seqused_k[n]) // key.shape[1])].long()
            own = [x[pages].flatten(0, 1)[: seqused_k[n]] for x in (key, value)]
        assert q.shape[1] <= max_q
        assert len(own[0]) <= max_k
        assert enable_gqa or query.shape[1] == key.shape[-2]
        k, v = (x.double().transpose(0, 1).repeat_interleave(len(q) // x.shape[1], 0) for x in own)
        i = torch.arange(q.shape[1])[:, None] + k.shape[1] - q.shape[1]
        j = torch.arange(k.shape[1])
        left, right = window_size
        dropped = ((j > i + right) & (right >= 0)) | ((j < i - left) & (left >= 0))
        scores = (q @ k.mT * scale).masked_fill(dropped, -torch.inf)
        outs.append((scores.softmax(-1).nan_to_num(0) @ v).transpose(0, 1).to(query.dtype))
        sums.append(scores.logsumexp(-1).float())
    out = torch.cat(outs)
    return (out, torch.cat(sums, 1)) if return_aux and return_aux.lse else out


@pytest.mark.parametrize("word", ["none", "causal:lower_right", "causal:lower_right+window:6"])
@pytest.mark.parametrize("storage", ["packed", "paged:8"])
def test_masks_scale_lengths_and_tables_reach_the_function(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, storage: str, word: str
) -> None:
    monkeypatch.setattr(varlen, "varlen_attn", stand_in)
    case = parse_case(f"attention/scaled_dot@scale=0.4/q5s19_q3s16_q9-{HEADS}/{word}/float16/{storage}/lse")
    rule = registry.rule("scaled_dot")
    setup = Setup(case, rule, rule.bind(case, {}), {}, {})
    own = {"packed": "per_sequence", "paged:8": "gather"}[storage]
    known = registry.backend(own).prepare(setup)
    q, k, v = torch.randn(17, 4, 16), torch.randn(44, 2, 16), torch.randn(44, 2, 16)
    ahead = {name: torch.from_numpy(x) for name, x in plan(case).items()}
    if storage != "packed":
        # Pages 6 to 0, which hold the 44 keys and some junk.
        k, v = (torch.randn(7, 8, 2, 16) for _ in "kv")
        del ahead["cu_seqlens_k"]
        ahead["seqused_k"] = torch.tensor([19, 16, 9], dtype=torch.int32)
        ahead["block_table"] = torch.tensor([[6, 5, 4, -1], [3, 2, -1, -1], [1, 0, 6, 6]], dtype=torch.int32)
    q, k, v = (x.half() for x in (q, k, v))
    known.renew(ahead)
    for found, exact in zip(
        VARLEN.prepare(setup)(q, k, v, *ahead.values()), known(q, k, v, *ahead.values()), strict=True
    ):
        torch.testing.assert_close(found, exact, atol=2e-3, rtol=2e-3)


def test_on_a_cpu_it_is_unavailable_with_the_reason(registry: Registry) -> None:
    case = parse_case(f"attention/scaled_dot/2q8-{HEADS}/bfloat16/packed")
    assert refusal(VARLEN, case, registry.rule("scaled_dot"), devices=()) == (
        "unavailable",
        "runs on cuda only",
    )
    assert VARLEN.available("cpu") == "torch's varlen_attn runs on CUDA only"


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (f"scaled_dot/2q8-{HEADS}/causal/packed", "causal:lower_right with or without"),
        (f"scaled_dot/2q8-{HEADS}/causal:lower_right+bool/packed", "causal:lower_right with or without"),
        ("scaled_dot/2q8-H4-D16-Dv8/packed", "D and Dv must be equal"),
        ("sinks/2q8-H4-D16/paged", "adds nothing to scores"),
        ("softcap/2q8-H4-D16/paged", "no soft cap"),
    ],
)
def test_what_the_function_has_no_word_for_is_refused(registry: Registry, case: str, words: str) -> None:
    asked = parse_case(f"attention/{case}")
    assert words in (supports(asked, registry.rule(asked.rule)) or "")
