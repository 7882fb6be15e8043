"""The threads and children of a process, and the CPU time that threads other than the calling one used."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from attnbench.worker.outputs import WrongOutput

_TASKS = Path("/proc/self/task")
_LOOKS, _LOOK_S = 500, 0.001
"""How often it is checked whether a thread or child has ended: a busy machine delays the last step of a
thread that was joined."""

OTHERS_SHARE, OTHERS_LEAST_NS = 0.2, 1_000_000
"""In a case of one thread, other threads may use this share of a call's CPU time, plus these ns. Wall time
would not do: a busy machine stretches it."""
IDLE_SHARE, IDLE_LEAST_NS = 0.5, 5_000_000
"""Between two calls other threads may use this share of the CPU time of the call before, or these ns."""


@dataclass(frozen=True)
class Activity:
    """Ids of the running threads and children, and the CPU time of this thread and of all others so far."""

    threads: frozenset[int]
    children: frozenset[int]
    own_ns: int
    others_ns: int


@dataclass(frozen=True)
class Past:
    """The checked calls of the process ``pid`` so far.

    calls: their number. cpu_ns: CPU time of the last one, of all threads. others_ns: CPU time that other
    threads had used when it returned.
    """

    pid: int = 0
    calls: int = 0
    cpu_ns: int = 0
    others_ns: int = 0


NO_PAST = Past()


def past_here(past: Past) -> Past:
    """Return what is known of calls in this process: nothing in a fresh fork."""
    return past if past.pid == os.getpid() else Past(pid=os.getpid())


def with_call(past: Past, before: Activity) -> Past:
    """Return the past with the call that has just returned."""
    own, others = _used()
    return Past(past.pid, past.calls + 1, own - before.own_ns + others - before.others_ns, others)


def read_activity() -> Activity:
    """Return the activity now."""
    threads = frozenset(map(int, os.listdir(_TASKS))) if _TASKS.exists() else frozenset()  # noqa: PTH208
    return Activity(threads, _children(threads), *_used())


def check_idle(past: Past, now: Activity) -> None:
    """Raise :class:`WrongOutput` if other threads went on working after the call before had returned."""
    used = now.others_ns - past.others_ns
    if past.calls and used > max(IDLE_LEAST_NS, IDLE_SHARE * past.cpu_ns):
        raise WrongOutput(
            f"other threads kept working after the call before: {used / 1e6:.1f} ms of CPU time, "
            f"after a call of {past.cpu_ns / 1e6:.1f} ms",
            "activity",
        )


def check_company(before: Activity, past: Past, threads: int) -> None:
    """Check what a call that has just returned left running, and what it computed on other threads.

    A child that the call started may have ended by now. Libraries start thread pools and compilers at the
    first call of a process, so that call may leave threads, unless Python started them and the case allows
    one thread; and it may compute on other threads. past: before the call. threads: how many the case allows.

    Raises:
        WrongOutput: it left a process or a thread, or computed on threads that the case does not allow.
    """
    own, others = _used()
    used = others - before.others_ns
    spent = own - before.own_ns + used
    for _ in range(_LOOKS):
        left = _left_running(before, read_activity(), past, threads)
        if not left:
            break
        time.sleep(_LOOK_S)
    else:
        raise WrongOutput(f"the call left {left}", "activity")
    if past.calls and threads == 1 and used > OTHERS_SHARE * spent + OTHERS_LEAST_NS:
        raise WrongOutput(
            f"the call computes on other threads: {used / 1e6:.1f} ms of its {spent / 1e6:.1f} ms of CPU "
            "time, with one thread allowed",
            "activity",
        )


def _left_running(before: Activity, now: Activity, past: Past, threads: int) -> str:
    """Describe what a call started and left running against the rules; "" for nothing."""
    if now.children - before.children:
        return "a process running that it started"
    new = now.threads - before.threads
    if not past.calls:
        # Threads of a library's pool are unknown to Python.
        new &= {each.native_id for each in threading.enumerate()} if threads == 1 else frozenset()
    if not new:
        return ""
    return f"{f'{len(new)} threads' if len(new) > 1 else 'a thread'} running"


def _used() -> tuple[int, int]:
    """Return the CPU time of the calling thread and of all others."""
    own = time.thread_time_ns()
    return own, time.process_time_ns() - own


def _children(threads: frozenset[int]) -> frozenset[int]:
    """Return the children that still run, where the kernel tells; zombies have ended."""
    found: set[int] = set()
    for thread in threads:
        try:
            found.update(map(int, (_TASKS / f"{thread}/children").read_text().split()))
        except OSError:
            continue
    return frozenset(filter(_runs, found))


def _runs(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")
