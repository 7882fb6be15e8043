"""The pool of processes: servers by launch, and the worker that measures the machine."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from typing import Any

import pytest
from run_parts import PLAIN, parent_of

from attnbench.cases.ids import parse_case
from attnbench.ipc import messages as m
from attnbench.runner.link import WorkerFailed, WorkerLink, wait_until_ended
from attnbench.runner.options import Options
from attnbench.runner.pool import MOST_FAILURES, Scale, WorkerPool
from attnbench.types.record import MachineScale

LAUNCHES = Options().launches
CASE = parse_case(PLAIN)
MEASURED = MachineScale({100: [20_000]}, 1000, [20], [40.0])


def test_templates_come_from_the_server_asked_for_and_a_dead_one_is_replaced() -> None:
    with closing(WorkerPool(Options())) as pool:
        links = [pool.new_worker(1, pool.all_cpus, launch=launch) for launch in range(LAUNCHES + 1)]
        servers = [parent_of(link.pid) for link in links]
        assert len(set(servers)) == LAUNCHES == 3
        assert servers[-1] == servers[0]
        for link in links:
            link.kill()
        os.kill(servers[1], signal.SIGKILL)
        wait_until_ended(servers[1], 10)
        pool.start_servers(1)
        again = [pool.new_worker(1, pool.all_cpus, launch=launch) for launch in range(LAUNCHES)]
        now = [parent_of(link.pid) for link in again]
        assert (now[0], now[2]) == (servers[0], servers[2])
        assert now[1] not in servers
        for link in again:
            link.kill()


class Shop:
    """Forks links that do as they are told, in turn."""

    def __init__(self, *links: Any) -> None:
        self.options = Options()
        self.all_cpus = (0,)
        self.left = list(links)
        self.started: list[int] = []

    def start_servers(self, threads: int) -> None:
        self.started.append(threads)

    def measured_cpus(self, threads: int) -> tuple[int, ...]:
        return (0,)

    def new_worker(self, threads: int, cpus: tuple[int, ...]) -> Any:
        link = self.left.pop(0)
        if isinstance(link, Exception):
            raise link
        return link


class Link:
    def __init__(self, *outcomes: Any) -> None:
        self.outcomes = list(outcomes)
        self.killed = 0
        self.asked: list[m.MeasureScale] = []

    def ask(self, request: m.MeasureScale, expects: type, timeout_s: float) -> tuple[Any, int]:
        self.asked.append(request)
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return m.ScaleMeasured(outcome), -1

    def put_first(self) -> bool:
        return True

    def kill(self) -> None:
        self.killed += 1


DEAD = WorkerFailed("crashed", "died of SIGKILL during the measurement of the machine's speed")


def scale_of(*links: Any) -> tuple[Scale, Shop]:
    pool = Shop(*links)
    return Scale(pool), pool  # type: ignore[arg-type]


def test_after_three_failures_the_run_goes_on_without() -> None:
    links = [Link(DEAD), WorkerFailed("timeout", "no answer to Fork"), Link(MEASURED, DEAD), Link(MEASURED)]
    scale, pool = scale_of(*links)
    assert MOST_FAILURES == 3
    assert scale.measure(CASE, 1) == MEASURED
    assert scale.measure(CASE, 1) is None
    assert scale.measure(CASE, 1) is None
    assert len(pool.left) == 1, "it is not asked again"
    assert scale.problem == (
        "the scale of the machine could not be measured: died of SIGKILL during "
        "the measurement of the machine's speed"
    )


def test_a_killed_worker_is_replaced_by_a_real_one(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[WorkerLink] = []
    forked = pool.new_worker

    def new_worker(threads: int, cpus: tuple[int, ...]) -> WorkerLink:
        made.append(forked(threads, cpus))
        return made[-1]

    monkeypatch.setattr(pool, "new_worker", new_worker)
    scale = Scale(pool)
    try:
        assert scale.measure(CASE, 1e6) is not None
        os.kill(made[0].pid, 9)
        assert scale.measure(CASE, 1e6) is not None
        assert len(made) == 2
        assert "died of SIGKILL during the measurement of the machine's speed" in scale.problem
        assert os.sched_getaffinity(made[1].pid) == set(pool.measured_cpus(1))
    finally:
        scale.close()
