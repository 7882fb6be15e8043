"""Findings from measurements: one function for each thing that can disturb a run."""

from __future__ import annotations

from collections.abc import Iterator
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


Row = tuple[bool, Level, *tuple[str, ...]]
"""A possible finding: whether it holds, and the fields of a :class:`Finding` after its name."""


def examine(readings: Readings) -> list[Finding]:
    """Return all findings, in the order in which they should be fixed."""
    looks = (_threads, _cores, _clock, _memory, _swap, _allocator, _torch, _gpus)
    return [finding for look in looks for finding in look(readings)]


def _first(name: str, *rows: Row) -> Iterator[Finding]:
    """Yield the first finding that holds, if any does."""
    for holds, level, *texts in rows:
        if holds:
            yield Finding(name, level, *texts)
            return


def _threads(at: Readings) -> Iterator[Finding]:
    asked, quota = at.asked_threads, at.group_quota
    limits = f"affinity {len(at.cpus)}, {'no quota' if quota is None else f'quota {quota:.3g}'}"
    what = f"{count_of(asked, 'thread')} on {count_of(at.quota, 'core')} ({limits})"
    effect = _thread_effect(at)
    waits = asked > 1 and at.threads is not None and _times(at.threads) >= _WAITING
    leave = f"--threads {asked - 1} leaves one" if asked > 1 else "allow a second core if there is one"
    yield from _first(
        "threads",
        (asked > at.quota, "bad", what, effect, f"use --threads {at.quota} or fewer"),
        (
            quota is not None and quota < asked, "bad", what,
            "once the quota is used, all threads stop until its next period",
            "raise the quota (cpu.max; docker run --cpus)",
        ),
        (waits, "bad", what, effect, "stop other work, or use one thread"),
        (asked == at.quota, "note", f"{what}: none is left for attnbench's own process", effect, leave),
        (True, "fine", what, effect),
    )  # fmt: skip


def _times(threads: Probed) -> float:
    return float(threads["asked_ms"] / threads["one_ms"])


def _thread_effect(at: Readings) -> str:
    if at.threads is None:
        return ""
    return (
        f"attention with L=128: {at.threads['threads']} threads take ×{_times(at.threads):.2g} as long as one"
    )


def _cores(at: Readings) -> Iterator[Finding]:
    """Check for other work on the cores, as watched before and as a program there measured it."""
    busy = [cpu for cpu in at.cpus if at.shares.get(cpu, 0) > BUSY_SHARE or _own(at, cpu) < 1 - BUSY_SHARE]
    unseen = not set(at.cpus) <= at.shares.keys()
    yield from _first(
        "cores",
        (unseen, "note", "other work can't be watched: /proc/stat is not readable"),
        (not busy, "fine", f"no other work on {count_of(len(at.cpus), 'core')}"),
    )
    idle = [cpu for cpu in at.cpus if cpu in at.shares and cpu not in busy]
    remedy = "stop other work"
    if len(idle) >= at.asked_threads:
        remedy += f", or leave the core out: taskset -c {','.join(map(str, idle))} attnbench run"
    remedy += ", or use one thread" if at.asked_threads > 1 else ""
    for cpu in busy:
        share = f"{at.shares[cpu]:.0%} busy" if cpu in at.shares else "busy"
        measured = f"core {cpu}, to be measured on, is {share}"
        gets = f"a test program there got {_own(at, cpu):.0%} of the core" if cpu in at.steady else ""
        yields = at.asked_threads == 1 and cpu in at.steady and _own(at, cpu) >= _UNDISTURBED
        of_threads = _thread_effect(at) if at.asked_threads > 1 else ""
        yield from _first(
            "busy core",
            (
                cpu not in split_cpus(at.cpus, at.asked_threads)[0], "note", f"core {cpu} is {share}",
                "only attnbench's own process runs there; nothing is measured on it",
            ),
            (yields, "note", measured, f"{gets}, since the other work yields"),
            (True, "bad", measured, "; ".join(filter(None, (gets, of_threads))), remedy),
        )  # fmt: skip


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
    effect = f"the time of equal loops on core {cpu} differs by up to ×{spreads[cpu]:.2f}"
    remedy = "the cause is not visible here (other virtual machines, for example)"
    if _own(at, cpu) < _UNDISTURBED or at.shares.get(cpu, 0) > BUSY_SHARE:
        remedy = f"stop other work on core {cpu}"
    elif at.governors and at.governors != ("performance",):
        remedy = "as root: cpupower frequency-set --governor performance"
    elif at.turbo:
        remedy = "turn turbo off in the firmware or the system"
    remedy += "; paired samples cancel most of it, and a larger --budget helps"
    steady = spreads[cpu] <= _STEADY
    yield Finding("clock", "fine" if steady else "note", what, effect, "" if steady else remedy)


