"""A record that can't be what it should be is a fault of its plugin, in words, and is left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.plugins.kinds import fault
from attnbench.plugins.registry import load_registry
from attnbench.types.backend import Backend
from attnbench.types.extensions import Suite, VerdictRule
from attnbench.types.rule import Rule

BACKEND = Backend("mine", "a test", prepare=lambda setup: lambda q, k, v: v)
RULE = Rule(
    "mine",
    "q·k",
    "a test",
    reference=lambda q, k, parameters, positions: q @ k.T,
    bind=lambda case, parameters: None,  # type: ignore[arg-type,return-value]
    parameters=lambda case: (),
)
SUITE = Suite("mine", "a test", ())
VERDICT = VerdictRule("mine", "a test", decide=lambda contender, baseline: "unclear")


def test_good_records_have_no_fault() -> None:
    assert [fault(record) for record in (BACKEND, RULE, SUITE, VERDICT)] == [None] * 4


def test_no_built_in_has_a_fault() -> None:
    registry = load_registry()
    kinds = (registry.backends, registry.rules, registry.suites, registry.verdict_rules)
    entries = [entry for kind in kinds for entry in kind.values()]
    assert len(entries) > 30
    assert {entry.record.name: wrong for entry in entries if (wrong := fault(entry.record))} == {}


@pytest.mark.parametrize(
    "name", ["", None, ["mine"], "two words", "a/b", "a,b", "a|b", "\x1b[31m", "\udcff", "-x", "ä"]
)
def test_names_that_can_not_stand_in_an_id_or_a_table(name: Any) -> None:
    for record in (BACKEND, RULE, SUITE, VERDICT):
        words = fault(replace(record, name=name))
        assert words is not None
        assert words.startswith(f"the name {name!r}: letters, digits")


@given(st.from_regex(r"[a-z0-9][a-z0-9_.\-]{0,20}", fullmatch=True))
def test_any_plain_name_will_do(name: str) -> None:
    assert fault(replace(BACKEND, name=name)) is None


@pytest.mark.parametrize(
    ("record", "field", "value", "words"),
    [
        (BACKEND, "summary", None, "mine: summary = None: a text is needed"),
        (BACKEND, "prepare", None, "mine: prepare = None: a function is needed"),
        (BACKEND, "supports", "no", "mine: supports = 'no': a function is needed"),
        (BACKEND, "rules", "dot", "mine: rules = 'dot': a tuple of words is needed"),
        (BACKEND, "devices", None, "mine: devices = None: a tuple of words is needed"),
        (BACKEND, "devices", ("tpu",), "mine: devices = ('tpu',): words of cpu, cuda are needed"),
        (BACKEND, "operations", (), "mine: operations = (): one or more are needed"),
        (BACKEND, "dtypes", ("float8",), "words of float64, float32, bfloat16, float16 are needed"),
        (BACKEND, "layout", "XYZ", "words of BHLD, BLHD are needed"),
        (BACKEND, "quadratic_copies", "x", "mine: quadratic_copies = 'x': 0 or more"),
        (BACKEND, "quadratic_copies", -1, "mine: quadratic_copies = -1: 0 or more"),
        (BACKEND, "quadratic_copies", True, "mine: quadratic_copies = True: 0 or more"),
        (BACKEND, "dropout", 1, "mine: dropout = 1: true or false is needed"),
        (BACKEND, "needs_contiguous", "no", "mine: needs_contiguous = 'no': true or false is needed"),
        (BACKEND, "weights", True, "mine: weights = True: a function is needed"),
        (BACKEND, "marks", "_kernel", "mine: marks = '_kernel': a tuple of words is needed"),
        (BACKEND, "marks", (7,), "mine: marks = (7,): a tuple of words is needed"),
        (RULE, "formula", 3, "mine: formula = 3: a text is needed"),
        (RULE, "reference", None, "mine: reference = None: a function is needed"),
        (RULE, "sink", 3, "mine: sink = 3: a function is needed"),
        (VERDICT, "summary", 3, "mine: summary = 3: a text is needed"),
        (VERDICT, "decide", "slower", "mine: decide = 'slower': a function is needed"),
        (SUITE, "cases", None, "mine: cases: a tuple of Case is needed"),
        (SUITE, "cases", ("attention/dot/H1-L8-D8",), "mine: cases: a tuple of Case is needed"),
    ],
)
def test_each_wrong_field_is_named(record: Any, field: str, value: Any, words: str) -> None:
    said = fault(replace(record, **{field: value}))
    assert said is not None
    assert words in said


def test_what_is_optional_may_be_missing() -> None:
    assert fault(replace(BACKEND, rules=None, requires=())) is None
    assert fault(replace(RULE, sink=None, score_flops=None)) is None
