"""Findings from measurements: one function for each thing that can disturb a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from attnbench.cases.work import human_bytes
from attnbench.doctor.readings import Gpu, Probed, Readings, cores_measured
from attnbench.runner.machine import BUSY_SHARE
from attnbench.types.words import count_of

Level = Literal["fine", "note", "bad"]

_STEADY = 1.1
"""The ratio of the slowest to the fastest equal loops above which clocks are unsteady."""
_UNDISTURBED = 0.95
"""The share of time that a program gets on a core without other work."""
_WAITING = 2.0
"""The ratio of the time with several threads to that with one, from which threads wait for each other."""
_FAULT_MS, _COUNTS = 0.002, 0.02
"""The approximate time of a page fault, and the share of a call from which a difference counts (--delta)."""
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
class Finding:
    """One finding of the doctor.

    level: ``bad`` where it would change a verdict of the run; ``note`` where a reader should know. what: the
    state. effect: its effect here, measured where possible. remedy: what helps, or "".
    """

    name: str
    level: Level
    what: str
    effect: str = ""
    remedy: str = ""


def examine(readings: Readings) -> list[Finding]:
    """Return all findings, in the order in which they should be fixed."""
    return [finding for look in _LOOKS for finding in look(readings)]


def _threads(at: Readings) -> Iterator[Finding]:
    asked = at.asked_threads
    quota = "no quota is seen" if at.group_quota is None else f"quota {at.group_quota:.3g}"
    have = f"this process has {count_of(at.quota, 'core')} (affinity {len(at.cpus)}, {quota})"
    what, effect = f"{count_of(asked, 'thread')}, and {have}", _thread_effect(at)
    if asked > at.quota:
        yield Finding("threads", "bad", what, effect, f"ask for --threads {at.quota} or fewer")
    elif at.group_quota is not None and at.group_quota < asked:
        stopped = "the group is stopped for the rest of each period once that is used"
        yield Finding("threads", "bad", what, stopped, "a larger quota (cpu.max; docker run --cpus)")
    elif asked > 1 and at.threads is not None and _times(at.threads) >= _WAITING:
        yield Finding("threads", "bad", what, effect, "stop other work, or ask for one thread")
    elif asked == at.quota:
        remedy = f"--threads {asked - 1} leaves one" if asked > 1 else "allow a second core if there is one"
        what += ": none is left for attnbench's own process"
        yield Finding("threads", "note", what, effect, remedy)
    else:
        yield Finding("threads", "fine", what, effect)


def _times(threads: Probed) -> float:
    return float(threads["asked_ms"] / threads["one_ms"])


def _thread_effect(at: Readings) -> str:
    if at.threads is None:
        return ""
    what = f"attention of L=128 with {at.threads['threads']} threads"
    return f"{what}: ×{_times(at.threads):.2g} the time with one"


def _cores(at: Readings) -> Iterator[Finding]:
    """Check for other work on the cores, as watched before and as a program there measured it."""
    busy = [cpu for cpu in at.cpus if _is_busy(at, cpu)]
    if not set(at.cpus) <= at.shares.keys():
        yield Finding("cores", "note", "other work could not be watched: /proc/stat is not readable")
    elif not busy:
        yield Finding("cores", "fine", f"no other work on {count_of(len(at.cpus), 'core')}")
    idle = [cpu for cpu in at.cpus if cpu in at.shares and cpu not in busy]
    for cpu in busy:
        share = f"{at.shares[cpu]:.0%} busy" if cpu in at.shares else "busy"
        if cpu not in cores_measured(at.cpus, at.asked_threads):
            effect = "attnbench's own process shares it; nothing is measured there"
            yield Finding("busy core", "note", f"core {cpu} is {share}", effect)
            continue
        what, effect = f"core {cpu}, to be measured on, is {share}", ""
        if cpu in at.steady:
            effect = f"a program there gets {_own(at, cpu):.0%} of its time"
        if at.asked_threads == 1 and cpu in at.steady and _own(at, cpu) >= _UNDISTURBED:
            yield Finding("busy core", "note", what, f"{effect}: the other work yielded")
            continue
        remedy = "stop other work"
        if len(idle) >= at.asked_threads:
            remedy += f", or leave that core out: taskset -c {','.join(map(str, idle))} attnbench run"
        if at.asked_threads > 1:
            effect = "; ".join(filter(None, (effect, _thread_effect(at))))
            remedy += ", or ask for one thread"
        yield Finding("busy core", "bad", what, effect, remedy)


def _is_busy(at: Readings, cpu: int) -> bool:
    return at.shares.get(cpu, 0) > BUSY_SHARE or _own(at, cpu) < 1 - BUSY_SHARE


def _own(at: Readings, cpu: int) -> float:
    """Return the share of time that a program got on a core; 1 where none ran."""
    return float(at.steady.get(cpu, {}).get("own_share", 1.0))


def _clock(at: Readings) -> Iterator[Finding]:
    """Check how steady clocks are: settings of the system, and differences between equal loops."""
    what = f"governor {', '.join(at.governors)}" if at.governors else "the governor is unknown"
    what += "" if at.turbo is None else f", turbo {'on' if at.turbo else 'off'}"
    spreads = {cpu: found["slowest_ms"] / found["fastest_ms"] for cpu, found in at.steady.items()}
    if not spreads:
        yield Finding("clock", "note", what, "loops could not be run")
        return
    cpu = max(spreads, key=spreads.__getitem__)
    effect = f"equal loops on core {cpu} differ by ×{spreads[cpu]:.2f} from the fast end to the slow"
    if spreads[cpu] <= _STEADY:
        yield Finding("clock", "fine", what, effect)
        return
    pairs = "pairs cancel most of it, and a larger --budget helps"
    if _own(at, cpu) < _UNDISTURBED or at.shares.get(cpu, 0) > BUSY_SHARE:
        remedy = f"stop other work on core {cpu}; {pairs}"
    elif at.governors and at.governors != ("performance",):
        remedy = f"as root: cpupower frequency-set --governor performance; {pairs}"
    elif at.turbo:
        remedy = f"turn turbo off in the firmware or the system; {pairs}"
    else:
        remedy = f"{pairs}; the cause is not visible from here (other virtual machines, for example)"
    yield Finding("clock", "note", what, effect, remedy)


def _memory(at: Readings) -> Iterator[Finding]:
    if at.free_bytes is None:
        yield Finding("memory", "note", "the free memory is unknown")
    elif at.free_bytes < _LITTLE_BYTES:
        what = f"{human_bytes(at.free_bytes)} free"
        yield Finding(
            "memory", "note", what, "larger cases are out_of_memory", "stop programs that hold memory"
        )
    else:
        yield Finding("memory", "fine", f"{human_bytes(at.free_bytes)} free")
    if at.swapped_bytes:
        what = f"{human_bytes(at.swapped_bytes)} went in or out within a second"
        effect = "a call that waits for a disk takes thousands of times as long"
        yield Finding("swap", "bad", what, effect, "free memory, or as root: swapoff -a")
    elif at.swap_used_bytes:
        used = f"{human_bytes(at.swap_used_bytes)} of swap are used, and none went in or out"
        yield Finding("swap", "note", used, "", "free memory before a long run")


def _allocator(at: Readings) -> Iterator[Finding]:
    if at.pinned is None or at.unpinned is None:
        yield Finding("allocator", "note", "could not be measured")
        return
    effect = f"the naive form at L=512: {_spread(at.unpinned)} as it is, {_spread(at.pinned)} pinned"
    more = max(at.unpinned["faults"]) - max(at.pinned["faults"])
    if not at.pinned["taken"]:
        yield Finding("allocator", "fine", "this C library has no thresholds to pin")
    elif more * _FAULT_MS <= _COUNTS * min(at.unpinned["ms"]):
        yield Finding("allocator", "fine", "pinned thresholds spare no page faults that count here", effect)
    elif at.allocator == "default":
        what = "default thresholds: whether freed memory is returned depends on the heap"
        yield Finding("allocator", "bad", what, effect, "--allocator pinned, as runs have it by default")
    else:
        what = "default thresholds outside of attnbench, which pins them"
        remedy = "export MALLOC_TRIM_THRESHOLD_=2147483647 MALLOC_MMAP_THRESHOLD_=33554432"
        yield Finding("allocator", "note", what, effect, f"in your own programs: {remedy}")


def _spread(probed: Probed) -> str:
    """Write the least and the most of all processes."""
    ms, least, most = probed["ms"], round(min(probed["faults"])), round(max(probed["faults"]))
    pages = count_of(most, "page fault") if least == most else f"{least} to {most} page faults"
    return f"{pages} and {min(ms):.2f} to {max(ms):.2f} ms a call"


def _libraries(at: Readings) -> Iterator[Finding]:
    if at.libraries is None:
        remedy = "python -c 'import torch' says why"
        yield Finding("torch", "bad", "does not start here", "nothing can be measured", remedy)
        return
    cuda = f"CUDA {at.libraries['cuda']}" if at.libraries["cuda"] else "no CUDA"
    built = f"torch {at.libraries['torch']}, {at.libraries['capability']}, {cuda}"
    if at.libraries["capability"] in ("DEFAULT", "NO AVX"):
        effect = "kernels without vector instructions: times differ from those of usual builds"
        remedy = "unset ATEN_CPU_CAPABILITY, or another build of torch"
        yield Finding("torch", "note", built, effect, remedy)
    else:
        yield Finding("torch", "fine", built)


def _gpus(at: Readings) -> Iterator[Finding]:
    if at.gpus_unseen:
        yield Finding("GPU", "note", at.gpus_unseen, "", "pip install nvidia-ml-py, or see nvidia-smi")
    elif not at.gpus:
        yield Finding("GPU", "fine", "the NVIDIA driver reports none")
    usable = at.libraries is None or bool(at.libraries["cuda"])
    for index, gpu in enumerate(at.gpus):
        if usable:
            yield _clock_of(f"GPU {index}", gpu)
            yield from _others(f"busy GPU {index}", gpu)
        else:
            effect = "torch is built without CUDA: nothing can be measured there"
            yield Finding(f"GPU {index}", "note", gpu.name, effect, "a build of torch with CUDA")


def _clock_of(name: str, gpu: Gpu) -> Finding:
    what = f"{gpu.name}, {_number(gpu.clock_mhz)} of {_number(gpu.largest_mhz)} MHz"
    if gpu.reasons is None:
        return Finding(name, "note", what, "the driver does not report whether the clock is reduced")
    holders = [who for bit, who in _HELD_DOWN.items() if gpu.reasons & bit]
    if holders:
        effect = f"its clock is reduced by {', '.join(holders)}"
        return Finding(name, "bad", what, effect, "nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE says more")
    if gpu.persistent == 0:
        effect = "without persistence mode every process loads the driver again"
        return Finding(name, "note", what, effect, "as root: nvidia-smi -pm 1")
    return Finding(name, "fine", what)


def _number(value: int | None) -> str:
    return "?" if value is None else str(value)


def _others(name: str, gpu: Gpu) -> Iterator[Finding]:
    """Check for other work on a GPU, where the driver reports it: a part of a GPU (MIG) has no
    utilization."""
    if gpu.busy_percent is not None and gpu.busy_percent >= _BUSY_PERCENT:
        effect = "other programs share the GPU with what is measured"
        remedy = "nvidia-smi lists its processes: stop them, or wait"
        yield Finding(name, "bad", f"{gpu.busy_percent}% busy", effect, remedy)
    used, total = gpu.used_bytes, gpu.total_bytes
    if used is not None and total is not None and used > _HELD * total:
        what = f"{human_bytes(used)} of {human_bytes(total)} of its memory are taken"
        yield Finding(name, "note", what, "larger cases are out_of_memory", "nvidia-smi lists its processes")


_LOOKS: tuple[Callable[[Readings], Iterator[Finding]], ...] = (
    _threads, _cores, _clock, _memory, _allocator, _libraries, _gpus,
)  # fmt: skip
