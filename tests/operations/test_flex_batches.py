"""flex on batches: its document mask holds sequences without queries or keys, and is made before calls."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from batch_judge import Judge
from torch.nn.attention import flex_attention

from attnbench.backends.flex import block_mask, held_lengths
from attnbench.cases.ids import parse_case
from attnbench.masks import keep_rows
from attnbench.plugins.registry import Registry, load_wanted
from attnbench.types.backend import Setup
from attnbench.types.problem import is_empty, problems_of

BATCH = "2q12_q9s20_q1s32_q5s3_q3s0_q0s4"
CASE = f"attention/{{}}/{BATCH}-H4-Hkv2-D8/{{}}/float32/{{}}"


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_wanted([])


@pytest.mark.parametrize("storage", ["packed", "padded"])
@pytest.mark.parametrize("rule", ["scaled_dot", "sinks"])
@pytest.mark.parametrize("mask", ["none", "causal", "causal:lower_right+window:4", "reach:2,1"])
def test_its_mask_keeps_the_keys_of_each_sequence(
    registry: Registry, rule: str, mask: str, storage: str
) -> None:
    case, record = parse_case(CASE.format(rule, mask, storage)), registry.rule(rule)
    assert registry.backend("flex").supports(case, record) is None
    own = {one.name: torch.zeros(case.H, *one.shape) for one in record.parameters(case)}
    made = block_mask(Setup(case, record, record.bind(case, own), own, {}))
    assert made is not None
    queries, keys = held_lengths(case)
    rows = 1 if storage == "packed" else case.B
    expected = np.zeros((rows, queries, keys), bool)
    first_q = first_k = 0
    for number, one in enumerate(problems_of(case)):
        row, i, j = (0, first_q, first_k) if storage == "packed" else (number, 0, 0)
        if not is_empty(one):
            own_pairs = keep_rows(one, np.arange(one.Lq))
            expected[row, i : i + one.Lq, j : j + one.Lk] = True if own_pairs is None else own_pairs[0, 0]
        first_q, first_k = first_q + one.Lq, first_k + one.Lk
    b, i, j = (torch.arange(size) for size in (rows, queries, keys + (rule == "sinks")))
    kept = made.mask_mod(b[:, None, None], torch.tensor(0), i[:, None], j).numpy()
    assert np.array_equal(kept[..., :keys], expected)
    assert kept[..., keys:].all()


def test_it_declines_what_its_mask_cannot_say(registry: Registry) -> None:
    supports = registry.backend("flex").supports
    for rule, mask, word in (
        ("alibi", "none", "adds nothing"), ("cosine", "none", "maps no queries"),
        ("scaled_dot", "bool", "a band of keys"), ("scaled_dot", "float", "a band of keys"),
    ):  # fmt: skip
        case = parse_case(CASE.format(rule, mask, "packed"))
        assert word in str(supports(case, registry.rule(rule)))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize(("rule", "storage"), [("scaled_dot", "packed"), ("sinks", "padded")])
def test_it_is_right_and_makes_its_mask_before_calls(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, rule: str, storage: str
) -> None:
    judge = Judge(registry, CASE.format(rule, "causal:lower_right", storage))
    assert judge.problem("flex") == ""
    ready = judge.given(judge.prepared("flex"), 0)
    monkeypatch.setattr(flex_attention, "create_block_mask", None)
    judge.answer(judge.given(ready, 1, fresh=False))
