"""Verdicts on sides whose truth is known."""

from __future__ import annotations

from dataclasses import replace
from math import log
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_sides import BESIDE, LONG, SHORT, beside, cell, side, times

from attnbench.compare.stored import compare_sides
from attnbench.types.compared import Cell, ComparedCell, Measured


def mine(base: list[Measured], new: list[Measured], **said: float) -> ComparedCell:
    compared = compare_sides(base, new, delta_of=lambda _case, _backend: said.get("delta", 0.02))
    return next(one for one in compared.cells if one.backend == "mine")


def with_mine(factor: float = 1.0, **more: object) -> list[Measured]:
    return [side(replace(cell(middle_ns=1e5 * factor), **more), *beside())]  # type: ignore[arg-type]


def test_ten_percent_more_on_a_calm_machine_is_slower_and_less_is_faster() -> None:
    found = mine(with_mine(), with_mine(1.1))
    assert (found.verdict, found.reason) == ("slower", "")
    assert found.ratio == pytest.approx(1.1)
    assert 1.08 < found.low < 1.1 < found.high < 1.12
    assert (found.base_ms, found.new_ms) == (pytest.approx(0.1), pytest.approx(0.11))
    assert found.resolution == pytest.approx(0.02)
    assert mine(with_mine(1.1), with_mine()).verdict == "faster"


def test_alike_within_delta_is_the_same() -> None:
    assert mine(with_mine(), with_mine(1.001)).verdict == "same"
    assert mine(with_mine(), with_mine(1.1), delta=0.2).verdict == "same"
    close = mine(with_mine(), with_mine(1.019))
    assert (close.verdict, close.reason) == (
        "unclear", "the difference is close to --delta (2 %): give another",
    )  # fmt: skip


@given(st.integers(0, 2**32))
@settings(max_examples=20)
def test_a_run_compared_with_itself_is_the_same_throughout(seed: int) -> None:
    rng = Random(seed)
    run = drawn(rng, 0.05, 5, 0.3)
    for one in compare_sides(run, run).cells:
        assert (one.verdict, one.ratio, one.low, one.high, one.reason) == ("same", 1.0, 1.0, 1.0, "")
    assert mine(lone(1e6), lone(1e6)).verdict == "same"


def test_alike_beside_a_machine_that_moved_is_not_proved_the_same() -> None:
    moved = {name: tuple(1.1 * ns for ns in taken) for name, taken in cell().reference_ns.items()}
    assert mine(with_mine(), with_mine(reference_ns=moved)).verdict == "unclear"
    found = mine(with_mine(), with_mine(1.1, reference_ns=moved))
    assert found.verdict == "unclear"
    assert "the machine's reference calls moved by 10 %" in found.reason


@pytest.mark.parametrize(("memory_bytes", "verdict"), [(17e6, "unclear"), (None, "unclear"), (1e6, "slower")])
def test_memory_that_cores_share_moves_only_what_needs_it(memory_bytes: float | None, verdict: str) -> None:
    calm = cell().reference_ns | {"far_copy": (7e5,) * 9}
    moved = calm | {"far_copy": (9e5,) * 9}
    base = with_mine(reference_ns=calm, memory_bytes=memory_bytes)
    assert mine(base, with_mine(1.2, reference_ns=moved, memory_bytes=memory_bytes)).verdict == verdict
    assert mine(base, with_mine(1.2, reference_ns=calm, memory_bytes=memory_bytes)).verdict == "slower"


def test_nothing_finer_than_repetitions_differ_by_is_told() -> None:
    rough = times(1e5, spread=0.3)
    found = mine(with_mine(processes_ns=rough), with_mine(processes_ns=tuple(1.15 * ns for ns in rough)))
    assert found.verdict == "unclear"
    assert found.resolution == pytest.approx(0.83, abs=0.01)
    assert found.reason == (
        "less than 83 % can't be detected: repetitions of base differ by 27 %, those of new by 27 %, and the "
        "other backends of the case moved by 0 %"
    )


def test_what_all_backends_of_a_case_moved_by_is_put_down_to_the_machine() -> None:
    base = [side(cell(), *beside(), path=Path("base.jsonl"))]
    new = [side(cell(middle_ns=1.3e5), *beside(factor=1.3), path=Path("new.jsonl"))]
    compared = compare_sides(base, new)
    assert {one.verdict for one in compared.cells} == {"unclear"}
    assert "the other backends of the case moved by 30 %" in compared.cells[0].reason
    (warning,) = compared.warnings
    assert warning.startswith(f"all 5 backends are slower by 30 % or more on {SHORT}: the machine, or")


def test_one_backend_alone_is_told_from_the_machine_only_beyond_all_its_repetitions() -> None:
    """Nothing beside it shows how far the machine moved: the whole range counts."""
    rough = times(1e5, spread=0.2)
    alone = [side(cell(processes_ns=rough))]
    found = mine(alone, [side(cell(processes_ns=tuple(1.2 * ns for ns in rough)))])
    assert found.verdict == "unclear"
    assert found.resolution == pytest.approx((1.1 / 0.9) ** (2 * 1.25) - 1)
    assert mine(alone, [side(cell(processes_ns=tuple(1.7 * ns for ns in rough)))]).verdict == "slower"


def test_of_few_repetitions_only_a_factor_of_two_is_told() -> None:
    few = with_mine(processes_ns=times(1e5, count=5), parents=())
    found = mine(few, with_mine(processes_ns=times(1.5e5, count=3), parents=()))
    assert (found.verdict, found.low, found.resolution) == ("unclear", None, pytest.approx(1.0))
    assert found.reason.endswith("a side has 3 of the 6 repetitions that a finer verdict needs")
    assert mine(few, with_mine(processes_ns=times(2.1e5, count=3), parents=())).verdict == "slower"


