"""All measurements of the doctor, read once, so that findings are pure functions of them."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Mapping
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

_PROBE_WITHIN_S = 60.0
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
    cores, where known. turbo: None where unknown. steady: by core, the probe of that name. threads,
    libraries: probes; None where a probe failed. gpus_unseen: why
    GPUs could not be examined; "" where they could.
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
    show("running loops on the cores to be measured on")
    loops = {cpu: probe("steady", str(cpu)) for cpu in split_cpus(cpus, threads)[0]}
    compared = min(max(2, threads), _MOST_PER_CORE * len(cpus)) if len(cpus) > 1 or threads > 1 else 1
    show(f"calling attention with {compared} threads")
    of_threads = probe("threads", str(compared), threads=compared) if compared > 1 else None
    show("examining libraries and GPUs")
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
        steady={cpu: probed for cpu, probed in loops.items() if probed is not None},
        threads=of_threads,
        libraries=probe("libraries"),
        gpus=gpus,
        gpus_unseen=unseen,
    )


def probe(name: str, *words: str, threads: int | None = None) -> Probed | None:
    """Run a probe and return its result; None where it fails. threads: for libraries; None sets nothing."""
    variables = {} if threads is None else thread_environment(threads)
    question = json.dumps([name, *words]).encode()
    status, out, _ = answer_of(sys.executable, "attnbench.doctor.probe", variables, question, _PROBE_WITHIN_S)
    return json.loads(out.splitlines()[-1]) if status == 0 else None


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
