"""What the doctor says of readings that are arranged: level, what, effect and remedy of each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from attnbench.doctor.examine import Finding, examine
from attnbench.doctor.readings import Gpu, Readings

STEADY = {"fastest_ms": 2.0, "median_ms": 2.0, "slowest_ms": 2.1, "own_share": 0.99}
LIBRARIES = {"torch": "2.13.0", "capability": "AVX512", "cuda": None}
WELL = Readings(
    asked_threads=1, allocator="pinned", cpus=(0, 1), quota=2, free_bytes=8 * 1024**3,
    shares={0: 0.01, 1: 0.02}, steady={1: STEADY}, threads={"threads": 2, "one_ms": 2.0, "asked_ms": 1.1},
    pinned={"taken": True, "ms": [9.2, 9.3], "faults": [0.0, 0.0]},
    unpinned={"ms": [9.3, 9.4], "faults": [0.0, 2.0]},
    libraries=LIBRARIES,
)  # fmt: skip


QUIET = Gpu("NVIDIA H200", 345, 1980, 1, 0, 4 << 20, 140 << 30, 0x1)
BUSY_GPU = (replace(QUIET, busy_percent=97),)


def found(name: str, **changes: object) -> Finding:
    findings = [one for one in examine(replace(WELL, **changes)) if one.name == name]
    assert len(findings) == 1
    return findings[0]


def test_a_machine_at_rest_is_fine() -> None:
    assert {finding.level for finding in examine(WELL)} == {"fine"}


def test_more_threads_than_the_quota() -> None:
    finding = found("threads", asked_threads=4, threads={"threads": 4, "one_ms": 2.0, "asked_ms": 9.0})
    assert finding == Finding(
        "threads", "bad", "4 threads, and this process has 2 cores (affinity 2, no quota is seen)",
        "attention of L=128 with 4 threads: ×4.5 the time with one", "ask for --threads 2 or fewer",
    )  # fmt: skip


def test_all_cores_leave_none_for_the_runner() -> None:
    finding = found("threads", asked_threads=2, steady={0: STEADY, 1: STEADY})
    assert finding.level == "note"
    assert finding.remedy == "--threads 1 leaves one"


def test_a_busy_core_that_would_be_measured_on() -> None:
    finding = found("busy core", shares={0: 0.0, 1: 0.97}, steady={1: {**STEADY, "own_share": 0.5}})
    assert finding.level == "bad"
    assert finding.what == "core 1, to be measured on, is 97% busy"
    assert finding.effect == "a program there gets 50% of its time"


def test_a_busy_core_beside_it_is_a_note() -> None:
    finding = found("busy core", shares={0: 0.9, 1: 0.0})
    assert (finding.level, finding.what) == ("note", "core 0 is 90% busy")


def test_with_two_threads_a_busy_core_has_its_measured_effect() -> None:
    findings = examine(
        replace(
            WELL, asked_threads=2, shares={0: 0.9, 1: 0.0}, steady={0: STEADY, 1: STEADY},
            threads={"threads": 2, "one_ms": 1.0, "asked_ms": 85.0},
        )
    )  # fmt: skip
    busy = next(finding for finding in findings if finding.name == "busy core")
    assert busy.level == "bad"
    assert "attention of L=128 with 2 threads: ×85 the time with one" in busy.effect


@pytest.mark.parametrize(("allocator", "level"), [("default", "bad"), ("pinned", "note")])
def test_default_thresholds_that_cost_page_faults(allocator: str, level: str) -> None:
    finding = found("allocator", allocator=allocator, unpinned={"ms": [9.4, 20.6], "faults": [0.2, 6112.0]})
    assert finding.level == level
    assert finding.effect == (
        "the naive form at L=512: 0 to 6112 page faults and 9.40 to 20.60 ms a call as it is, "
        "0 page faults and 9.20 to 9.30 ms a call pinned"
    )
    assert ("--allocator pinned" in finding.remedy) == (level == "bad")


@pytest.mark.parametrize(
    ("changes", "name", "level"),
    [
        ({"libraries": {**LIBRARIES, "capability": "DEFAULT"}}, "torch", "note"),
        ({"libraries": None}, "torch", "bad"),
        ({"steady": {1: {**STEADY, "slowest_ms": 3.8}}}, "clock", "note"),
        ({"steady": {}}, "clock", "note"),
        ({"governors": ("performance",), "turbo": True}, "clock", "fine"),
        ({"swapped_bytes": 4096}, "swap", "bad"),
        ({"swap_used_bytes": 1 << 30}, "swap", "note"),
        ({"free_bytes": 1 << 30}, "memory", "note"),
        ({"free_bytes": None}, "memory", "note"),
        ({"shares": {}}, "cores", "note"),
        ({"shares": {0: 0.0}}, "cores", "note"),
        ({"gpus": BUSY_GPU, "libraries": {**LIBRARIES, "cuda": "13.0"}}, "busy GPU 0", "bad"),
        ({"gpus": BUSY_GPU, "libraries": {**LIBRARIES, "cuda": None}}, "GPU 0", "note"),
        ({"group_quota": 0.5, "quota": 1}, "threads", "bad"),
        ({"group_quota": 1.5, "quota": 1}, "threads", "note"),
        ({"cpus": (1,), "quota": 1}, "threads", "note"),
        ({"pinned": None}, "allocator", "note"),
    ],
)
def test_each_other_finding(changes: dict[str, object], name: str, level: str) -> None:
    finding = found(name, **changes)
    assert finding.level == level
    assert level == "fine" or finding.effect or finding.what


def test_threads_that_wait_for_each_other_count_however_many_cores_there_are() -> None:
    threads = {"threads": 2, "one_ms": 1.0, "asked_ms": 18.0}
    assert found("threads", cpus=(0, 1, 2), quota=3, threads=threads).level == "fine"
    finding = found("threads", cpus=(0, 1, 2), quota=3, asked_threads=2, threads=threads)
    assert (finding.level, finding.effect) == (
        "bad",
        "attention of L=128 with 2 threads: ×18 the time with one",
    )


def test_other_work_that_makes_way_changes_no_verdict_of_one_thread() -> None:
    finding = found("busy core", shares={0: 0.0, 1: 0.6})
    assert (finding.level, finding.effect) == (
        "note",
        "a program there gets 99% of its time: the other work yielded",
    )


def test_a_core_that_was_idle_only_while_it_was_watched() -> None:
    finding = found("busy core", steady={1: {**STEADY, "own_share": 0.5}})
    assert (finding.level, finding.effect) == ("bad", "a program there gets 50% of its time")


@pytest.mark.parametrize(("threads", "leave_out"), [(1, True), (2, False)])
def test_cores_that_are_idle_are_named_where_they_suffice(threads: int, leave_out: bool) -> None:
    finding = found(
        "busy core", shares={0: 0.0, 1: 0.9}, steady={1: {**STEADY, "own_share": 0.5}}, asked_threads=threads
    )
    assert ("taskset -c 0 attnbench run" in finding.remedy) == leave_out


def test_thresholds_that_were_raised_already_are_no_finding() -> None:
    assert found("allocator", allocator="default", unpinned={"ms": [11.9], "faults": [33.0]}).level == "fine"
    without = {"taken": False, "ms": [11.9], "faults": [0.0]}
    finding = found("allocator", pinned=without, unpinned={"ms": [11.9], "faults": [900.0]})
    assert (finding.level, finding.what) == ("fine", "this C library has no thresholds to pin")


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"steady": {1: {**STEADY, "slowest_ms": 3.8, "own_share": 0.5}}}, "stop other work on core 1"),
        ({"shares": {0: 0.0, 1: 0.3}}, "stop other work on core 1"),
        ({"turbo": True}, "turn turbo off"),
        ({}, "pairs cancel most of it"),
    ],
)
def test_uneven_loops_have_the_remedy_of_their_cause(changes: dict[str, object], remedy: str) -> None:
    finding = found("clock", **({"steady": {1: {**STEADY, "slowest_ms": 3.8}}} | changes))
    assert finding.remedy.startswith(remedy)


def test_a_slow_governor_is_named_with_its_remedy() -> None:
    finding = found("clock", governors=("powersave",), steady={1: {**STEADY, "slowest_ms": 3.8}})
    assert finding.what == "governor powersave"
    assert finding.effect == "equal loops on core 1 differ by ×1.90 from the fast end to the slow"
    assert finding.remedy.startswith("as root: cpupower frequency-set --governor performance")


@pytest.mark.parametrize(
    ("changes", "level", "effect"),
    [
        ({}, "fine", ""),
        ({"reasons": 0x2}, "fine", ""),  # a clock that somebody has set
        ({"reasons": 0x4}, "bad", "its clock is reduced by its power limit"),
        ({"reasons": 0x21}, "bad", "its clock is reduced by the driver, by heat"),
        ({"reasons": None}, "note", "the driver does not report whether the clock is reduced"),
        ({"persistent": 0}, "note", "without persistence mode every process loads the driver again"),
    ],
)
def test_clocks_and_persistence_of_a_gpu(changes: dict[str, int | None], level: str, effect: str) -> None:
    gpus, cuda = (replace(QUIET, **changes),), {**LIBRARIES, "cuda": "13.0"}
    finding = found("GPU 0", gpus=gpus, libraries=cuda)
    assert (finding.level, finding.effect) == (level, effect)
    assert finding.what == "NVIDIA H200, 345 of 1980 MHz"


def test_a_gpu_whose_memory_others_hold() -> None:
    gpus, cuda = (replace(QUIET, used_bytes=70 << 30),), {**LIBRARIES, "cuda": "13.0"}
    finding = found("busy GPU 0", gpus=gpus, libraries=cuda)
    assert (finding.level, finding.what) == ("note", "70 GiB of 140 GiB of its memory are taken")
    unknown = Gpu("MIG")
    findings = examine(replace(WELL, gpus=(unknown,), libraries=cuda))
    assert [one.what for one in findings if "GPU" in one.name] == ["MIG, ? of ? MHz"]


def test_gpus_that_could_not_be_looked_at() -> None:
    assert found("GPU", gpus_unseen="could not be looked at: no library").level == "note"
