from __future__ import annotations

import pytest

from attnbench.cases.select import check_case
from attnbench.plugins.registry import Registry, load_registry
from attnbench.rules import attnbench_rules
from attnbench.types.case import Case
from attnbench.types.extensions import Suite


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
    assert {case.rule for case in cases} == {rule.name for rule in attnbench_rules()}
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
