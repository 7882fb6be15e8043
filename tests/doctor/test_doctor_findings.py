"""The findings of the doctor on made-up readings, and how ``attnbench doctor`` ends on them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner, Result

from attnbench.cli import attnbench
from attnbench.doctor import readings
from attnbench.doctor.examine import MachineFinding, examine
from attnbench.doctor.readings import Gpu, Readings

STEADY = {"fastest_ms": 2.0, "slowest_ms": 2.1, "own_share": 0.99}
LIBRARIES = {"torch": "2.13.0", "capability": "AVX512", "cuda": None}
WELL = Readings(
    asked_threads=1, allocator="keep", cpus=(0, 1), quota=2, free_bytes=8 * 1024**3,
    shares={0: 0.01, 1: 0.02}, steady={1: STEADY}, threads={"threads": 2, "one_ms": 2.0, "asked_ms": 1.1},
    libraries=LIBRARIES,
)  # fmt: skip


QUIET = Gpu("NVIDIA H200", 345, 1980, 1, 0, 4 << 20, 140 << 30, 0x1)
BUSY_GPU = (replace(QUIET, busy_percent=97),)


def threads(count: int, times: float) -> dict[str, float]:
    return {"threads": count, "one_ms": 1.0, "asked_ms": times}


UNEVEN = {1: {**STEADY, "slowest_ms": 3.8}}
HALF = {1: {**STEADY, "own_share": 0.5}}
BOTH = {0: STEADY, 1: STEADY}
BUSY: dict[str, object] = {"shares": {0: 0.0, 1: 0.97}, "steady": HALF}
CUDA = {**LIBRARIES, "cuda": "13.0"}
FINDINGS: list[tuple[dict[str, object], str, str, str]] = [
    # changes of the readings; name and level of the finding; a part of its what, effect or remedy
    ({"asked_threads": 4, "threads": threads(4, 4.5)}, "threads", "bad", "4 threads take ×4.5 as "),
    ({"asked_threads": 2, "steady": BOTH}, "threads", "note", "--threads 1 leaves one"),
    ({"cpus": (0, 1, 2), "quota": 3, "threads": threads(2, 1.2)}, "threads", "fine", ""),
    ({"cpus": (0, 1, 2), "quota": 3, "threads": threads(2, 18)}, "threads", "note", "keep to --threads 1"),
    ({"cpus": (0, 1, 2), "quota": 3, "threads": threads(2, 121.3)}, "threads", "note", "take ×121 as long"),
    (
        {"cpus": (0, 1, 2), "quota": 3, "asked_threads": 2, "threads": threads(2, 18)},
        "threads", "bad", "attention with L=128: 2 threads take ×18 as long as one",
    ),
    ({"group_quota": 0.5, "quota": 1}, "threads", "bad", "raise the quota"),
    ({"group_quota": 1.5, "quota": 1}, "threads", "note", "none is left for attnbench's own process"),
    ({"cpus": (1,), "quota": 1}, "threads", "note", "allow a second core"),
    ({"steady": HALF}, "busy core", "bad", "a test program there got 50% of the core"),
    (BUSY, "busy core", "bad", "leave the core out: taskset -c 0 "),
    ({"shares": {0: 0.9, 1: 0.0}}, "busy core", "note", "core 0 is 90% busy"),
    ({"shares": {0: 0.0, 1: 0.6}}, "busy core", "bad", "got 99% of the core, but not its caches alone"),
    ({"shares": {0: 0.0, 1: 0.6}}, "busy core", "bad", "stop other work, or leave the core out"),
    (
        {"asked_threads": 2, "shares": {0: 0.9, 1: 0.0}, "steady": BOTH, "threads": threads(2, 85)},
        "busy core", "bad", "attention with L=128: 2 threads take ×85 as long as one",
    ),
    ({"shares": {}}, "cores", "note", "/proc/stat is not readable"),
    ({"shares": {0: 0.0}}, "cores", "note", "/proc/stat is not readable"),
    ({"allocator": "default"}, "allocator", "bad", "--allocator keep, the default of a run"),
    ({"steady": UNEVEN, "governors": ("powersave",)}, "clock", "note", "governor powersave"),
    ({"steady": UNEVEN, "governors": ("powersave",)}, "clock", "note", "as root: cpupower frequency-set"),
    ({"steady": UNEVEN}, "clock", "note", "the time of equal loops on core 1 differs by up to ×1.90"),
    ({"steady": UNEVEN}, "clock", "note", "the cause is not visible here"),
    ({"steady": UNEVEN, "turbo": True}, "clock", "note", "turn turbo off"),
    ({"steady": UNEVEN, "shares": {0: 0.0, 1: 0.3}}, "clock", "note", "stop other work on core 1"),
    ({"steady": {}}, "clock", "note", "loops could not be run"),
    ({"governors": ("performance",), "turbo": True}, "clock", "fine", "governor performance, turbo on"),
    ({"swapped_bytes": 4096}, "swap", "bad", "swapoff"),
    ({"swap_used_bytes": 1 << 30}, "swap", "note", "1 GiB used, nothing moved"),
    ({"free_bytes": 1 << 30}, "memory", "note", "larger cases are out_of_memory"),
    ({"libraries": {**LIBRARIES, "capability": "DEFAULT"}}, "torch", "note", "no vector instructions"),
    ({"libraries": None}, "torch", "bad", "nothing can be measured"),
    ({"gpus_unseen": "can't be examined: no library"}, "GPU", "note", "can't be examined"),
    ({"gpus": BUSY_GPU, "libraries": CUDA}, "busy GPU 0", "bad", "97% busy"),
    ({"gpus": BUSY_GPU}, "GPU 0", "note", "torch is built without CUDA"),
    ({"gpus": (replace(QUIET, used_bytes=70 << 30),), "libraries": CUDA}, "busy GPU 0", "note", "70 GiB of"),
    ({"gpus": (Gpu("MIG"),), "libraries": CUDA}, "GPU 0", "note", "MIG, ? of ? MHz"),
    *(
        ({"gpus": (replace(QUIET, **changes),), "libraries": CUDA}, "GPU 0", level, text)
        for changes, level, text in [
            ({}, "fine", "NVIDIA H200, 345 of 1980 MHz"),
            ({"reasons": 0x2}, "fine", ""),  # a clock that somebody has set
            ({"reasons": 0x4}, "bad", "its clock is reduced by its power limit"),
            ({"reasons": 0x21}, "bad", "its clock is reduced by the driver, by heat"),
            ({"reasons": None}, "note", "the driver does not report whether the clock is reduced"),
            ({"persistent": 0}, "note", "each process loads the driver again"),
        ]
    ),
]  # fmt: skip


def test_a_machine_at_rest_is_fine() -> None:
    assert {finding.level for finding in examine(WELL)} == {"fine"}


@pytest.mark.parametrize(
    ("changes", "name", "level", "text"), FINDINGS, ids=[f"{n}-{t}" for _, n, _, t in FINDINGS]
)
def test_findings(changes: dict[str, object], name: str, level: str, text: str) -> None:
    (finding,) = (one for one in examine(replace(WELL, **changes)) if one.name == name)
    assert finding.level == level
    assert text in f"{finding.what}\n{finding.effect}\n{finding.remedy}"
    assert level != "bad" or (finding.effect and finding.remedy)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_core_is_left_out_only_where_enough_others_are_idle(threads: int) -> None:
    readings = replace(WELL, asked_threads=threads, shares={0: 0.0, 1: 0.97}, steady=HALF)
    (finding,) = (one for one in examine(readings) if one.name == "busy core")
    assert ("taskset" in finding.remedy) == (threads == 1)


def doctor(monkeypatch: pytest.MonkeyPatch, read: Readings, *words: str) -> Result:
    monkeypatch.setattr(readings, "read_machine", lambda threads, allocator, tell: read)
    return CliRunner().invoke(attnbench, ["doctor", *words], prog_name="attnbench")


@pytest.mark.parametrize(("changes", "status"), [({}, 0), ({"allocator": "default"}, 1), ({"shares": {}}, 0)])
def test_only_what_would_change_a_verdict_fails(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], status: int
) -> None:
    result = doctor(monkeypatch, replace(WELL, **changes))
    assert result.exit_code == status
    assert ("1 of 7 findings would change a verdict" in result.stderr) == bool(status)


def test_json_has_every_field(monkeypatch: pytest.MonkeyPatch) -> None:
    found = json.loads(doctor(monkeypatch, WELL, "--format", "json").stdout)
    assert [MachineFinding(**row) for row in found] == examine(WELL)
    assert list(found[0]) == ["name", "level", "what", "effect", "remedy"]
