"""All that the doctor looks at, read once: so that what is said of it is a matter of pure functions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attnbench.cases.control_groups import PROC, read
from attnbench.cases.free_memory import free_memory
from attnbench.runner.busy import watch_cores
from attnbench.runner.machine import allowed_cpus, cpu_quota
from attnbench.runner.thread_limits import thread_environment

Probed = Mapping[str, Any]

_PROBE_WITHIN_S = 60.0
_WATCHED_S = 1.0
_CPU = Path("/sys/devices/system/cpu")


@dataclass(frozen=True)
class Readings:
    """What a machine is like, for a run with so many threads and this allocator.

    cpus: cores that this process may use. quota: whole cores that its control group gives it. shares: by
    core, how much of its time others used. own_threads: what OMP_NUM_THREADS says. swapped_pages: moved in or
    out while cores were watched. governors: of the cores, those that are known. turbo: None where unknown.
    steady: by core, the probe of that name. threads, libraries: probes; pinned, unpinned: of the allocator;
    None where one failed. gpus: by index, what nvidia-smi says; None where there is none.
    """

    asked_threads: int
    allocator: str
    cpus: tuple[int, ...]
    quota: int
    free_bytes: int
    shares: Mapping[int, float] = field(default_factory=dict)
    own_threads: str = ""
    swap_used_bytes: int = 0
    swapped_pages: int = 0
    governors: tuple[str, ...] = ()
    turbo: bool | None = None
    steady: Mapping[int, Probed] = field(default_factory=dict)
    threads: Probed | None = None
    pinned: Probed | None = None
    unpinned: Probed | None = None
    libraries: Probed | None = None
    gpus: tuple[Mapping[str, str], ...] | None = None


def read_machine(threads: int, allocator: str, tell: Callable[[str], None] = lambda what: None) -> Readings:
    """Look at this machine for some seconds, and measure. tell: called with what is looked at next."""
    cpus, quota = allowed_cpus(), cpu_quota()
    tell("watching cores")
    before = _swapped()
    shares = watch_cores(_WATCHED_S)
    swapped = _swapped() - before
    measured = cpus[-max(1, min(threads, len(cpus))) :]
    tell("running loops on the cores that would be measured on")
    steady = {cpu: probed for cpu in measured if (probed := probe("steady", str(cpu))) is not None}
    compared = max(2, threads) if len(cpus) > 1 or threads > 1 else 1
    tell(f"calling attention with {compared} threads")
    of_threads = probe("threads", str(compared), threads=compared) if compared > 1 else None
    tell("calling attention with the allocator pinned and as it is")
    pinned, unpinned = probe("faults", "pinned"), probe("faults", "default")
    tell("looking at libraries")
    return Readings(
        asked_threads=threads,
        allocator=allocator,
        cpus=cpus,
        quota=quota,
        free_bytes=free_memory(),
        shares=shares,
        own_threads=os.environ.get("OMP_NUM_THREADS", ""),
        swap_used_bytes=_meminfo("SwapTotal") - _meminfo("SwapFree"),
        swapped_pages=swapped,
        governors=tuple(sorted(set(filter(None, map(_governor, cpus))))),
        turbo=_turbo(),
        steady=steady,
        threads=of_threads,
        pinned=pinned,
        unpinned=unpinned,
        libraries=probe("libraries"),
        gpus=_gpus(),
    )


def probe(name: str, *words: str, threads: int | None = None) -> Probed | None:
    """What a probe says; None where it fails. threads: told to libraries; None leaves them alone."""
    told = {} if threads is None else thread_environment(threads)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "attnbench.doctor.probe", name, *words],
            env=os.environ | told, capture_output=True, text=True, timeout=_PROBE_WITHIN_S, check=True,
        )  # fmt: skip
        said: Probed = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return said


def _governor(cpu: int) -> str:
    return read(_CPU / f"cpu{cpu}/cpufreq/scaling_governor").strip()


def _turbo() -> bool | None:
    """Whether clocks may rise above the base one; None where the system doesn't say."""
    none, boost = (read(_CPU / name).strip() for name in ("intel_pstate/no_turbo", "cpufreq/boost"))
    if none:
        return none == "0"
    return boost == "1" if boost else None


def _meminfo(name: str) -> int:
    for line in read(PROC / "meminfo").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def _swapped() -> int:
    words = read(PROC / "vmstat").split()
    return sum(int(words[words.index(name) + 1]) for name in ("pswpin", "pswpout") if name in words)


_GPU_FIELDS = ("name", "persistence_mode", "clocks.sm", "clocks.max.sm", "clocks_throttle_reasons.active")


def _gpus() -> tuple[Mapping[str, str], ...] | None:
    query = f"--query-gpu={','.join(_GPU_FIELDS)}"
    try:
        done = subprocess.run(
            ["nvidia-smi", query, "--format=csv,noheader,nounits"],
            capture_output=True, text=True, timeout=20, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    rows = [line.split(", ") for line in done.stdout.splitlines()]
    return tuple(dict(zip(_GPU_FIELDS, row, strict=True)) for row in rows if len(row) == len(_GPU_FIELDS))
