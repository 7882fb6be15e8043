"""The servers of a run: as many as there are launches, and sets take turns with them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from run_parts import PLAIN, parent_of, run_of

from attnbench.runner.link import WorkerLink, wait_until_ended
from attnbench.runner.options import Options
from attnbench.runner.pool import ServerKey, WorkerPool

LAUNCHES = Options().launches


def test_templates_come_from_the_server_asked_for_and_a_dead_one_is_replaced() -> None:
    with WorkerPool(Options()) as pool:
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


def test_a_server_that_was_lost_is_there_again_when_a_case_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = WorkerPool.start_servers

    def start_and_kill(pool: WorkerPool, threads: int) -> None:
        first = ServerKey("", threads, 0) not in pool._servers
        started(pool, threads)
        server: WorkerLink = pool._servers[ServerKey("", threads, 1)]
        if first:
            os.kill(server.pid, signal.SIGKILL)
            wait_until_ended(server.pid, 10)

    monkeypatch.setattr(WorkerPool, "start_servers", start_and_kill)
    stored = run_of(tmp_path, (PLAIN,), ("eager", "bmm"), sets=3)
    assert {record.status for record in stored.records} == {"ok"}
    assert len(stored.sets) == 3
