"""Peak extra memory of one call, on the host and on other devices, and memory that stays with every call."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns, process_time_ns
from typing import Any

from attnbench.cases.memory import numbers
from attnbench.timing.allocator import return_freed_memory
from attnbench.types.device import CPU, DEVICES


def peak_extra_bytes(call: Callable[[], object], device: str = CPU.name) -> int | None:
    """Return the memory that one call adds at its peak, its output included, in bytes; None if unknown."""
    if DEVICES[device].on_host:
        return resident_peak_extra_bytes(call)
    import torch

    return device_peak_extra_bytes(call, torch.get_device_module(device))


def device_peak_extra_bytes(call: Callable[[], object], module: Any) -> int:
    """Return the device memory that one call takes at its peak, its output included, in bytes.

    module: torch's module for the kind of device.

    The call runs once before, so memory that it keeps does not count. Memory that a library takes from the
    driver, past torch's allocator, does not count either.
    """
    call()
    module.synchronize()
    module.reset_peak_memory_stats()
    before = module.memory_allocated()
    output = call()
    module.synchronize()
    peak = module.max_memory_allocated()
    del output
    return int(max(0, peak - before))


_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


def resident_peak_extra_bytes(call: Callable[[], object]) -> int | None:
    """Return the resident memory that one call adds at its peak, its output included, in bytes.

    The call runs once before, so memory that it keeps does not count. Freed memory goes back to the system
    first, so memory that the call reuses does count. The unit is the page, so small calls show as a few
    kilobytes. None where the system has no such counter; only Linux has. Afterwards the process is of no
    further use for timing: its allocator returns large arrays at once.
    """
    return_freed_memory()
    call()
    gc.collect()
    _give_back_free_memory()
    try:
        _CLEAR.write_text(_RESET_PEAK)
    except OSError:
        return None
    before = numbers(_STATUS)["VmRSS"]
    output = call()
    peak = numbers(_STATUS)["VmHWM"]
    del output
    return max(0, peak - before) * 1024


def _give_back_free_memory() -> None:
    ctypes.CDLL(None).malloc_trim(0)


LEAST_GROWTH_BYTES = 256 * 1024
"""Memory counts as grown from here on: an allocator takes some hundred kilobytes at once from the system."""
ROUNDS, CALLS, _BYTES, _CPU_NS, _NS = 6, 64, 512 * 1024**2, 2_000_000_000, 10_000_000_000
"""Memory must grow in each of so many rounds, over so many calls: a cache stops growing when it is full. So
much growth suffices too, and so long a time on a core, or on the clock, where a busy machine makes fewer."""
_ROUND_CPU_NS, _ROUND_NS, _ROUND_BYTES = 10_000_000, 500_000_000, 32 * 1024**2
"""A round ends after so much time on a core, after so long, when so much is kept, or after ``CALLS``. Of time
on the clock alone a busy machine may leave room for two calls, too few to show what stays."""


def growth_per_call(call: Callable[[], object], held_bytes: Callable[[], int | None]) -> float:
    """Return the bytes that stay with every call; 0 where memory stops growing, or nothing tells.

    held_bytes: what the process holds now, as :func:`resident_bytes`. Where memory does not grow, this takes
    one round.
    """
    start, core, first = perf_counter_ns(), process_time_ns(), held_bytes()
    before, calls, rounds, last = first, 0, 0, False
    while first is not None and before is not None:
        calls += _round(call)
        rounds += 1
        now = held_bytes()
        if now is None or now - before < LEAST_GROWTH_BYTES:
            break
        if last:
            return (now - first) / calls
        # One whole round more: a cache may have become full at the beginning of this one.
        late = process_time_ns() - core >= _CPU_NS or perf_counter_ns() - start >= _NS
        enough = calls >= CALLS or now - first >= _BYTES or late
        last = rounds >= ROUNDS - 1 and enough
        before = now
    return 0.0


def resident_bytes() -> int | None:
    """Return the memory of the process that is not free, swapped out included; None but on Linux.

    The counters of :data:`_STATUS` are off by megabytes on machines of many cores; these are exact.
    """
    gc.collect()
    _give_back_free_memory()
    held = numbers(Path("/proc/self/smaps_rollup"))
    return 1024 * (held["Rss"] + held["Swap"]) if held else None


def _round(call: Callable[[], object]) -> int:
    """Make the calls of a round; return their number."""
    most = numbers(_STATUS)["VmRSS"] + _ROUND_BYTES // 1024
    core, end = process_time_ns() + _ROUND_CPU_NS, perf_counter_ns() + _ROUND_NS
    made = 0
    while made < CALLS and process_time_ns() < core and perf_counter_ns() < end:
        call()
        made += 1
        if numbers(_STATUS)["VmRSS"] >= most:
            break
    return made
