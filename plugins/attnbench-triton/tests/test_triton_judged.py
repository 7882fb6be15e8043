"""Outputs and gradients of the interpreted kernels, by attnbench's judge."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from attnbench_triton import TRITON_INTERPRETED
from judging import problem_of
from solved import magnified, solved
from test_gradients_by_backend import gradients_of, refused
from test_structured_masks import MASKS

from attnbench.masks import kept_keys

README = Path(__file__).parents[1] / "README.md"
TABLE = re.findall(r"\| `((?:attention|multihead)/\S+)` \|", README.read_text())
MORE = (
    "attention/scaled_dot/H4-Hkv2-L70-D16/float16",
    "attention/scaled_dot/H4-Hkv2-L70-D16/bfloat16",
    "attention/alibi/H4-Hkv2-L70-D16/bool/bfloat16",
    "attention/softcap/H2-Lq2-Lk70-D16/float/float16",
    "attention/sinks/H2-L20-D16/float/bfloat16",
    "attention/sinks/B2-H2-Lq70-Lk20-D8/causal:lower_right+padding",
    "attention/scaled_dot/B2-H2-L5-D4/padding:0,3",
    "attention/scaled_dot/H1-Lq1-Lk1-D1",
    "attention/scaled_dot/H2-Lq65-Lk2-D1/window:1",
)


@pytest.mark.parametrize("text", [*TABLE, *MORE])
def test_the_check_finds_no_problem(text: str) -> None:
    assert problem_of(TRITON_INTERPRETED, [solved(text)]) == ""


@pytest.mark.parametrize("text", [*TABLE, *MORE])
def test_nor_in_gradients(text: str) -> None:
    assert refused(f"{text}/both", lambda case: gradients_of(TRITON_INTERPRETED, case), draws=1) == set()


@pytest.mark.parametrize("queries", [7, 9])  # in the decoding kernel, and in that of many queries
def test_it_computes_each_word_of_a_mask(queries: int) -> None:
    for mask in MASKS:
        case = solved(f"attention/sinks/B2-H2-Hkv1-Lq{queries}-Lk9-D8/{mask}")
        assert problem_of(TRITON_INTERPRETED, [case]) == "", mask


def test_the_readme_has_its_table() -> None:
    assert len(TABLE) > 15


@pytest.mark.parametrize("shape", ["H2-Lq2-Lk300-D16", "H2-L70-D16"])
def test_scores_of_many_hundreds(shape: str) -> None:
    assert problem_of(TRITON_INTERPRETED, [magnified(f"attention/dot/{shape}", 20)]) == ""


def test_a_high_cap_changes_nothing_and_a_low_one_saturates() -> None:
    for text in ("attention/softcap@c=10000/H2-L20-D16", "attention/softcap@c=0.5/H2-L20-D16"):
        assert problem_of(TRITON_INTERPRETED, [magnified(text, 5)]) == ""


def test_rows_without_a_key_are_zero() -> None:
    for text, empty in (("H2-Lq80-Lk17-D8/causal:lower_right", 63), ("H2-Lq12-Lk7-D8/causal:lower_right", 5)):
        out = solved(f"attention/scaled_dot/{text}").run(TRITON_INTERPRETED)
        assert float(out[:, :, :empty].abs().max()) == 0
        assert float(out[:, :, empty:].abs().min()) > 0


@pytest.mark.filterwarnings("ignore:invalid value encountered in matmul")
@pytest.mark.parametrize(
    "text",
    ["Lq70-Lk100-D16/padding:40,90", "Lq70-Lk100-D16/causal", "Lq2-Lk100-D16/bool", "Lq2-Lk100-D16/float"],
)
def test_dropped_keys_may_hold_anything(text: str) -> None:
    case = solved(f"attention/scaled_dot/B2-H2-{text}")
    q, k, v = case.fresh_inputs()
    dropped = torch.from_numpy(~kept_keys(case.case))[..., None]
    assert dropped.any()
    call = TRITON_INTERPRETED.prepare(case.setup)
    with torch.inference_mode():
        clean = call(q, k, v)
        dirty = call(q, k.masked_fill(dropped, float("nan")), v.masked_fill(dropped, float("inf")))
    assert torch.equal(clean, dirty)


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize(
    "text",
    ["Lq70-Lk100-D16/padding:40,90", "Lq70-Lk100-D16/causal", "Lq2-Lk100-D16/bool", "Lq2-Lk100-D16/float"],
)
def test_nor_do_they_reach_gradients(text: str) -> None:
    case = solved(f"attention/scaled_dot/B2-H2-{text}/both")
    call = TRITON_INTERPRETED.prepare(case.setup)
    dropped = torch.from_numpy(~kept_keys(case.case))[..., None]
    assert dropped.any()
    found = []
    for key, value in ((0.0, 0.0), (float("nan"), float("inf"))):
        q, k, v = case.fresh_inputs()
        k, v = k.masked_fill(dropped, key), v.masked_fill(dropped, value)
        inputs = [x.detach().requires_grad_() for x in (q, k, v)]
        out = call(*inputs)
        found.append(torch.autograd.grad(out, inputs, torch.ones_like(out)))
    for clean, dirty in zip(*found, strict=True):
        assert torch.equal(clean, dirty)


def test_views_give_the_same_bits() -> None:
    """Heads and positions exchanged in memory, and features that do not lie together."""
    for text in ("H2-Hkv1-L66-D16/causal", "H4-Hkv2-Lq1-Lk70-D16"):
        case = solved(f"attention/scaled_dot/{text}/both")
        call = TRITON_INTERPRETED.prepare(case.setup)
        found = []
        for layout in (
            lambda x: x.clone(),
            lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
            lambda x: x.transpose(-1, -2).contiguous().transpose(-1, -2),
        ):
            inputs = [layout(x).requires_grad_() for x in case.inputs]
            out = call(*inputs)
            assert out.transpose(1, 2).is_contiguous() == inputs[0].transpose(1, 2).is_contiguous()
            upstream = layout(torch.linspace(-1, 1, out.numel()).view(out.shape))
            found.append((out, *torch.autograd.grad(out, inputs, upstream)))
        for other in found[1:]:
            for one, same in zip(found[0], other, strict=True):
                assert torch.equal(one, same)
