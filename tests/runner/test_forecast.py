"""How long a run will take: what it is made of, and what makes it longer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_parts import CAUSAL, PLAIN

from attnbench.cases.ids import case_id, parse_case
from attnbench.plugins.registry import Registry, load_registry
from attnbench.runner import forecast as module
from attnbench.runner.forecast import CHILD_S, COMPILE_S, Forecast, RunPlan, call_s, forecast
from attnbench.runner.options import Options

LONG = "attention/dot/B1-H32-L4096-D128/none"
PLENTY = 2**60
REGISTRY = load_registry()


@pytest.fixture(scope="module")
def registry() -> Registry:
    return REGISTRY


def order(*cases: str, backends: tuple[str, ...] = ("eager", "bmm"), **more: object) -> RunPlan:
    return RunPlan(tuple(parse_case(case) for case in cases), backends, REGISTRY, Options(), **more)  # type: ignore[arg-type]


def of(_: Registry, asked: RunPlan, cores: int = 2, free: int = PLENTY, **dials: object) -> Forecast:
    return forecast(replace(asked, options=Options(**dials)), cores=cores, free_bytes=free)  # type: ignore[arg-type]


def test_a_case_is_its_budgets_and_its_processes(registry: Registry) -> None:
    whole = of(registry, order(PLAIN), budget_s=2.0, sets=20)
    (case,) = whole.cases
    assert (case.case, case.cells, case.over_budget) == (PLAIN, 2, False)
    # Two cells of 2 s each, warm calls and batons in between.
    assert 2 * 2.0 < case.timing_s < 2 * 2.0 * 2.5
    assert case.processes_s > 2 * 20 * CHILD_S
    assert case.compiling_s == 0
    assert whole.total_s == whole.start_s + case.total_s
    assert case.total_s == case.timing_s + case.processes_s + case.checking_s


@given(st.floats(0.01, 100), st.integers(1, 50))
def test_time_grows_with_the_dials(budget_s: float, sets: int) -> None:
    registry = REGISTRY
    base = of(registry, order(PLAIN), budget_s=budget_s, sets=sets)
    assert of(registry, order(PLAIN, CAUSAL), budget_s=budget_s, sets=sets).total_s > base.total_s
    assert of(registry, order(PLAIN), budget_s=budget_s, sets=sets + 1).cases[0].processes_s > (
        base.cases[0].processes_s
    )
    doubled = of(registry, order(PLAIN), budget_s=2 * budget_s, sets=sets)
    # Not always longer: of small budgets one sample a stretch is the least.
    assert doubled.cases[0].timing_s >= base.cases[0].timing_s
    assert doubled.cases[0].processes_s == base.cases[0].processes_s


def test_calls_longer_than_their_share_of_the_budget_take_the_fewest_calls(registry: Registry) -> None:
    """68 GFLOP are seconds a call on one core, and a tenth of a second is asked for."""
    (case,) = of(registry, order(LONG), budget_s=0.1, sets=9).cases
    each_s = call_s(parse_case(LONG), registry.rule("dot"))
    assert each_s == pytest.approx(4 * 32 * 4096**2 * 128 / module.FLOPS_PER_S["cpu"])
    # Fewer sets (three), two stretches of one call, two cells.
    assert case.timing_s == pytest.approx(2 * 3 * 2 * each_s, rel=0.05)
    assert case.over_budget


def test_decoding_takes_as_long_as_its_memory(registry: Registry) -> None:
    """Sixteen times the keys and values for as many operations; it was told to take as long."""
    few, many = of(
        registry, order(*(f"attention/dot/B32-H16-Hkv{n}-Lq1-Lk256-D128/none" for n in (1, 16)))
    ).cases
    assert few.timing_s == many.timing_s
    assert many.checking_s > 5 * few.checking_s
    assert many.processes_s > 2 * few.processes_s


def test_threads_shorten_calls_and_keep_processes(registry: Registry) -> None:
    """With threads a prepared process can't be forked: three templates take the place of children."""
    threaded = f"{case_id(parse_case(LONG))}/threads4"
    (one,), (four,) = of(registry, order(LONG)).cases, of(registry, order(threaded)).cases
    assert four.timing_s == pytest.approx(one.timing_s / 4, rel=0.05)
    assert of(registry, order(threaded)).start_s == 2 * of(registry, order(LONG)).start_s


def test_what_is_refused_before_it_starts_is_no_cell() -> None:
    def cells(plan: RunPlan, free: int = PLENTY) -> int:
        return forecast(plan, cores=2, free_bytes=free).cells

    assert cells(order(PLAIN, backends=("eager", "bmm", "fused_multihead"))) == 2, "it computes layers only"
    # Compiling backends run where the suite lets them, or where they are named.
    names = ("eager", "compiled", "flex")
    assert cells(order(PLAIN, backends=names)) == 3
    elsewhere = order(PLAIN, backends=names, compiled_on=frozenset({CAUSAL}))
    assert cells(elsewhere) == 1
    assert cells(replace(elsewhere, named=("flex",))) == 2
    # Without memory only what holds no array by pair could run, and not even that.
    assert cells(order(PLAIN, backends=names), free=100) == 0


def test_compiling_is_shared_by_the_cores(registry: Registry) -> None:
    both = order(PLAIN, backends=("eager", "compiled", "flex"))
    assert of(registry, both, cores=1).cases[0].compiling_s == 2 * COMPILE_S
    assert of(registry, both, cores=2).cases[0].compiling_s == COMPILE_S
    assert of(registry, both, cores=1).cases[0].checking_s > of(registry, both, cores=2).cases[0].checking_s


def test_a_case_that_every_backend_is_refused_on_takes_no_time(registry: Registry) -> None:
    asked = order(PLAIN, backends=("fused_multihead",))
    assert of(registry, asked).cases[0].total_s == 0


def test_checking_alone_is_neither_timed_nor_repeated(registry: Registry) -> None:
    (case,) = of(registry, order(PLAIN), timed=False).cases
    assert case.timing_s == case.processes_s == 0
    assert 0 < case.checking_s < of(registry, order(PLAIN)).cases[0].checking_s
