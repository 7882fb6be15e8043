"""Who works for a process: its threads, processes that it started, and what they have used of the cores."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

from attnbench.worker.outputs import WrongOutput

_TASKS = "/proc/self/task"
_ENDED = ("Z", "X")
_LOOKS = 20
_LOOKS_BEFORE_REFUSAL = 500
"""How often it is looked whether what a call started has ended. Before anyone is refused, for longer than a
busy machine may keep a thread that was joined from its last step."""
_LOOK_S = 0.001

OTHERS_SHARE, OTHERS_LEAST_NS = 0.2, 1_000_000
"""Of a call's CPU time, and beyond that: what other threads may take in a call of one thread. Not of the time
on the wall, of which a busy machine takes its share."""
IDLE_SHARE, IDLE_LEAST_NS = 0.5, 5_000_000
"""Of the call before, and at least: what other threads may not take while nothing is asked of the process."""


@dataclass(frozen=True)
class Activity:
    """At one moment: threads and children by number, and what was used so far.

    own_ns, others_ns: CPU time of this thread, and of all others. ended: of children that were waited for,
    seconds in their own code and in the kernel, and page faults: the least of processes has some.
    """

    threads: frozenset[int]
    children: frozenset[int]
    own_ns: int
    others_ns: int
    ended: tuple[float, float, int]


@dataclass(frozen=True)
class Past:
    """What is known of the calls that were checked in a process. pid: which one; in a fork, nothing is.

    calls: how many there were. cpu_ns: of the last, all threads. others_ns: of other threads, when it was
    over.
    """

    pid: int = 0
    calls: int = 0
    cpu_ns: int = 0
    others_ns: int = 0


NO_PAST = Past()


def past_here(past: Past) -> Past:
    """What is known of calls in this process; in a fresh fork nothing is."""
    return past if past.pid == os.getpid() else Past(pid=os.getpid())


def others_ns() -> int:
    """CPU time that all threads but the calling one have used."""
    return _used()[1]


def forgiven(past: Past, spent_ns: int) -> Past:
    """The past where other threads used so much CPU time on what was no call: compilers have threads."""
    return replace(past, others_ns=past.others_ns + spent_ns)


def with_call(past: Past, before: Activity) -> Past:
    """The past with the call that is just over."""
    own, others = _used()
    spent = own - before.own_ns + others - before.others_ns
    return Past(past.pid, past.calls + 1, spent, others)


def read_activity() -> Activity:
    """What there is now; of threads and children only what still runs."""
    own, others = _used()
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    threads = _numbers()
    return Activity(
        threads, _children(threads), own, others, (ended.ru_utime, ended.ru_stime, ended.ru_minflt)
    )


def check_idle(past: Past, now: Activity) -> None:
    """Raise :class:`WrongOutput` where other threads went on working after the call before."""
    used = now.others_ns - past.others_ns
    if past.calls and used > max(IDLE_LEAST_NS, IDLE_SHARE * past.cpu_ns):
        raise WrongOutput(
            f"it worked on after the call before: {used / 1e6:.1f} ms of CPU time on other threads, "
            f"after a call of {past.cpu_ns / 1e6:.1f} ms",
            "activity",
        )


def check_company(before: Activity, past: Past, threads: int) -> None:
    """Raise :class:`WrongOutput` where a call that is just over had help it should not have.

    Libraries start pools and compilers at a process's first call, which is not judged by what it started
    and ended again, nor by threads, unless they are Python's and the case allows but one. past: before the
    call. threads: how many the case allows.
    """
    own, others = _used()
    used = others - before.others_ns
    spent = own - before.own_ns + used
    _check_parent()
    now = _settled(before, _LOOKS)
    if _left(before, now, past, threads):
        now = _settled(before, _LOOKS_BEFORE_REFUSAL)
    if left := _left(before, now, past, threads):
        raise WrongOutput(f"the call left {left}", "activity")
    if not past.calls:
        return
    if now.ended != before.ended:
        raise WrongOutput("the call started a process, and waited for it", "activity")
    if threads == 1 and used > OTHERS_SHARE * spent + OTHERS_LEAST_NS:
        raise WrongOutput(
            f"the call computes on other threads: {used / 1e6:.1f} ms of its {spent / 1e6:.1f} ms of CPU "
            "time, with one thread allowed",
            "activity",
        )


def _left(before: Activity, now: Activity, past: Past, threads: int) -> str:
    """What a call started and did not end, of what it may not; "" for nothing."""
    if now.children - before.children:
        return "a process running that it started"
    new = now.threads - before.threads
    if not past.calls:
        new = new & _of_python() if threads == 1 else frozenset()
    if not new:
        return ""
    return f"{f'{len(new)} threads' if len(new) > 1 else 'a thread'} running"


def _check_parent() -> None:
    """Raise :class:`WrongOutput` where the process that this one was forked from stands still; it goes on."""
    parent = os.getppid()
    try:
        status = Path(f"/proc/{parent}/status").read_text()
    except OSError:
        return
    if stands_still(status):
        os.kill(parent, signal.SIGCONT)
        raise WrongOutput("the call stopped the process that its own was forked from", "activity")


def stands_still(status: str) -> bool:
    """Whether a process is stopped, or will be once it has a core, by what ``/proc/PID/status`` says."""
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    pending = int(fields.get("ShdPnd", "0"), 16)
    return fields.get("State", "").split()[:1] == ["T"] or bool(pending >> (signal.SIGSTOP - 1) & 1)


def _settled(before: Activity, looks: int) -> Activity:
    """What there is when all that was ending has ended: a thread that was joined is seen a moment longer."""
    now = read_activity()
    for _ in range(looks):
        if now.threads <= before.threads and now.children <= before.children:
            break
        time.sleep(_LOOK_S)
        now = read_activity()
    return now


def _used() -> tuple[int, int]:
    """CPU time of the calling thread and of all others."""
    own = time.thread_time_ns()
    return own, time.process_time_ns() - own


def _numbers() -> frozenset[int]:
    try:
        return frozenset(map(int, os.listdir(_TASKS)))  # noqa: PTH208
    except OSError:
        return frozenset()


def _of_python() -> frozenset[int]:
    """Threads that were started in Python: no library's pool is made of those."""
    return frozenset(thread.native_id for thread in threading.enumerate() if thread.native_id is not None)


def _children(threads: frozenset[int]) -> frozenset[int]:
    """Living children, where the kernel tells; one that has ended is nobody's help any more."""
    found: set[int] = set()
    for thread in threads:
        try:
            words = Path(f"{_TASKS}/{thread}/children").read_text()
        except OSError:
            continue
        found.update(map(int, words.split()))
    return frozenset(pid for pid in found if _runs(pid))


def _runs(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in _ENDED
