"""Findings from measurements: one function for each thing that can disturb a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from attnbench.cases.work import human_bytes
from attnbench.doctor.readings import Gpu, Probed, Readings
from attnbench.runner.machine import BUSY_SHARE, split_cpus
from attnbench.types.words import count_of

Level = Literal["fine", "note", "bad"]

_STEADY = 1.1
"""Clocks are unsteady above this ratio of the slowest to the fastest equal loops."""
_UNDISTURBED = 0.95
"""The share of time that a program gets on a core without other work."""
_WAITING = 2.0
"""The ratio of the time with several threads to that with one, from which threads wait for each other."""
_LITTLE_BYTES = 2 * 1024**3
_HELD_DOWN = {
    0x4: "its power limit",
    0x8: "the hardware, by heat or power",
    0x10: "synchronization with another GPU",
    0x20: "the driver, by heat",
    0x40: "the hardware, by heat",
    0x80: "the power supply",
}
"""The bits of nvmlClocksEventReasons (nvml.h) that reduce a clock. An idle GPU, and a clock that a user
set, disturb nothing."""
_BUSY_PERCENT, _HELD = 5, 0.1
"""The percentage of utilization, and the share of memory, from which others use a GPU. Drivers keep some
hundred MiB."""


@dataclass(frozen=True)
class MachineFinding:
    """One finding of the doctor.

    level: ``bad`` where it would change a verdict of the run; ``note`` where a reader should know. what: the
    state. effect: its effect here, measured where possible. remedy: what helps, or "".
    """

    name: str
    level: Level
    what: str
    effect: str = ""
    remedy: str = ""


def examine(readings: Readings) -> list[MachineFinding]:
    """Return all findings, in the order in which they should be fixed."""
    looks = (_threads, _cores, _clock, _memory, _swap, _allocator, _torch, _gpus)
    return [finding for look in looks for finding in look(readings)]


def _threads(at: Readings) -> Iterator[MachineFinding]:
    asked, quota = at.asked_threads, at.group_quota
    limits = f"affinity {len(at.cpus)}, {'no quota' if quota is None else f'quota {quota:.3g}'}"
    what = f"{count_of(asked, 'thread')} on {count_of(at.quota, 'core')} ({limits})"
    effect = _thread_effect(at)
    if asked > at.quota:
        yield MachineFinding("threads", "bad", what, effect, f"use --threads {at.quota} or fewer")
    elif quota is not None and quota < asked:
        effect = "once the quota is used, all threads stop until its next period"
        yield MachineFinding("threads", "bad", what, effect, "raise the quota (cpu.max; docker run --cpus)")
    elif asked > 1 and at.threads is not None and _times(at.threads) >= _WAITING:
        yield MachineFinding("threads", "bad", what, effect, "stop other work, or use one thread")
    elif asked == at.quota:
        what += ": none is left for attnbench's own process"
        remedy = f"--threads {asked - 1} leaves one" if asked > 1 else "allow a second core if there is one"
        yield MachineFinding("threads", "note", what, effect, remedy)
    elif at.threads is not None and _times(at.threads) >= _WAITING:
        # A run of this many threads is fine, but suites may ask for more.
        yield MachineFinding("threads", "note", what, effect, "stop other work, or keep to --threads 1")
    else:
        yield MachineFinding("threads", "fine", what, effect)


def _times(threads: Probed) -> float:
    return float(threads["asked_ms"] / threads["one_ms"])


def _factor(times: float, below: str) -> str:
    """Return a factor in words, in whole numbers from 10 on; below: the format of smaller ones."""
    return f"×{times:{'.0f' if times >= 10 else below}}"


def _thread_effect(at: Readings) -> str:
    if at.threads is None:
        return ""
    count = at.threads["threads"]
    return f"attention with L=128: {count} threads take {_factor(_times(at.threads), '.2g')} as long as one"


def _cores(at: Readings) -> Iterator[MachineFinding]:
    """Check for other work on the cores, as watched before and as a program there measured it."""
    busy = [cpu for cpu in at.cpus if at.shares.get(cpu, 0) > BUSY_SHARE or _own(at, cpu) < 1 - BUSY_SHARE]
    if not set(at.cpus) <= at.shares.keys():
        yield MachineFinding("cores", "note", "other work can't be watched: /proc/stat is not readable")
    elif not busy:
        yield MachineFinding("cores", "fine", f"no other work on {count_of(len(at.cpus), 'core')}")
    measured = split_cpus(at.cpus, at.asked_threads)[0]
    for cpu in busy:
        share = f"{at.shares[cpu]:.0%} busy" if cpu in at.shares else "busy"
        if cpu in measured:
            yield _busy_core(at, cpu, f"core {cpu}, to be measured on, is {share}", busy)
        else:
            effect = "only attnbench's own process runs there; nothing is measured on it"
            yield MachineFinding("busy core", "note", f"core {cpu} is {share}", effect)


def _busy_core(at: Readings, cpu: int, what: str, busy: Sequence[int]) -> MachineFinding:
    """Return what other work on a core does to a run that is measured there."""
    effects = []
    if cpu in at.steady:
        # Work that yields takes caches and clock speed all the same.
        still = ", but not its caches alone" if _own(at, cpu) >= _UNDISTURBED else ""
        effects.append(f"a test program there got {_own(at, cpu):.0%} of the core{still}")
    remedy = "stop other work"
    idle = [other for other in at.cpus if other in at.shares and other not in busy]
    if len(idle) >= at.asked_threads:
        remedy += f", or leave the core out: taskset -c {','.join(map(str, idle))} attnbench run"
    if at.asked_threads > 1:
        effects.append(_thread_effect(at))
        remedy += ", or use one thread"
    return MachineFinding("busy core", "bad", what, "; ".join(filter(None, effects)), remedy)


def _own(at: Readings, cpu: int) -> float:
    """Return the share of time that a program got on a core; 1 where none ran."""
    return float(at.steady.get(cpu, {}).get("own_share", 1.0))


def _clock(at: Readings) -> Iterator[MachineFinding]:
    """Check how steady clocks are: settings of the system, and differences between equal loops."""
    what = f"governor {', '.join(at.governors)}" if at.governors else "the governor is unknown"
    what += "" if at.turbo is None else f", turbo {'on' if at.turbo else 'off'}"
    spreads = {cpu: found["slowest_ms"] / found["fastest_ms"] for cpu, found in at.steady.items()}
    if not spreads:
        yield MachineFinding("clock", "note", what, "loops could not be run")
        return
    cpu = max(spreads, key=spreads.__getitem__)
    effect = f"the time of equal loops on core {cpu} differs by up to {_factor(spreads[cpu], '.2f')}"
    remedy = "the cause is not visible here (other virtual machines, for example)"
    if _own(at, cpu) < _UNDISTURBED or at.shares.get(cpu, 0) > BUSY_SHARE:
        remedy = f"stop other work on core {cpu}"
    elif at.governors and at.governors != ("performance",):
        remedy = "as root: cpupower frequency-set --governor performance"
    elif at.turbo:
        remedy = "turn turbo off in the firmware or the system"
    remedy += "; paired samples cancel most of it, and a larger --budget helps"
    steady = spreads[cpu] <= _STEADY
    yield MachineFinding("clock", "fine" if steady else "note", what, effect, "" if steady else remedy)


def _memory(at: Readings) -> Iterator[MachineFinding]:
    free = f"{human_bytes(at.free_bytes)} free"
    if at.free_bytes < _LITTLE_BYTES:
        remedy = "stop programs that hold memory"
        yield MachineFinding("memory", "note", free, "larger cases are out_of_memory", remedy)
    else:
        yield MachineFinding("memory", "fine", free)


def _swap(at: Readings) -> Iterator[MachineFinding]:
    if at.swapped_bytes > 0:
        what = f"{human_bytes(at.swapped_bytes)} went in or out within a second"
        effect = "a call that waits for a disk takes thousands of times longer"
        yield MachineFinding("swap", "bad", what, effect, "free memory, or as root: swapoff -a")
    elif at.swap_used_bytes > 0:
        what = f"{human_bytes(at.swap_used_bytes)} used, nothing moved"
        yield MachineFinding("swap", "note", what, remedy="free memory before a long run")


def _allocator(at: Readings) -> Iterator[MachineFinding]:
    if at.allocator == "default":
        what = "default thresholds: the state of the heap decides whether freed memory is returned"
        effect = "a call may pay for thousands of page faults"
        yield MachineFinding("allocator", "bad", what, effect, "--allocator keep, the default of a run")
    else:
        yield MachineFinding("allocator", "fine", "keep: freed memory stays with the process")


def _torch(at: Readings) -> Iterator[MachineFinding]:
    found = at.libraries
    if found is None:
        remedy = "python -c 'import torch' shows why"
        yield MachineFinding("torch", "bad", "can't be imported", "nothing can be measured", remedy)
        return
    cuda = f"CUDA {found['cuda']}" if found["cuda"] else "no CUDA"
    built = f"torch {found['torch']}, {found['capability']}, {cuda}"
    if found["capability"] in ("DEFAULT", "NO AVX"):
        effect = "kernels use no vector instructions: times differ from those of usual builds"
        remedy = "unset ATEN_CPU_CAPABILITY, or install another build of torch"
        yield MachineFinding("torch", "note", built, effect, remedy)
    else:
        yield MachineFinding("torch", "fine", built)


def _gpus(at: Readings) -> Iterator[MachineFinding]:
    if at.gpus_unseen:
        yield MachineFinding(
            "GPU", "note", at.gpus_unseen, remedy="pip install nvidia-ml-py, or run nvidia-smi"
        )
    elif not at.gpus:
        yield MachineFinding("GPU", "fine", "the NVIDIA driver reports none")
    for index, gpu in enumerate(at.gpus):
        if at.libraries is not None and not at.libraries["cuda"]:
            effect = "torch is built without CUDA: nothing can be measured there"
            yield MachineFinding(
                f"GPU {index}", "note", gpu.name, effect, "install a build of torch with CUDA"
            )
        else:
            yield _clock_of(f"GPU {index}", gpu)
            yield from _shared(f"busy GPU {index}", gpu)


def _clock_of(name: str, gpu: Gpu) -> MachineFinding:
    """Return whether the clock of a GPU is reduced, and whether its driver stays loaded."""
    now, most = ("?" if mhz is None else mhz for mhz in (gpu.clock_mhz, gpu.largest_mhz))
    what = f"{gpu.name}, {now} of {most} MHz"
    if gpu.reasons is None:
        return MachineFinding(name, "note", what, "the driver does not report whether the clock is reduced")
    causes = ", ".join(cause for bit, cause in _HELD_DOWN.items() if gpu.reasons & bit)
    if causes:
        remedy = "nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE shows more"
        return MachineFinding(name, "bad", what, f"its clock is reduced by {causes}", remedy)
    if gpu.persistent == 0:
        effect = "without persistence mode each process loads the driver again"
        return MachineFinding(name, "note", what, effect, "as root: nvidia-smi -pm 1")
    return MachineFinding(name, "fine", what)


def _shared(name: str, gpu: Gpu) -> Iterator[MachineFinding]:
    """Check for other programs on a GPU."""
    # The driver reports no utilization of a part of a GPU (MIG).
    if (gpu.busy_percent or 0) >= _BUSY_PERCENT:
        effect = "other programs share the GPU with what is measured"
        remedy = "nvidia-smi lists its processes: stop them, or wait"
        yield MachineFinding(name, "bad", f"{gpu.busy_percent}% busy", effect, remedy)
    used, total = gpu.used_bytes, gpu.total_bytes
    if used is not None and total is not None and used > _HELD * total:
        what = f"{human_bytes(used)} of {human_bytes(total)} of its memory are taken"
        remedy = "nvidia-smi lists its processes"
        yield MachineFinding(name, "note", what, "larger cases are out_of_memory", remedy)
