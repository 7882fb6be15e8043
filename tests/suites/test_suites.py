"""The built-in suites, and the rows that cover all pairs of values, of which edges is made."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from make_edges import FILE, WEIGHTS, possible, text
from make_edges import VALUES as OTHERS

from attnbench.cases.covering import covering_rows
from attnbench.cases.ids import case_id
from attnbench.cases.select import check_case, select
from attnbench.cases.suites import read_suite
from attnbench.cases.work import all_pairs
from attnbench.masks import kept_pairs
from attnbench.plugins.registry import Registry, load_registry
from attnbench.rules import attnbench_rules
from attnbench.runner.forecast import forecast, plan_run
from attnbench.runner.options import make_options
from attnbench.types.batch import parse_batch
from attnbench.types.case import Case
from attnbench.types.extensions import Suite
from attnbench.types.problem import problems_of

VALUES = {"rule": tuple(rule.name for rule in attnbench_rules() if rule.kind == "scores")} | OTHERS
SUITE = read_suite(FILE)


ROWS = covering_rows(VALUES, possible, WEIGHTS)
"""Those of which most cases of the suite are made."""


def can_meet(pair: dict[str, Any]) -> bool:
    """Whether a whole case has both: tried out over all values of the parameters that could forbid it."""
    limiting = [name for name in VALUES if name not in pair and name != "layer"]
    return any(
        possible(pair | dict(zip(limiting, rest, strict=True)) | {"layer": pair.get("layer", {})})
        for rest in product(*(VALUES[name] for name in limiting))
    )


@pytest.mark.parametrize(("left", "right"), list(combinations(VALUES, 2)))
def test_every_two_conditions_that_can_meet_do(left: str, right: str) -> None:
    for a, b in product(VALUES[left], VALUES[right]):
        pair = {left: a, right: b}
        meets = any(row[left] == a and row[right] == b for row in ROWS)
        assert meets == can_meet(pair), pair


def test_the_file_is_what_its_script_writes() -> None:
    assert FILE.read_text(encoding="utf-8") == text()


def test_it_is_a_selection_and_not_a_product() -> None:
    assert 60 <= len(SUITE.cases) <= 120
    assert len({case_id(case) for case in SUITE.cases}) == len(SUITE.cases)


def test_it_is_for_checking_and_compiles_on_a_handful() -> None:
    assert SUITE.check_only
    assert 3 <= len(SUITE.compiled) <= 5
    compiled = [SUITE.cases[position] for position in SUITE.compiled]
    assert {case.operation for case in compiled} == {"attention"}
    assert len({case.mask for case in compiled}) == len(compiled)


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_registry()


def shapes(suite: Suite) -> set[tuple[int, ...]]:
    return {(c.B, c.H, c.Hkv, c.Lq, c.Lk, c.D, c.Dv) for c in suite.cases}


def test_every_case_makes_sense_to_its_rule(registry: Registry) -> None:
    for name in registry.suites:
        for case in registry.suite(name).cases:
            check_case(case, registry)


def test_smoke_has_every_rule_and_each_way_to_use_attention(registry: Registry) -> None:
    smoke = registry.suite("smoke")
    cases = smoke.cases
    assert {case.rule for case in cases} == {rule.name for rule in attnbench_rules() if rule.kind == "scores"}
    assert 10 <= len(cases) <= 15
    kinds = {
        "GQA": lambda c: 1 < c.Hkv < c.H,
        "MQA": lambda c: c.Hkv == 1 < c.H,
        "causal": lambda c: c.mask.causal == "upper_left",
        "lower right": lambda c: c.mask.causal == "lower_right" and c.Lq != c.Lk,
        "padding": lambda c: c.mask.padding is not None,
        "multihead": lambda c: c.operation == "multihead",
        "decode": lambda c: c.Lq == 1 < c.Lk,
        "no mask": lambda c: c.mask.is_none and c.Lq > 1,
    }
    assert [kind for kind, has in kinds.items() if not any(map(has, cases))] == []
    assert 1 <= len(smoke.compiled) <= 2


def test_a_call_in_smoke_takes_milliseconds(registry: Registry) -> None:
    def operations(case: Case) -> int:
        pairs = case.B * case.H * case.Lq * case.Lk
        around = 0 if case.layer is None else 8 * case.B * case.Lq * case.layer.E * case.H * case.D
        tanh = 150 * pairs * case.D if case.rule.startswith("additive") else 0
        return 2 * pairs * (case.D + case.Dv) + around + tanh

    # 70 GFLOP/s, and 0.4 to 0.5 thousand million tanh a second count as 150 operations each.
    assert max(map(operations, registry.suite("smoke").cases)) < 3e-3 * 70e9


def test_published_shapes(registry: Registry) -> None:
    assert shapes(registry.suite("qwen2.5-7b")) == {(1, 28, 4, 4096, 4096, 128, 128)}
    assert {(c.Lq, c.Lk, c.D) for c in registry.suite("stable-diffusion-1").cases} == {
        (4096, 4096, 40), (4096, 77, 40), (1024, 1024, 80), (1024, 77, 80), (256, 256, 160), (256, 77, 160),
    }  # fmt: skip


def test_the_grid_of_the_papers(registry: Registry) -> None:
    cases = registry.suite("paper-flash").cases
    assert len(cases) == 3 * 6 * 2
    assert {(c.H * c.D, c.B * c.Lq) for c in cases} == {(2048, 16384)}
    assert {c.Lq for c in cases} == {2**i for i in range(9, 15)}


def test_the_sweep_over_caches(registry: Registry) -> None:
    cases = registry.suite("decode-sweep").cases
    assert {(c.Lq, c.H, c.D) for c in cases} == {(1, 16, 128)}
    assert {(c.B, c.Lk, c.Hkv) for c in cases} == {
        (max(1, 2 ** (16 - i)), 2**i, Hkv) for i in range(8, 18) for Hkv in (1, 2, 16)
    }


SERVING = ("serving", "serving-qwen3", "serving-gpt-oss", "serving-gemma3", "serving-gpu")


@pytest.mark.parametrize("name", SERVING)
def test_a_suite_of_serving_has_each_kind_of_step_in_each_storage(registry: Registry, name: str) -> None:
    cases = registry.suite(name).cases
    assert {(case.dtype, case.pass_, case.device == "cuda") for case in cases} == {
        ("bfloat16", "forward", name == "serving-gpu")
    }
    kinds = {
        "prefill": lambda q, k: 1 < q == k,
        "decode": lambda q, k: 1 == q < k,
        "chunk": lambda q, k: 8 < q < k,
        "drafts": lambda q, k: 4 == q < k,
    }
    for storage in ("packed", "paged"):
        found = set()
        for batch in (parse_batch(case.batch) for case in cases if case.storage == storage):
            found.add(frozenset(kind for kind, has in kinds.items() if any(has(*each) for each in batch)))
        assert found == {
            *map(frozenset, ((kind,) for kind in kinds)),
            frozenset({"prefill", "decode", "chunk"}),
        }
    unlike = {len(set(parse_batch(case.batch))) for case in cases}
    assert max(unlike) >= 3
    # Only a mask that leaves a pair out is a mask.
    for case in cases:
        assert case.mask.is_none or sum(map(kept_pairs, problems_of(case))) < all_pairs(case)


def test_serving_takes_less_than_four_minutes_on_two_cores(registry: Registry) -> None:
    plan = plan_run(select(["serving"], registry), (), registry, make_options())
    foreseen = forecast(plan, cores=2, free_bytes=2**34)
    # flex compiles for one step alone.
    assert foreseen.cells == 25
    assert foreseen.total_s < 240


def pairs_of(values: dict[str, tuple[Any, ...]]) -> list[tuple[tuple[str, Any], tuple[str, Any]]]:
    return [
        ((left, a), (right, b))
        for left, right in combinations(values, 2)
        for a, b in product(values[left], values[right])
    ]


def covered(rows: list[dict[str, Any]], pair: tuple[tuple[str, Any], tuple[str, Any]]) -> bool:
    (left, a), (right, b) = pair
    return any(row[left] == a and row[right] == b for row in rows)


spaces = st.dictionaries(
    st.sampled_from("abcdef"), st.integers(1, 5).map(lambda n: tuple(range(n))), min_size=2
)


@given(spaces)
def test_every_pair_meets_and_rows_are_few(values: dict[str, tuple[int, ...]]) -> None:
    rows = covering_rows(values, lambda row: True)
    assert all(covered(rows, pair) for pair in pairs_of(values))
    assert all(list(row) == list(values) for row in rows)
    largest = sorted(map(len, values.values()))[-2:]
    assert largest[0] * largest[1] <= len(rows) <= 2 * largest[0] * largest[1]


def test_what_cannot_be_is_not_made_and_all_else_still_meets() -> None:
    values = {"a": (0, 1, 2), "b": (0, 1, 2), "c": (0, 1)}

    def possible(row: dict[str, Any]) -> bool:
        return not (row.get("a") == 0 and row.get("b") == 0)

    rows = covering_rows(values, possible)
    assert all(map(possible, rows))
    missed = [pair for pair in pairs_of(values) if not covered(rows, pair)]
    assert missed == [(("a", 0), ("b", 0))]


def test_where_pairs_leave_the_choice_weights_decide() -> None:
    values = {"a": tuple(range(6)), "b": tuple(range(6)), "c": (0, 1)}
    rows = covering_rows(values, lambda row: True, {"c": (9, 1)})
    often = sum(row["c"] == 0 for row in rows)
    assert 6 <= len(rows) - often <= len(rows) // 3
