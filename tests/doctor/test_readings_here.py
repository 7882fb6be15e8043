"""What the doctor reads on the machine it runs on, with disturbances that are really there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from attnbench.doctor import readings
from attnbench.doctor.examine import examine
from attnbench.doctor.readings import Gpu, Readings, probe, read_gpus, read_machine
from attnbench.runner.machine import allowed_cpus, cpu_quota


@pytest.fixture(scope="module")
def disturbed() -> Iterator[Readings]:
    """This machine, asked for more threads than it has, the allocator left alone, one core kept busy."""
    core = allowed_cpus()[-1]
    code = f"import os\nos.sched_setaffinity(0, {{{core}}})\nprint(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as busy:
        busy.stdout.readline()
        try:
            yield read_machine(cpu_quota() + 1, "default")
        finally:
            busy.kill()


def test_a_core_that_is_kept_busy_is_named(disturbed: Readings) -> None:
    core = allowed_cpus()[-1]
    named = [f for f in examine(disturbed) if f.name == "busy core" and f.what.startswith(f"core {core},")]
    assert [finding.level for finding in named] == ["bad"]
    assert "a test program there got" in named[0].effect


def test_threads_over_the_quota_are_named_with_their_effect(disturbed: Readings) -> None:
    finding = next(f for f in examine(disturbed) if f.name == "threads")
    assert finding.level == "bad"
    assert finding.remedy == f"use --threads {cpu_quota()} or fewer"
    assert "as long as one" in finding.effect


def test_what_can_not_be_probed_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("print('printed')\nraise OSError('no such library')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    core, none = allowed_cpus()[0], 10**6
    found = probe([core, none], 2)
    assert [*found] == ["steady"]
    assert [*found["steady"]] == [str(core)]
    assert os.sched_getaffinity(0) == set(allowed_cpus())


@pytest.mark.parametrize(("file", "text", "turbo"), [
    ("intel_pstate/no_turbo", "1", False), ("intel_pstate/no_turbo", "0", True),
    ("cpufreq/boost", "1", True), ("cpufreq/boost", "x", None),
])  # fmt: skip
def test_turbo_by_either_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str, turbo: bool | None
) -> None:
    monkeypatch.setattr(readings, "_CPU", tmp_path)
    (tmp_path / file).parent.mkdir()
    (tmp_path / file).write_text(f"{text}\n")
    assert readings._turbo() is turbo


@pytest.mark.parametrize(("asked", "tried"), [(1, 2), (5, 5), (100_000, 8)])
def test_threads_beyond_all_sense_are_not_tried(
    monkeypatch: pytest.MonkeyPatch, asked: int, tried: int
) -> None:
    counts: list[int] = []

    def probed(cpus: Sequence[int], threads: int) -> dict[str, object]:
        counts.append(threads)
        return {}

    monkeypatch.setattr(readings, "probe", probed)
    monkeypatch.setattr(readings, "allowed_cpus", lambda: (0, 1))
    monkeypatch.setattr(readings, "watch_cores", lambda seconds: {})
    read_machine(asked, "keep")
    assert counts == [tried]


class NvmlError(Exception):
    pass


def unsupported(*_: object) -> None:
    raise NvmlError("Not Supported")


NVML = {
    "NVMLError": NvmlError, "NVML_CLOCK_SM": 1, "nvmlInit": lambda: None, "nvmlShutdown": lambda: None,
    "nvmlDeviceGetCount": lambda: 1, "nvmlDeviceGetHandleByIndex": lambda index: index,
    "nvmlDeviceGetName": lambda handle: "NVIDIA H200", "nvmlDeviceGetClockInfo": lambda handle, kind: 345,
    "nvmlDeviceGetMaxClockInfo": lambda handle, kind: 1980, "nvmlDeviceGetPersistenceMode": unsupported,
    "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=97),
    "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(used=1, total=2),
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: 4,
}  # fmt: skip


def test_gpus_as_the_driver_tells_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings, "_NVIDIA", tmp_path / "nothing")
    assert read_gpus() == ((), "")
    monkeypatch.setattr(readings, "_NVIDIA", tmp_path)
    monkeypatch.setattr(readings, "find_spec", lambda name: None)
    assert read_gpus() == ((), "can't be examined: nvidia-ml-py is not installed")
    monkeypatch.setattr(readings, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(**NVML))  # type: ignore[arg-type]
    assert read_gpus() == ((Gpu("NVIDIA H200", 345, 1980, None, 97, 1, 2, 4),), "")
    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(**NVML | {"nvmlInit": unsupported}))  # type: ignore[arg-type]
    assert read_gpus() == ((), "can't be examined: the driver reports 'Not Supported'")
