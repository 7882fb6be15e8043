"""What the doctor reads of systems that tell little, or rubbish: it says so, and nothing raises."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnbench.cases.free_memory import free_memory
from attnbench.doctor import readings
from attnbench.doctor.examine import examine
from attnbench.doctor.finding import Finding
from attnbench.doctor.gpus import Gpus
from attnbench.doctor.probe import _openmp_runtimes
from attnbench.doctor.readings import read_machine
from attnbench.runner import busy, machine

FILES = (
    "proc/stat", "proc/meminfo", "proc/vmstat", "proc/self/cgroup", "sys/intel_pstate/no_turbo",
    "sys/cpufreq/boost", "sys/cpu0/cpufreq/scaling_governor", "cgroup/cpu.max", "cgroup/memory.max",
    "cgroup/memory.current",
)  # fmt: skip


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of another system of two cores, on which no probe is run."""
    proc, cgroup = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    cgroup.mkdir()
    monkeypatch.setattr(readings, "PROC", proc)
    monkeypatch.setattr(readings, "_CPU", tmp_path / "sys")
    monkeypatch.setattr(readings, "allowed_cpus", lambda: (0, 1))
    monkeypatch.setattr(readings, "group_quota", lambda: machine.group_quota(proc, cgroup))
    monkeypatch.setattr(readings, "cpu_quota", lambda: machine.cpu_quota(proc, cgroup))
    monkeypatch.setattr(readings, "free_memory", lambda: free_memory(proc, cgroup))
    monkeypatch.setattr(readings, "watch_cores", lambda seconds: busy.watch_cores(0, proc / "stat"))
    monkeypatch.setattr(readings, "probe", lambda *words, **threads: None)
    monkeypatch.setattr(readings, "read_gpus", Gpus)
    return tmp_path


def said() -> dict[str, Finding]:
    return {finding.name: finding for finding in examine(read_machine(1, "pinned"))}


def test_a_system_that_tells_nothing(elsewhere: Path) -> None:
    found = said()
    assert {name for name, one in found.items() if one.level == "note"} == (
        {"cores", "clock", "memory", "swap", "allocator"}
    )
    assert found["threads"].what == "1 thread, and this process has 2 cores (affinity 2, no quota is seen)"


@pytest.mark.parametrize("rubbish", [b"", b"\xff\x00\x1b[31m", b"cpu0 1\ncpu1 x y z w v\n:\n", b"-1\n" * 9])
def test_rubbish_is_taken_for_nothing(elsewhere: Path, rubbish: bytes) -> None:
    for name in FILES:
        (elsewhere / name).parent.mkdir(parents=True, exist_ok=True)
        (elsewhere / name).write_bytes(rubbish)
    (elsewhere / "proc" / "self" / "cgroup").write_bytes(b"0::/\n" + rubbish)
    found = said()
    assert found["cores"].level == found["memory"].level == found["swap"].level == "note"
    assert "turbo" not in found["clock"].what
    assert found["clock"].what.isprintable()


@pytest.mark.parametrize(
    ("version", "files"), [(1, ("cpu.cfs_quota_us", "cpu.cfs_period_us")), (2, ("cpu.max",))]
)
def test_half_a_core_by_either_version_of_control_groups(
    elsewhere: Path, version: int, files: tuple[str, ...]
) -> None:
    folder = elsewhere / "cgroup" / ("cpu,cpuacct" if version == 1 else "")
    folder.mkdir(exist_ok=True)
    (elsewhere / "proc" / "self" / "cgroup").write_text("4:cpu,cpuacct:/x\n" if version == 1 else "0::/\n")
    for name, text in zip(files, ("50000", "100000") if version == 1 else ("50000 100000",), strict=True):
        (folder / name).write_text(f"{text}\n")
    finding = said()["threads"]
    assert finding.level == "bad"
    assert finding.what == "1 thread, and this process has 1 core (affinity 2, quota 0.5)"


@pytest.mark.parametrize(("asked", "tried"), [(1, 2), (2, 2), (5, 5), (100_000, 8)])
def test_threads_beyond_all_sense_are_not_tried(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, asked: int, tried: int
) -> None:
    words = []
    monkeypatch.setattr(readings, "probe", lambda *said, **_: words.append(said))
    read_machine(asked, "pinned")
    assert [said for said in words if said[0] == "threads"] == [("threads", str(tried))]


def test_swapping_between_two_looks(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter((5, 12))
    proc = elsewhere / "proc"
    (proc / "meminfo").write_text("SwapTotal: 4096 kB\nSwapFree: 1024 kB\n")
    (proc / "vmstat").write_text("pswpin 5\npswpout 0\n")
    assert said()["swap"].what == "whether pages go in or out is not told here"
    (proc / "stat").write_text("cpu0 1 1 1 9 1\ncpu1 1 1 1 9 1\n")
    assert said()["swap"].what == "3 MiB of swap are used, and none went in or out"
    monkeypatch.setattr(readings, "_swapped", lambda: next(looks))
    finding = said()["swap"]
    assert (finding.level, finding.what) == ("bad", "7 pages went in or out within a second")


@pytest.mark.parametrize(("file", "text", "words"), [
    ("intel_pstate/no_turbo", "1", "turbo off"), ("intel_pstate/no_turbo", "0", "turbo on"),
    ("cpufreq/boost", "1", "turbo on"), ("cpufreq/boost", "0", "turbo off"),
])  # fmt: skip
def test_turbo_by_either_file(elsewhere: Path, file: str, text: str, words: str) -> None:
    path = elsewhere / "sys" / file
    path.parent.mkdir(parents=True)
    path.write_text(f"{text}\n")
    assert said()["clock"].what == f"the governor is not told here, {words}"


def test_runtimes_of_openmp_are_told_from_what_is_mapped() -> None:
    mapped = ("/a/libgomp.so.1", "/a/libgomp.so.1", "/b/libiomp5.so", "/c/libm.so", "")
    maps = "".join(f"7f12 r-xp {path}\n" for path in mapped)
    assert _openmp_runtimes(maps) == ["libgomp.so.1", "libiomp5.so"]
