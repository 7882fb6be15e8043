"""Remarks on a time and reasons to doubt it: busy cores, kinds of device samples, work of other threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import msgspec
import pytest
from made_sets import block, set_line

from attnbench.stats.doubts import MODE_NOTES, hidden_work, mode_notes, preempted_share, waiting_note
from attnbench.types.record import Block, DeviceMode, SetLine


def line(wall_ns: list[int], cpu_ns: list[int] | None = None, switches: list[int] | None = None) -> SetLine:
    n = len(wall_ns)
    block = Block(0, list(range(n)), 1, wall_ns, cpu_ns or wall_ns, switches or [0] * n, [0] * n, [])
    return SetLine("case", 0, [0], ["x"], {}, {"x": [block]}, ["x"], {})


def test_preempted_samples_lost_time_and_were_put_off() -> None:
    """The calling thread also loses time where it sleeps while others work, and is then not put off."""
    wall, lost = [1_000_000] * 6, [900_000] * 6
    assert preempted_share([line(wall, lost, [1, 1, 1, 0, 0, 0])], "x") == 0.5
    assert preempted_share([line(wall, wall, [1] * 6)], "x") == 0
    assert preempted_share([line(wall, lost)], "x") == 0
    assert preempted_share([], "x") == 0
    assert "50% of its samples were preempted" in waiting_note([line(wall, lost, [1, 1, 1, 0, 0, 0])], "x", 2)
    assert waiting_note([line(wall, lost, [1, 0, 0, 0, 0, 0])], "x", 2) == ""
    assert waiting_note([line(wall, lost, [1] * 6)], "x", 1) == ""
    assert waiting_note([line(wall, lost, [1] * 6)], "other", 2) == ""


def device_line(*modes: DeviceMode) -> SetLine:
    blocks = [Block(0, [0], 1, [9], [9], [0], [0], [], mode=mode) for mode in modes]
    return SetLine("case", 0, [0], ["x"], {}, {"x": blocks}, ["x"], {})


def test_every_kind_of_sample_has_a_note_that_names_it() -> None:
    for mode in get_args(DeviceMode):
        notes = mode_notes([device_line(mode, mode), device_line(mode)], "x")
        assert notes == ([MODE_NOTES[mode]] if mode else [])
    assert MODE_NOTES["batch"].startswith("batch: ")
    assert MODE_NOTES["cold"].startswith("cold: ")


def test_kinds_that_differ_between_sets_are_both_named() -> None:
    assert mode_notes([device_line("batch"), device_line("launches")], "x") == [
        MODE_NOTES["batch"],
        MODE_NOTES["launches"],
    ]
    assert mode_notes([device_line("batch")], "other") == []
    assert mode_notes([device_line("")], "x") == []


@dataclass(frozen=True)
class Told:
    own_ms: float
    others_ms: float
    mode: str = ""


def sets(*stretches: Told) -> list[SetLine]:
    blocks = []
    for number, told in enumerate(stretches):
        one = block([1_000_000], stretch=number)
        blocks.append(
            msgspec.structs.replace(
                one,
                cpu_ns=[round(told.own_ms * 1e6)],
                others_cpu_ns=round(told.others_ms * 1e6),
                mode=told.mode,
            )
        )
    return [set_line(mine=blocks)]


def test_a_thread_that_does_half_of_the_work_is_found() -> None:
    assert hidden_work(sets(Told(30, 30), Told(30, 30)), "mine", 1) == (
        "other threads of its process had 60 ms of CPU time while its samples, "
        "in a case of one thread, had 60 ms"
    )


@pytest.mark.parametrize("told", [Told(30, 0), Told(30, 5), Told(0.01, 1.9), Told(30, 30, "batch")])
def test_what_libraries_do_and_what_a_device_needs_is_no_doubt(told: Told) -> None:
    assert hidden_work(sets(told), "mine", 1) == ""


def test_a_case_of_several_threads_has_several() -> None:
    assert hidden_work(sets(Told(30, 30)), "mine", 2) == ""


def test_who_has_no_samples_hid_nothing() -> None:
    assert hidden_work(sets(Told(30, 30)), "yours", 1) == ""
