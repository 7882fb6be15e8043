"""All measurements of the doctor, read once, so that findings are pure functions of them."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from attnbench.cases.memory import free_memory, read
from attnbench.ipc.process import answer_of
from attnbench.runner.machine import (
    allowed_cpus,
    cpu_quota,
    group_quota,
    split_cpus,
    thread_environment,
    watch_cores,
)
from attnbench.types.words import clean

Probed = Mapping[str, Any]

_PROBE_WITHIN_S, _CORE_WITHIN_S = 120.0, 10.0
_WATCHED_S = 1.0
_MOST_PER_CORE = 4
"""The most threads per core that are tried: more show no more, and thousands would disturb the machine."""
_CPU = Path("/sys/devices/system/cpu")
_NVIDIA = Path("/dev/nvidiactl")


@dataclass(frozen=True)
class Gpu:
    """The state of one GPU by the NVIDIA driver; None where the driver does not report it.

    reasons: the bits that explain a reduced clock (nvmlClocksEventReasons in nvml.h).
    """

    name: str
    clock_mhz: int | None = None
    largest_mhz: int | None = None
    persistent: int | None = None
    busy_percent: int | None = None
    used_bytes: int | None = None
    total_bytes: int | None = None
    reasons: int | None = None


@dataclass(frozen=True)
class Readings:
    """The state of a machine, for a run with this many threads and this allocator.

    cpus: cores that this process may use. quota: whole cores that its control groups leave, at least 1.
    group_quota: cores by the smallest quota of those groups; None for no quota. shares: by core, the share of
    its time that other work used. swapped_bytes: moved in or out while cores were watched. governors: of the
    cores, where known. turbo: None where unknown. steady: by core, the answer of that name of the probe.
    threads, libraries: its other answers; None where it failed. gpus_unseen: why GPUs could not be examined;
    "" where they could.
    """

    asked_threads: int
    allocator: str
    cpus: tuple[int, ...]
    quota: int
    free_bytes: int
    shares: Mapping[int, float] = field(default_factory=dict)
    group_quota: float | None = None
    swap_used_bytes: int = 0
    swapped_bytes: int = 0
    governors: tuple[str, ...] = ()
    turbo: bool | None = None
    steady: Mapping[int, Probed] = field(default_factory=dict)
    threads: Probed | None = None
    libraries: Probed | None = None
    gpus: tuple[Gpu, ...] = ()
    gpus_unseen: str = ""


def read_machine(threads: int, allocator: str, show: Callable[[str], None] = lambda step: None) -> Readings:
    """Measure this machine for some seconds. show: called with each step before it begins."""
    cpus, quota = allowed_cpus(), cpu_quota()
    show("watching cores")
    before = _swap()
    shares = watch_cores(_WATCHED_S)
    after = _swap()
    show("running loops on the cores to be measured on, and calling attention")
    compared = min(max(2, threads), _MOST_PER_CORE * len(cpus)) if len(cpus) > 1 or threads > 1 else 1
    probed = probe(split_cpus(cpus, threads)[0], compared)
    show("examining GPUs")
    gpus, unseen = read_gpus()
    return Readings(
        asked_threads=threads,
        allocator=allocator,
        cpus=cpus,
        quota=quota,
        free_bytes=free_memory(),
        shares=shares,
        group_quota=group_quota(),
        swap_used_bytes=after[0],
        swapped_bytes=after[1] - before[1],
        governors=tuple(sorted(set(filter(None, map(_governor, cpus))))),
        turbo=_turbo(),
        steady={int(cpu): found for cpu, found in probed.get("steady", {}).items()},
        threads=probed.get("threads"),
        libraries=probed.get("libraries"),
        gpus=gpus,
        gpus_unseen=unseen,
    )


def probe(cpus: Sequence[int], threads: int) -> Probed:
    """Measure loops on these cores, and attention with so many threads; return what did not fail, by name."""
    question = json.dumps([cpus, threads]).encode()
    variables, limit_s = thread_environment(threads), _PROBE_WITHIN_S + _CORE_WITHIN_S * len(cpus)
    _, out, _ = answer_of(sys.executable, "attnbench.doctor.probe", variables, question, limit_s)
    found: dict[str, Any] = {}
    for line in out.splitlines():
        found |= json.loads(line)
    return found


def _governor(cpu: int) -> str:
    return clean(read(_CPU / f"cpu{cpu}/cpufreq/scaling_governor"))


def _turbo() -> bool | None:
    """Return whether clocks may rise above the base clock; None where unknown."""
    no_turbo, boost = (read(_CPU / name).strip() for name in ("intel_pstate/no_turbo", "cpufreq/boost"))
    return {"0": True, "1": False}.get(no_turbo, {"0": False, "1": True}.get(boost))


def _swap() -> tuple[int, int]:
    """Return the bytes of swap in use, and those moved in or out since the machine started."""
    import psutil

    with warnings.catch_warnings():
        # Some containers do not show how much was moved.
        warnings.simplefilter("ignore")
        swap = psutil.swap_memory()
    return swap.used, swap.sin + swap.sout


def read_gpus() -> tuple[tuple[Gpu, ...], str]:
    """Return the state of each GPU, and why the driver could not be asked ("" where it could)."""
    if not _NVIDIA.exists():
        return (), ""
    if find_spec("pynvml") is None:
        return (), "can't be examined: nvidia-ml-py is not installed"
    import pynvml

    try:
        pynvml.nvmlInit()
        try:
            handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
            return tuple(_gpu(pynvml, handle) for handle in handles), ""
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as failure:
        return (), f"can't be examined: the driver reports {clean(str(failure))!r}"


def _gpu(nvml: Any, handle: Any) -> Gpu:
    def value(name: str, *words: Any) -> Any:
        try:
            return getattr(nvml, f"nvmlDeviceGet{name}")(handle, *words)
        except nvml.NVMLError:
            return None

    used, memory = value("UtilizationRates"), value("MemoryInfo")
    return Gpu(
        name=clean(value("Name") or "?"),
        clock_mhz=value("ClockInfo", nvml.NVML_CLOCK_SM),
        largest_mhz=value("MaxClockInfo", nvml.NVML_CLOCK_SM),
        persistent=value("PersistenceMode"),
        busy_percent=None if used is None else used.gpu,
        used_bytes=None if memory is None else memory.used,
        total_bytes=None if memory is None else memory.total,
        # The older one of two names, which all drivers know.
        reasons=value("CurrentClocksThrottleReasons"),
    )
