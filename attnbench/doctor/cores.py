"""What is said of cores: how many threads they can take, who else uses them, how steady they are."""

from __future__ import annotations

from collections.abc import Iterator

from attnbench.cases.control_groups import whole_number
from attnbench.doctor.finding import Finding
from attnbench.doctor.readings import Readings, cores_measured
from attnbench.runner.busy import BUSY_SHARE
from attnbench.types.words import count_of

_STEADY = 1.1
"""The slow end of equal loops over the fast end; above it speeds change."""
_UNDISTURBED = 0.95
"""The share of its time that a program gets on a core that others leave to it."""
_WAITING = 2.0
"""Times what one thread takes; that several take no less than that is no matter of sharing out the work."""


def look_at_threads(at: Readings) -> Iterator[Finding]:
    """How many the run would have, and what others start by themselves."""
    asked, have = at.asked_threads, _have(at)
    what, effect = f"{count_of(asked, 'thread')}, and {have}", _thread_effect(at)
    if asked > at.quota:
        yield Finding("threads", "bad", what, effect, f"ask for --threads {at.quota} or fewer")
    elif at.group_quota is not None and at.group_quota < asked:
        stopped = "the group is stopped for the rest of each period once that is used"
        yield Finding("threads", "bad", what, stopped, "a larger quota (cpu.max; docker run --cpus)")
    elif asked > 1 and at.threads is not None and _times(at) >= _WAITING:
        yield Finding("threads", "bad", what, effect, "stop other work, or ask for one thread")
    elif asked == at.quota:
        help_ = f"--threads {asked - 1} leaves one" if asked > 1 else "allow a second core if there is one"
        yield Finding(
            "threads", "note", f"{what}: none is left for attnbench's own process", effect, help_
        )  # fmt: skip
    else:
        yield Finding("threads", "fine", what, effect)
    own = whole_number(at.own_threads.partition(",")[0])  # of nested levels the outermost
    if own is not None and own > at.quota:
        yield Finding(
            "OMP_NUM_THREADS", "note", f"is {at.own_threads}, and {have}",
            "attnbench gives its processes the threads of each case; your own programs take this one",
            f"export OMP_NUM_THREADS={at.quota}",
        )  # fmt: skip
    default = (at.libraries or {}).get("default_threads", 0)
    if default > at.quota:
        yield Finding(
            "torch's threads", "note", f"torch starts {default} threads by itself, and {have}",
            "attnbench gives its processes the threads of each case; your own programs take these",
            f"torch.set_num_threads({at.quota}) in your own programs",
        )  # fmt: skip


def _have(at: Readings) -> str:
    quota = "no quota is seen" if at.group_quota is None else f"quota {at.group_quota:.3g}"
    return f"this process has {count_of(at.quota, 'core')} (affinity {len(at.cpus)}, {quota})"


def _times(at: Readings) -> float:
    return 0.0 if at.threads is None else float(at.threads["asked_ms"] / at.threads["one_ms"])


def _thread_effect(at: Readings) -> str:
    if at.threads is None:
        return ""
    return f"attention of L=128 with {at.threads['threads']} threads: ×{_times(at):.2g} the time with one"


def look_at_cores(at: Readings) -> Iterator[Finding]:
    """Which of them other work uses: as watched while nothing ran, and as a program there found it."""
    busy = [cpu for cpu in at.cpus if at.shares.get(cpu, 0) > BUSY_SHARE or _own(at, cpu) < 1 - BUSY_SHARE]
    if not set(at.cpus) <= at.shares.keys():
        yield Finding("cores", "note", "who uses them could not be watched: /proc/stat does not tell")
    elif not busy:
        yield Finding("cores", "fine", f"no other work on {count_of(len(at.cpus), 'core')}")
    for cpu in busy:
        yield _busy_core(at, cpu)


def _own(at: Readings, cpu: int) -> float:
    """The share of its time that a program got there; 1 where none was run."""
    return float(at.steady.get(cpu, {}).get("own_share", 1.0))


def _busy_core(at: Readings, cpu: int) -> Finding:
    share = f"{at.shares[cpu]:.0%} busy" if cpu in at.shares else "busy"
    if cpu not in cores_measured(at.cpus, at.asked_threads):
        effect = "attnbench's own process shares it; nothing is measured there"
        return Finding("busy core", "note", f"core {cpu} is {share}", effect)
    what, effect = f"core {cpu}, to be measured on, is {share}", ""
    if cpu in at.steady:
        effect = f"a program there gets {_own(at, cpu):.0%} of its time"
    if at.asked_threads == 1 and cpu in at.steady and _own(at, cpu) >= _UNDISTURBED:
        return Finding("busy core", "note", what, f"{effect}: the other work made way")
    help_ = f"stop other work{_elsewhere(at)}"
    if at.asked_threads > 1:
        effect = "; ".join(filter(None, (effect, _thread_effect(at))))
        help_ += ", or ask for one thread"
    return Finding("busy core", "bad", what, effect, help_)


def _elsewhere(at: Readings) -> str:
    """How to run on the cores that nobody uses; "" where those are too few."""
    idle = [cpu for cpu in at.cpus if at.shares.get(cpu, 1) <= BUSY_SHARE and _own(at, cpu) >= 1 - BUSY_SHARE]
    if len(idle) < at.asked_threads:
        return ""
    return f", or leave that core out: taskset -c {','.join(map(str, idle))} attnbench run"


def look_at_speed(at: Readings) -> Iterator[Finding]:
    """Whether clocks change: what the system says of them, and how equal loops differ."""
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
    else:
        yield Finding("clock", "note", told, effect, _steadier(at, cpu))


def _steadier(at: Readings, cpu: int) -> str:
    pairs = "pairs cancel most of it, and a larger --budget helps"
    if _own(at, cpu) < _UNDISTURBED or at.shares.get(cpu, 0) > BUSY_SHARE:
        return f"stop other work on core {cpu}; {pairs}"
    if at.governors and at.governors != ("performance",):
        return f"as root: cpupower frequency-set --governor performance; {pairs}"
    if at.turbo:
        return f"turn turbo off in the firmware or the system; {pairs}"
    return f"{pairs}; the cause is not seen from here (other guests of the machine, say)"
