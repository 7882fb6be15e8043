"""The measurements on this machine: ``python -m attnbench.doctor.probe``, asked and answered in JSON.

Each probe runs in its own process, since thread pools and allocators keep their first settings.
"""

from __future__ import annotations

import json
import os
import random
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

_STEADY_S, _LOOP_S = 1.0, 0.002
_CALLS_S = 0.3
_PROCESSES, _CALLS, _LARGEST_BLOCK = 8, 8, 1 << 18


def steady(cpu: str) -> dict[str, Any]:
    """Time short Python loops on one core: the time of each, and the share of it that this process ran."""
    os.sched_setaffinity(0, {int(cpu)})
    count, walls, shares = 1000, [], []
    while _loop(count)[0] < _LOOP_S:
        count *= 2
    end = time.perf_counter() + _STEADY_S
    while time.perf_counter() < end:
        wall_s, cpu_s = _loop(count)
        walls.append(wall_s)
        shares.append(cpu_s / wall_s)
    walls.sort()
    return {
        "fastest_ms": 1e3 * walls[len(walls) // 20],
        "slowest_ms": 1e3 * walls[-1 - len(walls) // 20],
        "own_share": sum(shares) / len(shares),
    }


def _loop(count: int) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.thread_time()
    for _ in range(count):
        pass
    return time.perf_counter() - wall, time.thread_time() - cpu


def threads(asked: str) -> dict[str, Any]:
    """Time attention of L=128 with one thread and with the given number: medians of calls."""
    import torch

    q = torch.randn(1, 8, 128, 64)
    found: dict[str, Any] = {"threads": int(asked)}
    for name, number in (("one_ms", 1), ("asked_ms", int(asked))):
        torch.set_num_threads(number)
        found[name] = _median_ms(lambda: torch.nn.functional.scaled_dot_product_attention(q, q, q))
    return found


def faults(thresholds: str) -> dict[str, Any]:
    """Time the naive form at L=512, with the allocator's thresholds pinned or default, in several processes.

    Whether freed memory is returned depends on what lies above it in the heap, which differs between
    processes. Each process therefore begins with blocks of other sizes. ms, faults: per call, one number for
    each process, without the call with most faults: a heap grows once, and later calls do not pay for it.
    """
    import torch

    from attnbench.timing.allocator import pin_allocator

    taken = pin_allocator() if thresholds == "pinned" else False
    torch.set_num_threads(1)
    results = [_forked(partial(_faulting, seed)) for seed in range(_PROCESSES)]
    return {
        "taken": taken,
        "ms": [one["ms"] for one in results],
        "faults": [one["faults"] for one in results],
    }


def _faulting(seed: int) -> dict[str, float]:
    import torch

    drawn = random.Random(seed)
    blocks = [torch.empty(drawn.randrange(1, _LARGEST_BLOCK)) for _ in range(drawn.randrange(8))]
    call = partial(_naive, torch.randn(1, 8, 512, 64))
    for _ in range(2 * _CALLS):
        call()
    calls = sorted(_counted(call) for _ in range(_CALLS))[:-1]
    del blocks
    faults, times = zip(*calls, strict=True)
    return {"ms": sum(times) / len(times), "faults": sum(faults) / len(faults)}


def _counted(call: Callable[[], object]) -> tuple[int, float]:
    """Return the page faults of a call, and its milliseconds."""
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.perf_counter()
    call()
    ms = 1e3 * (time.perf_counter() - start)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, ms


def _forked(work: Callable[[], dict[str, float]]) -> dict[str, float]:
    """Call a function in a fork of this process and return its result."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, json.dumps(work()).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        answer: dict[str, float] = json.load(file)
    os.wait()
    return answer


def _naive(q: Tensor) -> Tensor:
    scores = q @ q.mT * 0.125
    masked = scores + 0.0
    return masked.softmax(-1) @ q


def libraries() -> dict[str, Any]:
    """Describe the build of torch."""
    import torch

    capability = torch.backends.cpu.get_cpu_capability()
    return {"torch": torch.__version__, "capability": capability, "cuda": torch.version.cuda}


def _median_ms(call: Callable[[], object]) -> float:
    taken: list[float] = []
    end = time.perf_counter() + _CALLS_S
    while len(taken) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return 1e3 * median(taken)


PROBES: dict[str, Callable[..., dict[str, Any]]] = {
    probe.__name__: probe for probe in (steady, threads, faults, libraries)
}


def main() -> None:
    """Run the probe that stdin names, with its arguments."""
    name, *words = json.load(sys.stdin)
    sys.stdout.write(json.dumps(PROBES[name](*words)) + "\n")


if __name__ == "__main__":
    main()
