"""Every backend computes masks of documents, prefixes, chunks and their kin, or declines them."""

from __future__ import annotations

import numpy as np
import pytest
from solved import BACKENDS, QUICK, RULES, refusal, solved

from attnbench.cases.ids import parse_case
from attnbench.runner.case import refusal as declared
from attnbench.types.backend import Backend

MASKS = (
    "causal:lower_right+window:3+document:4,5+first:2",
    "causal+chunked:4+image:1,3",
    "window:2+padding:9,6+global:2",
    "causal:lower_right+tree:0,0,1,2",
    "reach:3,1+prefix:2",
    "dilated:2+blocks:3+float",
    "document",
)


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
