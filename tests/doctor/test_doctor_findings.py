"""What the doctor says of readings that are arranged: level, what, effect and remedy of each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from attnbench.doctor.examine import examine
from attnbench.doctor.finding import Finding
from attnbench.doctor.readings import Readings

STEADY = {"fastest_ms": 2.0, "median_ms": 2.0, "slowest_ms": 2.1, "own_share": 0.99}
LIBRARIES = {
    "torch": "2.13.0", "capability": "AVX512", "mkl": True, "mkldnn": True, "openmp": True, "cuda": None,
    "default_threads": 2,
}  # fmt: skip
WELL = Readings(
    asked_threads=1, allocator="pinned", cpus=(0, 1), quota=2, free_bytes=8 * 1024**3,
    shares={0: 0.01, 1: 0.02}, steady={1: STEADY}, threads={"one_ms": 2.0, "asked_ms": 1.1},
    pinned={"ms": [9.2, 9.3], "faults": [0.0, 0.0]}, unpinned={"ms": [9.3, 9.4], "faults": [0.0, 2.0]},
    libraries=LIBRARIES,
)  # fmt: skip
GPU = {
    "name": "H200", "persistence_mode": "Enabled", "clocks.sm": "345", "clocks.max.sm": "1980",
    "clocks_throttle_reasons.active": "0x0000000000000001",
}  # fmt: skip


def found(name: str, **changes: object) -> Finding:
    findings = [one for one in examine(replace(WELL, **changes)) if one.name == name]
    assert len(findings) == 1
    return findings[0]


def test_a_machine_at_rest_is_fine() -> None:
    assert {finding.level for finding in examine(WELL)} == {"fine"}


def test_more_threads_than_the_quota() -> None:
    finding = found("threads", asked_threads=4, threads={"one_ms": 2.0, "asked_ms": 9.0})
    assert finding == Finding(
        "threads", "bad", "4 threads, and this process has 2 cores (affinity 2, quota 2)",
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
            threads={"one_ms": 1.0, "asked_ms": 85.0},
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
        "the naive form at L=512: 0 to 6112 page faults and 9.40 to 20.60 ms a call with default thresholds, "
        "0 page faults and 9.20 to 9.30 ms a call pinned"
    )
    assert ("--allocator pinned" in finding.remedy) == (level == "bad")


@pytest.mark.parametrize(
    ("changes", "name", "level"),
    [
        ({"own_threads": "16"}, "OMP_NUM_THREADS", "note"),
        ({"libraries": {**LIBRARIES, "default_threads": 64}}, "torch's threads", "note"),
        ({"libraries": {**LIBRARIES, "capability": "DEFAULT"}}, "torch", "note"),
        ({"libraries": None}, "torch", "bad"),
        ({"steady": {1: {**STEADY, "slowest_ms": 3.8}}}, "clock", "note"),
        ({"steady": {}}, "clock", "note"),
        ({"governors": ("performance",), "turbo": True}, "clock", "fine"),
        ({"swapped_pages": 7}, "swap", "bad"),
        ({"swap_used_bytes": 1 << 30}, "swap", "note"),
        ({"free_bytes": 1 << 30}, "memory", "note"),
        ({"pinned": None}, "allocator", "note"),
        ({"gpus": (GPU,)}, "GPU 0", "fine"),
        ({"gpus": (GPU | {"persistence_mode": "Disabled"},)}, "GPU 0", "note"),
        ({"gpus": (GPU | {"clocks_throttle_reasons.active": "0x0000000000000040"},)}, "GPU 0", "bad"),
    ],
)
def test_each_other_finding(changes: dict[str, object], name: str, level: str) -> None:
    finding = found(name, **changes)
    assert finding.level == level
    assert level == "fine" or finding.effect or finding.what


def test_a_slow_governor_is_named_with_its_remedy() -> None:
    finding = found("clock", governors=("powersave",), steady={1: {**STEADY, "slowest_ms": 3.8}})
    assert finding.what == "governor powersave"
    assert finding.effect == "equal loops on core 1 differ by ×1.90 from the fast end to the slow"
    assert finding.remedy.startswith("cpupower frequency-set --governor performance")
