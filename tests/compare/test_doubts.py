"""Remarks on a time and reasons to doubt it: busy cores, kinds of device samples, work of other threads."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from made_repetitions import block, repetition_line

from attnbench.stats.doubts import (
    MODE_NOTES,
    hidden_work,
    mode_notes,
    one_thread_note,
    preempted_share,
    waiting_note,
)
from attnbench.types.record import DeviceMode, RepetitionLine


def line(cpu_ns: int, switches: list[int]) -> RepetitionLine:
    """Six samples of a millisecond."""
    return repetition_line(x=[block([1_000_000] * 6, cpu_ns=[cpu_ns] * 6, switches=switches)])


@pytest.mark.parametrize(
    ("wall_ns", "others_ns", "threads", "said"),
    [
        (2_000_000, 0, 2, True),
        (2_000_000, 6_000_000, 2, False),
        (2_000_000, 0, 1, False),
        pytest.param(200_000, 0, 2, False, id="too short to be divided"),
    ],
)
def test_a_case_of_threads_in_which_one_worked_says_so(
    wall_ns: int, others_ns: int, threads: int, *, said: bool
) -> None:
    samples = block([wall_ns] * 6, cpu_ns=[wall_ns] * 6, others_cpu_ns=others_ns)
    assert ("only one worked" in one_thread_note([repetition_line(x=[samples])], "x", threads)) == said


def test_preempted_samples_lost_time_and_were_put_off() -> None:
    """The calling thread also loses time where it sleeps while others work, and is then not put off."""
    half, one, all_of_them = [1, 1, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0], [1] * 6
    assert preempted_share([line(900_000, half)], "x") == 0.5
    assert preempted_share([line(1_000_000, all_of_them)], "x") == 0
    assert preempted_share([line(900_000, [0] * 6)], "x") == 0
    assert "other programs disturbed 50% of its samples" in waiting_note([line(900_000, half)], "x", 2)
    assert waiting_note([line(900_000, one)], "x", 2) == ""
    assert waiting_note([line(900_000, all_of_them)], "x", 1) == ""
    assert waiting_note([line(900_000, all_of_them)], "other", 2) == ""


def device_line(*modes: DeviceMode) -> RepetitionLine:
    return repetition_line(x=[block([9], mode=mode) for mode in modes])


def test_every_kind_of_sample_has_a_note_that_names_it() -> None:
    for mode in get_args(DeviceMode):
        notes = mode_notes([device_line(mode, mode), device_line(mode)], "x")
        assert notes == ([MODE_NOTES[mode]] if mode else [])
    both = [MODE_NOTES["batch"], MODE_NOTES["launches"]]
    assert mode_notes([device_line("batch"), device_line("launches")], "x") == both
    assert mode_notes([device_line("batch")], "other") == []


def repetitions(
    own_ms: float, others_ms: float, mode: DeviceMode = "", segments: int = 1
) -> list[RepetitionLine]:
    own, others = round(own_ms * 1e6), round(others_ms * 1e6)
    blocks = [
        block([1_000_000], segment=number, cpu_ns=[own], others_cpu_ns=others, mode=mode)
        for number in range(segments)
    ]
    return [repetition_line(mine=blocks)]


def test_a_thread_that_does_half_of_the_work_is_found_in_a_case_of_one_thread() -> None:
    found = repetitions(30, 30, segments=2)
    assert hidden_work(found, "mine", 1) == (
        "other threads of its process had 60 ms of CPU time while its samples, "
        "in a case of one thread, had 60 ms"
    )
    assert hidden_work(found, "mine", 2) == ""
    assert hidden_work(found, "yours", 1) == ""


@pytest.mark.parametrize("told", [(30, 0), (30, 5), (0.01, 1.9), (30, 30, "batch")])
def test_what_libraries_do_and_what_a_device_needs_is_no_doubt(told: Any) -> None:
    assert hidden_work(repetitions(*told), "mine", 1) == ""