def _memory(at: Readings) -> Iterator[Finding]:
    shown = f"{human_bytes(at.free_bytes)} free"
    little = at.free_bytes < _LITTLE_BYTES
    yield from _first(
        "memory",
        (little, "note", shown, "larger cases are out_of_memory", "stop programs that hold memory"),
        (True, "fine", shown),
    )


def _swap(at: Readings) -> Iterator[Finding]:
    moved, used = (human_bytes(count) for count in (at.swapped_bytes, at.swap_used_bytes))
    effect = "a call that waits for a disk takes thousands of times longer"
    yield from _first(
        "swap",
        (
            at.swapped_bytes > 0, "bad", f"{moved} went in or out within a second", effect,
            "free memory, or as root: swapoff -a",
        ),
        (at.swap_used_bytes > 0, "note", f"{used} used, nothing moved", "", "free memory before a long run"),
    )  # fmt: skip


def _allocator(at: Readings) -> Iterator[Finding]:
    yield from _first(
        "allocator",
        (
            at.allocator == "default", "bad",
            "default thresholds: the state of the heap decides whether freed memory is returned",
            "a call may pay for thousands of page faults", "--allocator pinned, the default of a run",
        ),
        (True, "fine", "pinned: freed memory stays with the process"),
    )  # fmt: skip


def _torch(at: Readings) -> Iterator[Finding]:
    found = at.libraries
    if found is None:
        remedy = "python -c 'import torch' shows why"
        yield Finding("torch", "bad", "can't be imported", "nothing can be measured", remedy)
        return
    cuda = f"CUDA {found['cuda']}" if found["cuda"] else "no CUDA"
    built = f"torch {found['torch']}, {found['capability']}, {cuda}"
    effect = "kernels use no vector instructions: times differ from those of usual builds"
    yield from _first(
        "torch",
        (
            found["capability"] in ("DEFAULT", "NO AVX"), "note", built, effect,
            "unset ATEN_CPU_CAPABILITY, or install another build of torch",
        ),
        (True, "fine", built),
    )  # fmt: skip


def _gpus(at: Readings) -> Iterator[Finding]:
    yield from _first(
        "GPU",
        (bool(at.gpus_unseen), "note", at.gpus_unseen, "", "pip install nvidia-ml-py, or run nvidia-smi"),
        (not at.gpus, "fine", "the NVIDIA driver reports none"),
    )
    usable = at.libraries is None or bool(at.libraries["cuda"])
    for index, gpu in enumerate(at.gpus):
        yield from _gpu(index, gpu, usable=usable)


def _gpu(index: int, gpu: Gpu, *, usable: bool) -> Iterator[Finding]:
    now, most = ("?" if mhz is None else mhz for mhz in (gpu.clock_mhz, gpu.largest_mhz))
    what = f"{gpu.name}, {now} of {most} MHz"
    causes = ", ".join(cause for bit, cause in _HELD_DOWN.items() if (gpu.reasons or 0) & bit)
    yield from _first(
        f"GPU {index}",
        (
            not usable, "note", gpu.name, "torch is built without CUDA: nothing can be measured there",
            "install a build of torch with CUDA",
        ),
        (gpu.reasons is None, "note", what, "the driver does not report whether the clock is reduced"),
        (
            bool(causes), "bad", what, f"its clock is reduced by {causes}",
            "nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE shows more",
        ),
        (
            gpu.persistent == 0, "note", what, "without persistence mode each process loads the driver again",
            "as root: nvidia-smi -pm 1",
        ),
        (True, "fine", what),
    )  # fmt: skip
    # The driver reports no utilization of a part of a GPU (MIG).
    if usable and (gpu.busy_percent or 0) >= _BUSY_PERCENT:
        effect = "other programs share the GPU with what is measured"
        remedy = "nvidia-smi lists its processes: stop them, or wait"
        yield Finding(f"busy GPU {index}", "bad", f"{gpu.busy_percent}% busy", effect, remedy)
    used, total = gpu.used_bytes, gpu.total_bytes
    if usable and used is not None and total is not None and used > _HELD * total:
        what = f"{human_bytes(used)} of {human_bytes(total)} of its memory are taken"
        effect = "larger cases are out_of_memory"
        yield Finding(f"busy GPU {index}", "note", what, effect, "nvidia-smi lists its processes")
