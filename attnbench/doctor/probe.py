"""The measurements on this machine: ``python -m attnbench.doctor.probe``, asked and answered in JSON.

They run in a process of their own, since thread pools keep their first settings.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from attnbench.ipc.process import stdout_for_answers

_STEADY_S, _LOOP_S = 1.0, 0.002
_CALLS_S = 0.3


def steady(cpu: int) -> dict[str, Any]:
    """Time short Python loops on one core: the time of each, and the share of it that this process ran."""
    os.sched_setaffinity(0, {cpu})
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


def threads(asked: int) -> dict[str, Any]:
    """Time attention of L=128 with one thread and with the given number: medians of calls."""
    import torch

    q = torch.randn(1, 8, 128, 64)
    found: dict[str, Any] = {"threads": asked}
    for name, number in (("one_ms", 1), ("asked_ms", asked)):
        torch.set_num_threads(number)
        found[name] = _median_ms(lambda: torch.nn.functional.scaled_dot_product_attention(q, q, q))
    return found


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


def main() -> None:
    """Read the cores and the number of threads from stdin; write a line for each answer when it is known.

    A process that fails or hangs so loses no answer but the next ones.
    """
    cpus, asked = json.load(sys.stdin)
    out = stdout_for_answers()
    allowed, found = os.sched_getaffinity(0), {}
    for cpu in cpus:
        with contextlib.suppress(OSError):
            found[cpu] = steady(cpu)
    os.sched_setaffinity(0, allowed)
    out.write(_line({"steady": found}))
    out.write(_line({"libraries": libraries()}))
    if asked > 1:
        out.write(_line({"threads": threads(asked)}))


def _line(answer: dict[str, Any]) -> bytes:
    return f"{json.dumps(answer)}\n".encode()


if __name__ == "__main__":
    main()
