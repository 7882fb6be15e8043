"""How far one side's values differ, and how far the machine moved: by hand."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log
from statistics import quantiles

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_sides import cell

from attnbench.compare.numbers import Drift, moved_beside, reference_drift, spread_of, units_of


@given(st.lists(st.floats(-3, 3), min_size=2, max_size=30))
def test_the_spread_is_from_the_first_tenth_to_the_last(values: list[float]) -> None:
    tenths = quantiles(values, n=10, method="inclusive")
    assert spread_of(values) == pytest.approx(tenths[-1] - tenths[0], abs=1e-9)


def test_the_spread_of_eleven_leaves_out_one_on_either_side() -> None:
    assert spread_of([float(i) for i in range(11)]) == pytest.approx(8.0)
    assert spread_of([5.0]) == 0.0


def test_within_one_run_the_process_is_the_unit() -> None:
    units = units_of([cell(processes_ns=(10.0, 20.0, 40.0), parents=())], "process")
    assert units.logs == (log(10), log(20), log(40))
    assert units.span == pytest.approx(log(4))
    assert units.spread == pytest.approx(0.8 * log(4))


def test_of_several_runs_the_run_is() -> None:
    runs = [cell(processes_ns=(9.0, 10.0, 30.0)), cell(processes_ns=(20.0, 20.0, 20.0))]
    units = units_of(runs, "run")
    assert units.logs == (log(10), log(20))
    assert units.times_ns == (9.0, 10.0, 30.0, 20.0, 20.0, 20.0)
    assert units.span == pytest.approx(log(2))


def test_forks_of_one_server_that_differ_from_those_of_another_widen_the_spread() -> None:
    values = (exp(0.0), exp(1.0), exp(2.0)) * 3
    apart = units_of([cell(processes_ns=values, parents=(0, 1, 2) * 3)], "process")
    mixed = units_of([cell(processes_ns=values, parents=(0, 0, 0, 1, 1, 1, 2, 2, 2))], "process")
    assert apart.spread == pytest.approx(2.0)
    assert mixed.spread == pytest.approx(2.0)  # eight in ten of the values reach as far
    steps = (1.0,) * 8 + (exp(1.0),)
    assert units_of([cell(processes_ns=steps, parents=(0,) * 6 + (1,) * 3)], "process").spread < 1


def test_where_all_are_forks_of_one_process_its_luck_is_allowed_for() -> None:
    alike = cell(processes_ns=(1e5,) * 9, parents=(0,) * 9)
    assert units_of([alike], "process").spread == 0.05
    assert units_of([replace(alike, parents=(0, 1, 2) * 3)], "process").spread == 0
    assert units_of([replace(alike, parents=())], "process").spread == 0


def test_a_lone_process_keeps_the_quartiles_of_its_calls() -> None:
    lone = cell(processes_ns=(5.0,), calls_ns=(1, 2, 5, 6, 9))
    assert units_of([lone], "process").calls_ns == (1, 2, 5, 6, 9)
    assert units_of([lone, lone], "run").calls_ns == ()


def test_the_middle_reference_call_says_how_far_the_machine_moved() -> None:
    base = cell(reference_ns={"a": (10.0, 10.0, 99.0), "b": (10.0,), "c": (10.0,), "gone": (1.0,)})
    new = cell(reference_ns={"a": (11.0,), "b": (20.0,), "c": (8.0,), "late": (1.0,)})
    assert reference_drift([base], [new]) == pytest.approx(log(1.25))
    assert reference_drift([new], [base]) == pytest.approx(log(1.25))


def test_without_a_call_on_both_sides_nothing_is_known() -> None:
    assert reference_drift([cell(reference_ns={})], [cell()]) is None
    nonsense = {"copy": (0.0, float("nan"), float("inf"), -1.0)}
    assert reference_drift([cell(reference_ns=nonsense)], [cell()]) is None


def test_three_other_backends_are_enough_and_the_middle_one_counts() -> None:
    assert moved_beside([0.1, -0.3, 0.2]) == pytest.approx(0.1)
    assert moved_beside([-0.3, -0.2, -0.1]) == pytest.approx(0.2)
    assert moved_beside([0.1, 0.2]) is None
    assert Drift(0.1, 0.3).most == 0.3
    assert Drift(None, None).most == 0.0
