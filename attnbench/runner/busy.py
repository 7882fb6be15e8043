"""Whether other work uses the cores that are going to be measured on."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from attnbench.cases.control_groups import read
from attnbench.runner.machine import split_cpus

WATCHED_S = 0.25
BUSY_SHARE = 0.2
"""A core that other work uses for more than this share of its time is busy."""

_STAT = Path("/proc/stat")
_IDLE = (3, 4)
_GUEST = 8


@dataclass(frozen=True)
class CoreTime:
    """Clock ticks of one core since it started: used by anybody, and all."""

    used: int
    all: int


def core_times(text: str) -> dict[int, CoreTime]:
    """The times of each core from the text of /proc/stat.

    Waiting for a disk counts as idle; time that the machine under a virtual one took away counts as used. A
    guest's time is part of the user's. A line that says something else is left out.
    """
    found = {}
    for line in text.splitlines():
        name, _, numbers = line.partition(" ")
        if name.startswith("cpu") and name[3:].isdigit():
            words = numbers.split()[:_GUEST]
            if len(words) <= max(_IDLE) or not all(word.isascii() and word.isdigit() for word in words):
                continue
            ticks = [int(word) for word in words]
            total = sum(ticks)
            found[int(name[3:])] = CoreTime(total - sum(ticks[place] for place in _IDLE), total)
    return found


def busy_shares(before: Mapping[int, CoreTime], after: Mapping[int, CoreTime]) -> dict[int, float]:
    """How much of its time each core was used between two readings; 0 where no tick has passed."""
    return {
        cpu: (after[cpu].used - before[cpu].used) / max(1, after[cpu].all - before[cpu].all)
        for cpu in before.keys() & after.keys()
    }


def watch_cores(seconds: float = WATCHED_S, stat: Path = _STAT) -> dict[int, float]:
    """How busy each core is while this process sleeps; empty, at once, where the system doesn't tell."""
    before = core_times(read(stat))
    if not before:
        return {}
    time.sleep(seconds)
    return busy_shares(before, core_times(read(stat)))


def busy_warning(threads: int, cpus: tuple[int, ...], shares: Mapping[int, float]) -> str:
    """What is wrong with measuring ``threads`` threads on the last of ``cpus``; "" for nothing.

    One thread alone shares its core fairly with what else runs there, and samples that lost time are left
    out. Of several, one that waits holds up all the others.
    """
    if threads < 2:
        return ""
    busy = {cpu: share for cpu in split_cpus(cpus, threads)[0] if (share := shares.get(cpu, 0)) > BUSY_SHARE}
    if not busy:
        return ""
    told = ", ".join(f"core {cpu} is {share:.0%} busy" for cpu, share in sorted(busy.items()))
    return (
        f"{threads} threads are going to share cores with other work ({told}): one that waits holds up "
        "all the others, and times can be many times too long; stop other work, or ask for fewer --threads"
    )
