"""flex's mask and score functions: read one by one, and run by torch's unfused path, without a compiler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from solved import BACKENDS, refusal, solved
from test_backends_against_oracle import MASKS, texts
from torch.nn.attention import flex_attention
from torch.nn.attention.flex_attention import create_mask

from attnbench.backends import flex
from attnbench.backends.flex import block_mask, score_mod
from attnbench.kit.masks import additive_mask, keep_mask
from attnbench.types.backend import Setup

SIZES = "B2-H4-Hkv2-Lq17-Lk33-D8"


def setup(rule: str, mask: str) -> Setup:
    return solved(f"attention/{rule}/{SIZES}/{mask}/float32").setup


@pytest.mark.parametrize("mask", [mask for mask in MASKS if mask != "padding:0"] + ["padding:0,9"])
@pytest.mark.parametrize("rule", ["scaled_dot", "sinks"])
def test_the_mask_function_keeps_the_pairs_of_the_case_and_every_sink(rule: str, mask: str) -> None:
    case = setup(rule, mask)
    block = block_mask(case)
    if mask == "none":
        assert block is None
        return
    assert block is not None
    sinks = int(rule == "sinks")
    kept = create_mask(block.mask_mod, 2, 1, 17, 33 + sinks, device="cpu")
    expected = keep_mask(case.case, "cpu")
    assert expected is not None
    assert torch.equal(kept[..., :33], expected.expand(2, 1, 17, 33))
    assert kept[..., 33:].all()


def values(case: Setup, score: float) -> torch.Tensor:
    """What the score function makes of one and the same score everywhere."""
    modify = score_mod(case)
    assert modify is not None
    columns = 33 + (case.scoring.sink is not None)
    grid = torch.meshgrid(*(torch.arange(n) for n in (2, 4, 17, columns)), indexing="ij")
    return modify(torch.tensor(score), *grid).expand(2, 4, 17, columns)


def test_nothing_to_do_to_a_score_is_no_function() -> None:
    assert score_mod(setup("scaled_dot", "causal+padding")) is None
    assert score_mod(setup("general", "bool")) is None


def test_a_cap_comes_before_what_is_added() -> None:
    cap = setup("softcap", "none").scoring.dot
    assert cap is not None
    assert cap.cap is not None
    capped = cap.cap * torch.tanh(torch.tensor(5.0 / cap.cap))
    torch.testing.assert_close(values(setup("softcap", "none"), 5.0), capped.expand(2, 4, 17, 33))
    mask = additive_mask(setup("softcap", "float").case, torch.float32, "cpu")
    assert mask is not None
    torch.testing.assert_close(values(setup("softcap", "float"), 5.0), (capped + mask).expand(2, 4, 17, 33))


def test_a_bias_is_added_by_head() -> None:
    case = setup("alibi", "none")
    assert case.scoring.bias is not None
    bias = case.scoring.bias(slice(0, 17), slice(0, 33))
    torch.testing.assert_close(values(case, 2.0), (2 + bias).expand(2, 4, 17, 33))


@pytest.mark.parametrize("mask", ["none", "causal", "float"])
def test_a_sink_is_the_last_keys_score(mask: str) -> None:
    case = setup("sinks", mask)
    # The last key is a vector of zeros: its product is 0.
    scores = values(case, 0.0)
    assert case.scoring.sink is not None
    assert torch.equal(scores[..., 33], case.scoring.sink[:, None].expand(2, 4, 17))


@pytest.mark.filterwarnings("ignore:.*flex_attention:UserWarning")
@pytest.mark.parametrize(
    ("operation", "mask"), [("attention", mask) for mask in MASKS] + [("multihead", "float+causal+padding")]
)
def test_uncompiled_it_gives_the_oracles_output(
    operation: str, mask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def uncompiled(function: Any, **options: object) -> Any:
        assert options == {"fullgraph": True, "dynamic": False}
        return function

    monkeypatch.setattr(torch, "compile", uncompiled)
    monkeypatch.setattr(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    monkeypatch.setattr(flex, "configure", lambda: None)
    for text in texts(operation, mask, "float32"):
        case = solved(text)
        if refusal(BACKENDS["flex"], case.case) is None:
            error = np.abs(case.run(BACKENDS["flex"]).numpy() - case.expected).max()
            assert error < 1e-5, f"{text}: off by {error:.3g}"
