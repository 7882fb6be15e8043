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

from attnbench.cases.control_groups import PROC, read, whole_number
from attnbench.cases.free_memory import free_memory
from attnbench.doctor.gpus import Gpus, read_gpus
from attnbench.runner.busy import watch_cores
from attnbench.runner.machine import allowed_cpus, cpu_quota, group_quota, split_cpus
from attnbench.runner.thread_limits import thread_environment
from attnbench.types.words import clean

Probed = Mapping[str, Any]

_PROBE_WITHIN_S = 60.0
_WATCHED_S = 1.0
_MOST_PER_CORE = 4
"""Threads that are tried where more are asked for: what so many cost is clear by then, and thousands would
disturb the whole machine.
"""
_CPU = Path("/sys/devices/system/cpu")


@dataclass(frozen=True)
class Readings:
    """What a machine is like, for a run with so many threads and this allocator.

    cpus: cores that this process may use. quota: whole cores of those that its control groups leave it, at
    least 1. group_quota: cores by the least quota of those groups; None where none is seen. free_bytes: None
    where the system doesn't tell. shares: by core, how much of its time others used; without those of which
    the system tells nothing. own_threads: what OMP_NUM_THREADS says. swapped_pages: moved in or out while
    cores were watched; None where it isn't told. governors: of the cores, those that are known. turbo: None
    where unknown. steady: by core, the probe of that name. threads, libraries: probes; pinned, unpinned: of
    the allocator; None where one failed.
    """

    asked_threads: int
    allocator: str
    cpus: tuple[int, ...]
    quota: int
    free_bytes: int | None
    shares: Mapping[int, float] = field(default_factory=dict)
    group_quota: float | None = None
    own_threads: str = ""
    swap_used_bytes: int = 0
    swapped_pages: int | None = 0
    governors: tuple[str, ...] = ()
    turbo: bool | None = None
    steady: Mapping[int, Probed] = field(default_factory=dict)
    threads: Probed | None = None
    pinned: Probed | None = None
    unpinned: Probed | None = None
    libraries: Probed | None = None
    gpus: Gpus = field(default_factory=Gpus)


def read_machine(threads: int, allocator: str, tell: Callable[[str], None] = lambda what: None) -> Readings:
    """Look at this machine for some seconds, and measure. tell: called with what is looked at next."""
    cpus, quota = allowed_cpus(), cpu_quota()
    tell("watching cores")
    before = _swapped()
    shares = watch_cores(_WATCHED_S)
    after = _swapped()
    tell("running loops on the cores that would be measured on")
    loops = {cpu: probe("steady", str(cpu)) for cpu in cores_measured(cpus, threads)}
    compared = min(max(2, threads), _MOST_PER_CORE * len(cpus)) if len(cpus) > 1 or threads > 1 else 1
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
        free_bytes=_free_memory(),
        shares=shares,
        group_quota=group_quota(),
        own_threads=os.environ.get("OMP_NUM_THREADS", ""),
        swap_used_bytes=_meminfo("SwapTotal") - _meminfo("SwapFree"),
        # Where cores could not be watched no time has passed in between.
        swapped_pages=None if before is None or after is None or not shares else after - before,
        governors=tuple(sorted(set(filter(None, map(_governor, cpus))))),
        turbo=_turbo(),
        steady={cpu: probed for cpu, probed in loops.items() if probed is not None},
        threads=of_threads,
        pinned=pinned,
        unpinned=unpinned,
        libraries=probe("libraries"),
        gpus=read_gpus(),
    )


def cores_measured(cpus: tuple[int, ...], threads: int) -> tuple[int, ...]:
    """Those of the cores on which a run with so many threads would measure, or all of them."""
    return split_cpus(cpus, threads)[0]


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
    return clean(read(_CPU / f"cpu{cpu}/cpufreq/scaling_governor"))


def _turbo() -> bool | None:
    """Whether clocks may rise above the base one; None where the system doesn't say."""
    no_turbo, boost = (read(_CPU / name).strip() for name in ("intel_pstate/no_turbo", "cpufreq/boost"))
    return {"0": True, "1": False}.get(no_turbo, {"0": False, "1": True}.get(boost))


def _free_memory() -> int | None:
    try:
        return free_memory()
    except OSError:
        return None


def _meminfo(name: str) -> int:
    for line in read(PROC / "meminfo").splitlines():
        if line.startswith(f"{name}:"):
            return 1024 * (whole_number(line.partition(":")[2].removesuffix("kB")) or 0)
    return 0


def _swapped() -> int | None:
    """Pages that went to or came from a disk since the machine started; None where it isn't told."""
    lines = (line.partition(" ") for line in read(PROC / "vmstat").splitlines())
    moved = [whole_number(value) for name, _, value in lines if name in ("pswpin", "pswpout")]
    numbers = [pages for pages in moved if pages is not None]
    return sum(numbers) if len(numbers) == 2 else None
