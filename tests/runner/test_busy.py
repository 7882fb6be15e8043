"""Cores that other work uses: read from counters of the system, told where threads would share them."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnbench.runner import machine as busy
from attnbench.runner.machine import (
    CoreTime,
    allowed_cpus,
    busy_shares,
    busy_warning,
    core_times,
    sharing_note,
    watch_cores,
)

STAT = """\
cpu  300 0 60 900 40 0 0 20 7 0
cpu0 100 10 20 600 30 1 2 3 50 5
cpu12 200 0 40 300 10 0 0 17 0 0
intr 5 cpu3 1 1
ctxt 1
"""


def test_times_of_cores_are_read_without_guests_twice_and_with_what_was_stolen() -> None:
    assert core_times(STAT) == {0: CoreTime(136, 766), 12: CoreTime(257, 567)}
    assert core_times("") == {}


def test_the_share_is_that_between_two_readings() -> None:
    before = {0: CoreTime(100, 1000), 1: CoreTime(0, 1000), 2: CoreTime(5, 5)}
    after = {0: CoreTime(125, 1100), 1: CoreTime(100, 1100), 3: CoreTime(1, 1)}
    assert busy_shares(before, after) == {0: 0.25, 1: 1.0}
    assert busy_shares(before, before) == {0: 0, 1: 0, 2: 0}


def test_this_machine_tells() -> None:
    shares = watch_cores(0.02)
    assert set(allowed_cpus()) <= set(shares)
    assert all(0 <= share <= 1 for share in shares.values())


def test_nobody_waits_where_the_system_does_not_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(busy.time, "sleep", slept.append)
    assert watch_cores(7, tmp_path / "nothing") == {}
    assert slept == []
    (tmp_path / "stat").write_text(STAT)
    assert watch_cores(7, tmp_path / "stat") == {0: 0, 12: 0}
    assert slept == [7]


@pytest.mark.parametrize(
    ("threads", "shares"),
    [
        (1, {0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0}),  # samples that lost time are left out
        (2, {0: 1.0, 1: 0.9, 2: 0.19, 3: 0.0}),  # the last two are measured on
        (2, {}),  # the system didn't tell
    ],
)
def test_one_thread_or_idle_cores_are_no_matter(threads: int, shares: dict[int, float]) -> None:
    assert busy_warning(threads, (0, 1, 2, 3), shares) == ""


def test_several_threads_on_busy_cores_are_warned_of() -> None:
    words = busy_warning(3, (0, 1, 2, 3), {0: 1.0, 1: 0.634, 2: 0.0, 3: 0.21})
    assert words.startswith(
        "3 threads are going to share cores with other work (core 1 is 63% busy, core 3 is 21%"
    )
    assert words.endswith("stop other work, or ask for fewer --threads")


def test_a_record_says_where_no_core_is_left_for_attnbench() -> None:
    assert sharing_note((0, 1, 2), 2) == ""
    assert sharing_note((0, 1), 2) == (
        "measured on all 2 cores of this process, which attnbench's own process shares"
    )
    assert sharing_note((5,), 1).startswith("measured on the only core of this process")
