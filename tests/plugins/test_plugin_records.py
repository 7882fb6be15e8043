"""The table of kinds agrees with hooks and registry; wrong fields and names are told in words."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import attnbench
from attnbench import hookspecs
from attnbench.plugins.kinds import KINDS, fault
from attnbench.plugins.registry import load_registry
from attnbench.reports.columns import HEADS, KEYS, record_row, table_columns
from attnbench.reports.judged import JudgedRecord
from attnbench.types.backend import Backend
from attnbench.types.case import Case
from attnbench.types.errors import BadInput
from attnbench.types.extensions import EnvironmentFact, Metric, Reporter, Suite, VerdictRule
from attnbench.types.operation import Operation
from attnbench.types.record import Accuracy, Record
from attnbench.types.rule import Rule
from attnbench.types.words import nearest, unknown_name

BACKEND = Backend("mine", "a test", prepare=lambda setup: lambda q, k, v: v)
RULE = Rule(
    "mine",
    "q·k",
    "a test",
    reference=lambda q, k, parameters, positions: q @ k.T,
    bind=lambda case, parameters: None,  # type: ignore[arg-type,return-value]
)
OPERATION = Operation(
    "mine",
    "a test",
    inputs=lambda case, rule: (),
    outputs=lambda case: (),
    flops=lambda case, rule, pairs: 0,
    solve=lambda problem: {},
)
SUITE = Suite("mine", "a test", (Case("attention", "dot", 1, 1, 1, 4, 4, 4, 4),))
VERDICT = VerdictRule("mine", "a test", decide=lambda candidate, baseline: "unclear")
METRIC = Metric("price", "a test", "$/call", value=lambda record, case: 1.0)
REPORTER = Reporter("lines", "a test", render=lambda rows, runs: "")
FACT = EnvironmentFact("turbo", "a test", read=lambda: True)
ALL = (BACKEND, RULE, OPERATION, SUITE, VERDICT, METRIC, REPORTER, FACT)


def test_every_hook_has_its_kind() -> None:
    hooks = [name for name in vars(hookspecs) if name.startswith("attnbench_")]
    assert sorted(hooks) == sorted(kind.hook for kind in KINDS)


def test_good_records_and_built_in_ones_have_no_fault() -> None:
    registry = load_registry()
    built_in = [entry.record for kind in KINDS for entry in getattr(registry, kind.field).values()]
    optional = (replace(BACKEND, rules=None, requires=()), replace(RULE, sink=None, score_flops=None))
    assert len(built_in) > 30
    assert [found for record in (*ALL, *optional, *built_in) if (found := fault(record))] == []


@pytest.mark.parametrize(
    "name", ["", None, ["mine"], "two words", "a/b", "a,b", "a|b", "\x1b[31m", "\udcff", "-x", "ä"]
)
def test_names_that_can_not_stand_in_an_id_or_a_table(name: Any) -> None:
    for record in ALL:
        assert str(fault(replace(record, name=name))).startswith(f"the name {name!r}: use letters, digits")


@pytest.mark.slow
@given(st.from_regex(r"[a-z0-9][a-z0-9_.\-]{0,20}", fullmatch=True))
def test_any_plain_name_will_do(name: str) -> None:
    assert fault(replace(BACKEND, name=name)) is None


FUNCTION, TEXT, TUPLE = "a function is needed", "a text is needed", "a tuple of printable words is needed"
FLAG, LINE = "true or false is needed", "one line of at most 600 printable characters is needed"
OWN = "attnbench itself has one of this name: choose another"
POSITIONS = "a frozenset of positions of cases is needed"
COUNTS = "a tuple of numbers above 0 is needed, one for each case"
HEAD = "1 to 24 printable characters are needed"


@pytest.mark.parametrize(
    ("record", "field", "value", "needed"),
    [
        (BACKEND, "summary", "two\nlines", LINE),
        (BACKEND, "prepare", None, FUNCTION),
        (BACKEND, "supports", "no", FUNCTION),
        (BACKEND, "rules", "dot", TUPLE),
        (BACKEND, "devices", ("tpu",), "a tuple of words of cpu, cuda is needed"),
        (BACKEND, "operations", (), "a tuple of one word or more is needed"),
        (BACKEND, "dtypes", ("float8",), "a tuple of words of float64, float32, bfloat16, float16 is needed"),
        (BACKEND, "layout", "XYZ", "one of BHLD, BLHD is needed"),
        (
            BACKEND,
            "computes_in",
            "fp8",
            "one of float32, tf32, float16, bfloat16, int8, float8_e4m3 is needed",
        ),
        (BACKEND, "quadratic_copies", -1, "a whole number of 0 or more is needed"),
        (BACKEND, "quadratic_copies", True, "a whole number of 0 or more is needed"),
        (BACKEND, "dropout", 1, FLAG),
        (BACKEND, "weights", True, FUNCTION),
        (BACKEND, "marks", (7,), TUPLE),
        (RULE, "formula", 3, TEXT),
        (RULE, "sink", 3, FUNCTION),
        (OPERATION, "draw", 3, FUNCTION),
        (OPERATION, "trivial", 3, FUNCTION),
        (VERDICT, "decide", "slower", FUNCTION),
        (SUITE, "cases", ("attention/dot/H1-L8-D8",), "a tuple of Case is needed"),
        (SUITE, "check_only", "no", FLAG),
        (SUITE, "counts", (1.0, 2.0), COUNTS),
        (SUITE, "counts", (), COUNTS),
        (SUITE, "counts", (-1.0,), COUNTS),
        (SUITE, "compiled", frozenset({1}), POSITIONS),
        (SUITE, "compiled", (0,), POSITIONS),
        (BACKEND, "forkable", "no", FLAG),
        (RULE, "pairs_keys", None, FLAG),
        (METRIC, "digits", 0, "a whole number of 1 or more is needed"),
        (METRIC, "head", None, TEXT),
        (METRIC, "head", "x" * 25, HEAD),
        (REPORTER, "name", "markdown", OWN),
        (FACT, "read", True, FUNCTION),
    ],
)
def test_each_wrong_field_is_named(record: Any, field: str, value: Any, needed: str) -> None:
    wrong = replace(record, **{field: value})
    assert fault(wrong) == f"{wrong.name}: {field} = {value!r}: {needed}"


@pytest.mark.parametrize(
    ("field", "value", "needed"),
    [
        ("head", "×mine", "attnbench has a column with this head: choose another"),
        ("head", "limit", "attnbench has a column with this head: choose another"),
        ("name", "Lq", OWN),
    ],
)
def test_a_metric_with_the_name_of_a_column_is_refused_before_a_run(
    tmp_path: Path, field: str, value: str, needed: str
) -> None:
    wrong = replace(METRIC, **{field: value})
    plugin = tmp_path / "metric.py"
    plugin.write_text(
        "from attnbench import Metric, hookimpl\n\n\n@hookimpl\ndef attnbench_metrics():\n"
        f"    return [Metric({wrong.name!r}, 'x', {wrong.head!r}, lambda record, case: None)]\n"
    )
    told = f"a Metric that can't be used: {wrong.name}: {field} = {value!r}: {needed}"
    with pytest.raises(BadInput, match=re.escape(told)):
        attnbench.run("attention/dot/H1-L4-D4", "eager", plugins=str(plugin), out=tmp_path)


def test_names_and_heads_of_all_own_columns_are_reserved() -> None:
    case = "attention/dot/B1-H1-Lq4-Lk4-D4/none/float32/cpu/forward"
    numbers = Accuracy(1e-7, 1e-6, 1e-7, 1e-6, 4e-7, 6e-6, 1, 1, 1)
    whole = Record(
        case, "dot", "mine", "ok", median_ms=1.0, low_ms=0.9, high_ms=1.1, ratio=2.0, ratio_low=1.9,
        ratio_high=2.1, baseline="eager", best="eager", ratio_to_best=2.0, accuracy=numbers, tflops=1.0,
        gbps=1.0, limit_share=0.5, peak_extra_bytes=1, prepare_ms=1.0, first_call_ms=1.0,
    )  # fmt: skip
    judged = JudgedRecord(whole, "slower")
    assert tuple(record_row(judged)) == KEYS
    heads = {column.head for column in table_columns([judged])}
    assert len(heads) == 16
    assert heads - set(HEADS) == {"×eager"}


def test_an_operation_is_solved_itself_or_on_heads() -> None:
    assert fault(replace(OPERATION, solve=None)) == "mine: exactly one of solve and heads is needed"


KNOWN = ["eager", "bmm", "sdpa_flash", "sdpa_math", "nn_multihead_attention", "chunked", "compiled"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("spda", "sdpa_flash"), ("sdpa", "sdpa_flash"), ("sdpa_mth", "sdpa_math"), ("Eager", "eager"),
        ("egaer", "eager"), ("chunk", "chunked"), ("compile", "compiled"), ("nn", "nn_multihead_attention"),
        ("xyz", None), ("", None),
    ],
)  # fmt: skip
def test_what_was_probably_meant(typed: str, meant: str | None) -> None:
    assert nearest(typed, KNOWN) == meant


def test_where_there_is_nothing_to_name() -> None:
    assert unknown_name("rule", "xyz", []) == "no rule 'xyz'; there are none."


@given(st.lists(st.text(min_size=1), min_size=1, unique_by=str.lower))
def test_a_name_is_nearest_to_itself(names: list[str]) -> None:
    assert nearest(names[0], names) == names[0]
