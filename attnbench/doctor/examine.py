"""From readings to findings: one function for each thing that can disturb."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attnbench.cases.sizes import human_bytes
from attnbench.doctor.finding import Finding
from attnbench.doctor.readings import Probed, Readings
from attnbench.runner.busy import BUSY_SHARE
from attnbench.types.words import count_of

_STEADY = 1.1
"""The slow end of equal loops over the fast end; above it speeds change."""
_SLOWER = 1.2
_FEW_FAULTS = 16
_LITTLE_BYTES = 2 * 1024**3
_SAFE_GPU = ("0x0000000000000000", "0x0000000000000001")
"""No reason to lower the clock, or none but having nothing to do."""


def examine(readings: Readings) -> list[Finding]:
    """Every finding, in the order in which they are best mended."""
    return [finding for look in _LOOKS for finding in look(readings)]


def _threads(at: Readings) -> Iterator[Finding]:
    have = f"this process has {count_of(at.quota, 'core')} (affinity {len(at.cpus)}, quota {at.quota})"
    if at.asked_threads > at.quota:
        yield Finding(
            "threads", "bad", f"{count_of(at.asked_threads, 'thread')}, and {have}", _thread_effect(at),
            f"ask for --threads {at.quota} or fewer",
        )  # fmt: skip
    elif at.asked_threads == len(at.cpus) and len(at.cpus) > 1:
        yield Finding(
            "threads", "note", f"{count_of(at.asked_threads, 'thread')}, and {have}: none is left",
            _thread_effect(at), f"--threads {at.asked_threads - 1} leaves one",
        )  # fmt: skip
    else:
        effect = _thread_effect(at) if at.threads is not None else ""
        yield Finding("threads", "fine", f"{count_of(at.asked_threads, 'thread')}, and {have}", effect)
    if at.own_threads.isdigit() and int(at.own_threads) > at.quota:
        yield Finding(
            "OMP_NUM_THREADS", "note", f"is {at.own_threads}, and {have}",
            "attnbench gives its processes the threads of each case; your own programs take this one",
            f"export OMP_NUM_THREADS={at.quota}",
        )  # fmt: skip
    default = (at.libraries or {}).get("default_threads", 0)
    if default > at.quota:
        yield Finding(
            "torch's threads", "note", f"torch starts {default} threads by itself, and {have}",
            "a container's quota is unknown to it", f"torch.set_num_threads({at.quota}) in your own programs",
        )  # fmt: skip


def _thread_effect(at: Readings) -> str:
    if at.threads is None:
        return ""
    times, threads = at.threads["asked_ms"] / at.threads["one_ms"], max(2, at.asked_threads)
    return f"attention of L=128 with {threads} threads: ×{times:.2g} the time with one"


def _cores(at: Readings) -> Iterator[Finding]:
    measured = at.cpus[-max(1, min(at.asked_threads, len(at.cpus))) :]
    busy = {cpu: share for cpu, share in sorted(at.shares.items()) if share > BUSY_SHARE and cpu in at.cpus}
    if not busy:
        yield Finding("cores", "fine", f"no other work on {count_of(len(at.cpus), 'core')}")
    for cpu, share in busy.items():
        own = (at.steady.get(cpu) or {}).get("own_share")
        effect = "" if own is None else f"a program there gets {own:.0%} of its time"
        if cpu in measured:
            help_ = "stop other work, or choose other cores: taskset -c ... attnbench run"
            if at.asked_threads > 1:
                effect = "; ".join(filter(None, (effect, _thread_effect(at))))
                help_ += "; or ask for one thread"
            yield Finding(
                "busy core", "bad", f"core {cpu}, to be measured on, is {share:.0%} busy", effect, help_
            )
        else:
            yield Finding(
                "busy core", "note", f"core {cpu} is {share:.0%} busy",
                effect or "attnbench's own process shares it; nothing is measured there",
            )  # fmt: skip


def _speed(at: Readings) -> Iterator[Finding]:
    told = f"governor {', '.join(at.governors)}" if at.governors else "the governor is not told here"
    told += "" if at.turbo is None else f", turbo {'on' if at.turbo else 'off'}"
    spreads = {cpu: found["slowest_ms"] / found["fastest_ms"] for cpu, found in at.steady.items()}
    if not spreads:
        yield Finding("clock", "note", told, "loops could not be run")
        return
    cpu = max(spreads, key=spreads.__getitem__)
    effect = f"equal loops on core {cpu} differ by ×{spreads[cpu]:.2f} from the fast end to the slow"
    if spreads[cpu] <= _STEADY:
        yield Finding("clock", "fine", told, effect)
        return
    remedy = "other work or other guests of the machine; pairs cancel most of it: give a larger --budget"
    if at.governors and at.governors != ("performance",):
        remedy = "cpupower frequency-set --governor performance; pairs cancel most of it"
    yield Finding("clock", "note", told, effect, remedy)


def _memory(at: Readings) -> Iterator[Finding]:
    free = f"{human_bytes(at.free_bytes)} free"
    if at.free_bytes < _LITTLE_BYTES:
        yield Finding("memory", "note", free, "larger cases are out_of_memory", "stop what holds memory")
    else:
        yield Finding("memory", "fine", free)
    if at.swapped_pages:
        yield Finding(
            "swap", "bad", f"{at.swapped_pages} pages went in or out within a second",
            "a call that waits for a disk takes thousands of times as long", "free memory, or swapoff -a",
        )  # fmt: skip
    elif at.swap_used_bytes:
        used = f"{human_bytes(at.swap_used_bytes)} of swap are used, and none went in or out"
        yield Finding("swap", "note", used, "", "free memory before a long run")


def _allocator(at: Readings) -> Iterator[Finding]:
    if at.pinned is None or at.unpinned is None:
        yield Finding("allocator", "note", "could not be measured")
        return
    with_default = f"{_spread(at.unpinned)} with default thresholds"
    effect = f"the naive form at L=512: {with_default}, {_spread(at.pinned)} pinned"
    costly = max(at.unpinned["faults"]) > _FEW_FAULTS + 2 * max(at.pinned["faults"])
    if at.allocator == "default" and costly:
        yield Finding(
            "allocator", "bad", "default thresholds: freed memory is given back, by luck of the heap", effect,
            "--allocator pinned, as runs have it by default",
        )  # fmt: skip
    elif costly:
        yield Finding(
            "allocator", "note", "default thresholds outside of attnbench, which pins them", effect,
            "in your own programs: MALLOC_TRIM_THRESHOLD_=2147483647 MALLOC_MMAP_THRESHOLD_=33554432",
        )  # fmt: skip
    else:
        yield Finding("allocator", "fine", "thresholds make no difference here", effect)


def _spread(probed: Probed) -> str:
    """Of all processes: the least and the most."""
    ms, least, most = probed["ms"], f"{min(probed['faults']):.0f}", f"{max(probed['faults']):.0f}"
    pages = least if least == most else f"{least} to {most}"
    return f"{pages} page faults and {min(ms):.2f} to {max(ms):.2f} ms a call"


def _libraries(at: Readings) -> Iterator[Finding]:
    if at.libraries is None:
        told = "python -c 'import torch' says why"
        yield Finding("torch", "bad", "does not start here", "nothing can be measured", told)
        return
    found = at.libraries
    built = f"torch {found['torch']}, {found['capability']}, {'MKL' if found['mkl'] else 'no MKL'}"
    built += f", {'oneDNN' if found['mkldnn'] else 'no oneDNN'}"
    built += f", CUDA {found['cuda']}" if found["cuda"] else ", no CUDA"
    if found["capability"] in ("DEFAULT", "NO AVX"):
        yield Finding(
            "torch", "note", built, "kernels without vector instructions: times say little of others",
            "unset ATEN_CPU_CAPABILITY, or another build of torch",
        )  # fmt: skip
    else:
        yield Finding("torch", "fine", built)


def _gpus(at: Readings) -> Iterator[Finding]:
    if at.gpus is None:
        yield Finding("GPU", "fine", "none that nvidia-smi knows of")
    for index, gpu in enumerate(at.gpus or ()):
        name, why = f"GPU {index}", gpu["clocks_throttle_reasons.active"]
        clocks = f"{gpu['clocks.sm']} of {gpu['clocks.max.sm']} MHz"
        what = f"{gpu['name']}, {clocks}, persistence {gpu['persistence_mode'].lower()}"
        if why not in _SAFE_GPU:
            held = f"its clock is held down ({why})"
            yield Finding(name, "bad", what, held, "nvidia-smi -q -d PERFORMANCE says why")
        elif gpu["persistence_mode"] != "Enabled":
            loaded = "the driver is loaded anew for every process"
            yield Finding(name, "note", what, loaded, "nvidia-smi -pm 1")
        else:
            yield Finding(name, "fine", what)


_LOOKS: tuple[Callable[[Readings], Iterator[Finding]], ...] = (
    _threads, _cores, _speed, _memory, _allocator, _libraries, _gpus,
)  # fmt: skip
