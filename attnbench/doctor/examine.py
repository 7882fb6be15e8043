"""From readings to findings: one function for each thing that can disturb."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attnbench.cases.sizes import human_bytes
from attnbench.doctor.cores import look_at_cores, look_at_speed, look_at_threads
from attnbench.doctor.finding import Finding
from attnbench.doctor.gpus import look_at_gpus
from attnbench.doctor.readings import Probed, Readings
from attnbench.types.words import count_of

_FAULT_MS, _COUNTS = 0.002, 0.02
"""What a page fault takes, about, and the share of a call from which on a difference counts (--delta)."""
_LITTLE_BYTES = 2 * 1024**3


def examine(readings: Readings) -> list[Finding]:
    """Every finding, in the order in which they are best mended."""
    return [finding for look in _LOOKS for finding in look(readings)]


def _memory(at: Readings) -> Iterator[Finding]:
    if at.free_bytes is None:
        yield Finding("memory", "note", "how much is free is not told here")
    elif at.free_bytes < _LITTLE_BYTES:
        yield Finding(
            "memory", "note", f"{human_bytes(at.free_bytes)} free", "larger cases are out_of_memory",
            "stop what holds memory",
        )  # fmt: skip
    else:
        yield Finding("memory", "fine", f"{human_bytes(at.free_bytes)} free")
    if at.swapped_pages is None:
        yield Finding("swap", "note", "whether pages go in or out is not told here")
    elif at.swapped_pages:
        yield Finding(
            "swap", "bad", f"{count_of(at.swapped_pages, 'page')} went in or out within a second",
            "a call that waits for a disk takes thousands of times as long",
            "free memory, or as root: swapoff -a",
        )  # fmt: skip
    elif at.swap_used_bytes:
        used = f"{human_bytes(at.swap_used_bytes)} of swap are used, and none went in or out"
        yield Finding("swap", "note", used, "", "free memory before a long run")


def _allocator(at: Readings) -> Iterator[Finding]:
    if at.pinned is None or at.unpinned is None:
        yield Finding("allocator", "note", "could not be measured")
        return
    with_default = f"{_spread(at.unpinned)} as it is"
    effect = f"the naive form at L=512: {with_default}, {_spread(at.pinned)} pinned"
    more = max(at.unpinned["faults"]) - max(at.pinned["faults"])
    costly = more * _FAULT_MS > _COUNTS * min(at.unpinned["ms"])
    if not at.pinned["taken"]:
        yield Finding("allocator", "fine", "this C library has no thresholds to pin")
    elif at.allocator == "default" and costly:
        yield Finding(
            "allocator", "bad", "default thresholds: freed memory is given back, by luck of the heap", effect,
            "--allocator pinned, as runs have it by default",
        )  # fmt: skip
    elif costly:
        yield Finding(
            "allocator", "note", "default thresholds outside of attnbench, which pins them", effect,
            "in your own programs: export MALLOC_TRIM_THRESHOLD_=2147483647 MALLOC_MMAP_THRESHOLD_=33554432",
        )  # fmt: skip
    else:
        yield Finding("allocator", "fine", "pinned thresholds spare no page faults that count here", effect)


def _spread(probed: Probed) -> str:
    """Of all processes: the least and the most."""
    ms, least, most = probed["ms"], round(min(probed["faults"])), round(max(probed["faults"]))
    pages = count_of(most, "page fault") if least == most else f"{least} to {most} page faults"
    return f"{pages} and {min(ms):.2f} to {max(ms):.2f} ms a call"


def _libraries(at: Readings) -> Iterator[Finding]:
    if at.libraries is None:
        told = "python -c 'import torch' says why"
        yield Finding("torch", "bad", "does not start here", "nothing can be measured", told)
        return
    found = at.libraries
    built = f"torch {found['torch']}, {found['capability']}, {'MKL' if found['mkl'] else 'no MKL'}"
    built += f", {'oneDNN' if found['mkldnn'] else 'no oneDNN'}"
    built += f", CUDA {found['cuda']}" if found["cuda"] else ", no CUDA"
    if len(found["openmp_runtimes"]) > 1:
        yield Finding(
            "OpenMP", "note", f"a process with torch has several: {', '.join(found['openmp_runtimes'])}",
            "each has threads of its own, and those of one spin while the other's work",
            "LD_PRELOAD is the usual cause: unset it",
        )  # fmt: skip
    if found["debug"]:
        yield Finding(
            "torch", "note", f"{built}, built for debugging", "times say little of those of other builds",
            "another build of torch",
        )  # fmt: skip
    elif found["capability"] in ("DEFAULT", "NO AVX"):
        yield Finding(
            "torch", "note", built, "kernels without vector instructions: times say little of others",
            "unset ATEN_CPU_CAPABILITY, or another build of torch",
        )  # fmt: skip
    else:
        yield Finding("torch", "fine", built)


def _gpus(at: Readings) -> Iterator[Finding]:
    return look_at_gpus(at.gpus, usable=at.libraries is None or bool(at.libraries["cuda"]))


_LOOKS: tuple[Callable[[Readings], Iterator[Finding]], ...] = (
    look_at_threads, look_at_cores, look_at_speed, _memory, _allocator, _libraries, _gpus,
)  # fmt: skip
