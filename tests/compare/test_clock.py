"""A worker's clock is held against the CPU time that the system counts for its samples."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_repetitions import block, repetition_line

from attnbench.stats.doubts import clock_problem
from attnbench.types.record import RepetitionLine

US, MS = 1_000, 1_000_000

WORKED_NS = st.lists(st.integers(100 * US, 100 * MS), min_size=1, max_size=40)
"""How long the thread had its core in each sample of a run, which may be a single one."""


def run(worked_ns: list[int], told_ns: list[int], a_segment: int = 3, **more: Any) -> list[RepetitionLine]:
    """A run of one segment a repetition; more: of its blocks."""
    segments = [slice(start, start + a_segment) for start in range(0, len(told_ns), a_segment)]
    return [
        repetition_line(i, mine=[block(told_ns[each], cpu_ns=worked_ns[each], **more)])
        for i, each in enumerate(segments)
    ]


@given(WORKED_NS, st.data())
def test_an_honest_clock_is_believed_however_long_the_thread_waited(
    worked_ns: list[int], data: st.DataObject
) -> None:
    """Waits of a second, as beside a hundred busy processes; and what a clock's reading costs."""
    size = len(worked_ns)
    waits = data.draw(st.lists(st.integers(-15 * US, 1000 * MS), min_size=size, max_size=size))
    told = [worked + wait for worked, wait in zip(worked_ns, waits, strict=True)]
    assert clock_problem(run(worked_ns, told, data.draw(st.integers(1, 40))), "mine") == ""


@given(WORKED_NS, st.integers(3, 1_000), st.data())
def test_a_clock_at_a_third_of_its_speed_or_less_is_doubted_where_it_moves_the_median(
    worked_ns: list[int], slower: int, data: st.DataObject
) -> None:
    """It says so in most samples; in half of them or fewer the median stays an honest sample's."""
    size = len(worked_ns)
    wrong = set(data.draw(st.permutations(range(size)))[: data.draw(st.integers(0, size))])
    told = [worked // slower if i in wrong else worked for i, worked in enumerate(worked_ns)]
    doubted = clock_problem(run(worked_ns, told, data.draw(st.integers(1, 40))), "mine") != ""
    assert doubted == (2 * len(wrong) > size)


@given(WORKED_NS, st.sampled_from(["batch", "launches", "cold"]))
def test_a_device_that_is_faster_than_its_launches_is_believed(worked_ns: list[int], mode: str) -> None:
    told = [worked // 100 for worked in worked_ns]
    assert clock_problem(run(worked_ns, told, mode=mode, host_ns=worked_ns[:3]), "mine") == ""


@pytest.mark.parametrize("repetitions", [[], run([9 * MS], [1])], ids=["no repetition", "of another backend"])
def test_where_there_are_no_samples_nothing_is_doubted(repetitions: list[RepetitionLine]) -> None:
    assert clock_problem(repetitions, "another") == ""


def test_where_the_system_counts_no_cpu_time_nothing_is_doubted() -> None:
    assert clock_problem(run([0] * 9, [4 * US] * 9), "mine") == ""


def test_a_clock_that_runs_at_a_hundredth_is_told_with_both_times() -> None:
    assert clock_problem(run([400 * US] * 9, [4 * US] * 9), "mine") == (
        "its samples take 0.004 ms by its own clock (median), "
        "but their calls had 0.4 ms of CPU time by the system's"
    )
