from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from attnbench.cases.ids import case_id, parse_case
from attnbench.cases.suites import parse_suite
from attnbench.plugins.registry import load_registry
from attnbench.runner.case import refusal
from attnbench.types.backend import Backend
from attnbench.types.case import Case
from attnbench.types.errors import BadCase, BadFile

CASE = Case("attention", "dot", B=1, H=2, Hkv=2, Lq=16, Lk=16, D=8, Dv=8)
TEXT = "attention/dot/B1-H2-Lq16-Lk16-D8/none/float32/cpu/forward"
REGISTRY = load_registry()


@pytest.mark.parametrize(
    ("p", "text"), [(0.0, ""), (0.1, "/dropout0.1"), (1e-7, "/dropout1e-07"), (0.5, "/dropout0.5")]
)
def test_golden_ids(p: float, text: str) -> None:
    case = replace(CASE, dropout=p)
    assert case_id(case) == TEXT + text
    assert parse_case(TEXT + text) == case


def test_it_stands_before_the_cache_mode() -> None:
    case = replace(CASE, dropout=0.25, cache="rotating", threads=2, seed=7)
    assert case_id(case) == TEXT + "/dropout0.25/rotating/threads2/seed7"


@pytest.mark.parametrize("p", [1.0, -0.1, float("nan"), True, "0.1"])
def test_what_is_no_probability_is_refused(p: Any) -> None:
    with pytest.raises(BadCase, match="give a probability from 0 to less than 1"):
        replace(CASE, dropout=p)


@pytest.mark.parametrize("word", ["dropout1", "dropout-0.1", "dropout", "dropoutnan"])
def test_ids_that_cannot_be(word: str) -> None:
    with pytest.raises(BadCase):
        parse_case(f"{TEXT}/{word}")


@pytest.mark.parametrize("pass_", ["backward", "both"])
def test_only_the_forward_pass_has_it(pass_: Any) -> None:
    with pytest.raises(BadCase, match="works in the forward pass only"):
        replace(CASE, dropout=0.1, pass_=pass_)


def test_suite_files_give_one_or_several() -> None:
    text = "[[cases]]\nrule='dot'\nH=2\nL=16\nD=8\ndropout=[0, 0.1]"
    assert parse_suite(text, "mine").cases == (CASE, replace(CASE, dropout=0.1))
    with pytest.raises(BadFile, match="dropout = 'much': give a number"):
        parse_suite(text.replace("[0, 0.1]", "'much'"), "mine")


def test_a_backend_that_does_not_say_that_it_drops_weights_is_unsupported() -> None:
    backend = Backend("mine", "a test", prepare=lambda setup: lambda q, k, v: v)
    case, rule = replace(CASE, dropout=0.1), REGISTRY.rule("dot")
    said = "unsupported", "drops no weights; the case has dropout 0.1"
    assert refusal(backend, case, rule, cuda_devices=()) == said
    assert refusal(backend, CASE, rule, cuda_devices=()) is None
    assert refusal(replace(backend, dropout=True), case, rule, cuda_devices=()) is None
