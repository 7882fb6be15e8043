"""The pool of processes: servers by launch, and the worker that measures the machine."""

from __future__ import annotations

import os
import signal
from contextlib import closing

import pytest
from run_parts import PLAIN, parent_of

from attnbench.cases.ids import parse_case
from attnbench.runner.options import Options
from attnbench.runner.pool import MOST_FAILURES, Scale, WorkerPool
from attnbench.runner.processes import WorkerFailed, WorkerLink, wait_until_ended

LAUNCHES = Options().launches
CASE = parse_case(PLAIN)


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


def test_after_three_failures_the_run_goes_on_without(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def new_worker(threads: int, cpus: tuple[int, ...]) -> WorkerLink:
        asked.append(threads)
        raise WorkerFailed("timeout", "no answer to Fork")

    monkeypatch.setattr(pool, "new_worker", new_worker)
    scale = Scale(pool)
    assert scale.measure(CASE, 1) is None
    assert scale.measure(CASE, 1) is None
    assert len(asked) == MOST_FAILURES == 3
    assert scale.problem == "the scale of the machine could not be measured: no answer to Fork"


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