def test_of_several_runs_each_counts_once_and_six_a_side_are_needed() -> None:
    runs = [with_mine(1 + i / 1000)[0] for i in range(6)]
    slow = [with_mine(1.1 + i / 1000)[0] for i in range(6)]
    assert mine(runs, slow).verdict == "slower"
    assert mine(runs[:3], slow[:3]).verdict == "unclear"
    assert mine(runs, with_mine(1.5)).verdict == "unclear"
    assert mine(runs, with_mine(2.5)).verdict == "slower"


def lone(middle: float, *, wide: float = 0.1, known: bool = True) -> list[Measured]:
    calls = (0.9, 1 - wide, 1.0, 1 + wide, 1.5)
    quartiles = tuple(middle * share for share in calls) if known else ()
    return [side(cell(processes_ns=(middle,), calls_ns=quartiles, parents=(), reference_ns={}))]


@pytest.mark.parametrize(
    ("factor", "wide", "known", "verdict"),
    [
        (2.2, 0.1, True, "slower"),
        (1 / 2.2, 0.1, True, "faster"),
        (1.9, 0.1, True, "unclear"),
        (1.01, 0.01, True, "unclear"),
        (2.2, 0.5, True, "unclear"),  # the middle halves overlap: up to 1.5, and from 1.1
        (2.2, 0.1, False, "unclear"),
    ],
)
def test_of_lone_repetitions_only_a_factor_of_two_beyond_their_calls_is_told(
    factor: float, wide: float, known: bool, verdict: str
) -> None:
    found = mine(lone(1e6, wide=wide, known=known), lone(1e6 * factor, wide=wide, known=known))
    assert (found.verdict, found.p_value, found.low) == (verdict, None, None)


def drawn(rng: Random, moment: float, cells: int, sd: float) -> list[Measured]:
    """A run of identical code: a moment that all share by case, processes and servers that differ."""
    found: list[Cell] = []
    for case in (SHORT, LONG):
        moved = rng.lognormvariate(0, moment)
        servers = {(name, i): rng.lognormvariate(0, sd) for name in ("mine", *BESIDE) for i in range(3)}
        for name in ("mine", *BESIDE)[:cells]:
            values = tuple(
                1e5 * moved * servers[name, i % 3] * rng.lognormvariate(0, sd) for i in range(9)
            )  # fmt: skip
            calls = {"gemm_256": (4e5 * rng.lognormvariate(0, moment),), "copy": (4e3 * moved,)}
            found.append(cell(name, case, processes_ns=values, reference_ns=calls))
    return [side(*found)]


@given(st.integers(0, 2**32), st.sampled_from([0.002, 0.02, 0.1]), st.sampled_from([0.002, 0.02, 0.1]))
@settings(max_examples=120, derandomize=True)  # one cell in some thousands may be: always the same draws
def test_identical_code_is_not_called_slower(seed: int, moment: float, sd: float) -> None:
    rng = Random(seed)
    compared = compare_sides(drawn(rng, moment, 5, sd), drawn(rng, moment, 5, sd))
    assert not {"slower", "faster"} & {one.verdict for one in compared.cells}


@given(st.integers(0, 2**32))
@settings(max_examples=60)
def test_whatever_is_slower_is_beyond_what_could_be_told(seed: int) -> None:
    rng = Random(seed)
    base, new = drawn(rng, 0.05, 5, 0.02), drawn(rng, 0.05, 5, 0.02)
    slowed = [
        replace(one, processes_ns=tuple(ns * rng.choice((1.0, 1.2, 2.0)) for ns in one.processes_ns))
        for one in new[0].cells
    ]
    for one in compare_sides(base, [side(*slowed)]).cells:
        assert one.ratio is not None
        assert one.resolution is not None
        if one.verdict in ("slower", "faster"):
            assert abs(log(one.ratio)) > log(1 + one.resolution)
            assert (one.low > 1) or (one.high < 1)
        else:
            assert one.reason or one.verdict == "same"


@pytest.mark.parametrize("calls", [0.0, 1.1, 1.01])
@pytest.mark.parametrize("backends", [1, 2, 3, 4])
def test_what_all_of_few_backends_moved_by_is_their_code_only_if_reference_calls_are_calm(
    backends: int, calls: float
) -> None:
    """calls: the factor by which reference calls moved; 0 for a file without any."""
    taken = cell().reference_ns if calls else {}
    moved = {name: tuple(calls * ns for ns in times) for name, times in taken.items()}
    base = [replace(one, reference_ns=taken) for one in beside()[:backends]]
    new = [replace(one, reference_ns=moved) for one in beside(factor=1.3)[:backends]]
    found = compare_sides([side(*base, path=Path("a"))], [side(*new, path=Path("b"))])
    told = (calls == 1.01 and backends < 4) or (calls == 0 and backends == 1)
    assert {one.verdict for one in found.cells} == {"slower" if told else "unclear"}
    assert len(found.warnings) == (not told and backends > 1)
    if not told and backends < 4:
        assert "which all moved by 30 % or more, don't tell the machine from" in found.cells[0].reason


def test_a_backend_that_moved_further_than_the_other_one_is_told() -> None:
    base = [replace(one, reference_ns={}) for one in beside()[:2]]
    new = [replace(one, reference_ns={}) for one in (beside(factor=1.1)[0], beside(factor=1.5)[1])]
    found = compare_sides([side(*base, path=Path("a"))], [side(*new, path=Path("b"))])
    assert [one.verdict for one in found.cells] == ["unclear", "slower"]
