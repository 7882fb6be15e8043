"""The scale in a run: in every set, a reason to suspect what is beyond it, and never a reason to fail."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from run_parts import LESS_CHECKED, PLAIN, by_backend, run_of

from attnbench.cases.ids import parse_case
from attnbench.ipc import messages as m
from attnbench.plugins.registry import load_registry
from attnbench.runner.link import WorkerFailed, WorkerLink
from attnbench.runner.options import Options
from attnbench.runner.pool import MOST_FAILURES, Scale, WorkerPool
from attnbench.types.record import MachineScale

CASE = parse_case(PLAIN)
LARGE = "attention/dot/B1-H4-Lq512-Lk512-D64/none/float32/cpu/forward"
MEASURED = MachineScale({100: [20_000]}, 1000, [20], [40.0])


def test_every_set_has_a_scale_and_every_row_its_share(tmp_path: Path) -> None:
    stored = run_of(tmp_path, (PLAIN,), ("eager", "bmm"), sets=3)
    assert len(stored.sets) == 3
    for line in stored.sets:
        assert line.scale is not None
        assert line.scale.gemm_ns
        assert line.scale.copy_ns
        assert line.scale.empty_ns
    for record in stored.records:
        assert record.status == "ok"
        assert record.limit_share is not None
        assert 0 < record.limit_share < 1


def test_what_is_right_but_faster_than_the_machine_is_suspect(odd_plugins: None, tmp_path: Path) -> None:
    """It remembers what it was asked, values and all, and answers from memory: every output is right.

    Inputs stay as they are here: where they are renewed it also computes outside its samples, and the clocks
    of the others may tell that first.
    """
    two = ("eager", "remember_by_value")
    stored = run_of(
        tmp_path, (LARGE,), two, registry=load_registry(), sets=3, without=(*LESS_CHECKED, "renewal")
    )
    records = by_backend(stored, LARGE)
    assert records["eager"].status == "ok"
    suspect = records["remember_by_value"]
    assert suspect.status == "suspect"
    assert "times as fast as this machine was at its best: 268 MFLOP at " in suspect.reason
    assert suspect.limit_share is not None
    assert suspect.limit_share > 1.25
    assert suspect.median_ms is not None, "a suspect keeps its samples"
    assert records["eager"].best == "eager", "and ranks nowhere"


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


def test_a_run_without_a_scale_is_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Scale, case: object, bytes_moved: float) -> None:
        self.problem = "it could not be measured"

    monkeypatch.setattr(Scale, "measure", fails)
    stored = run_of(tmp_path, (PLAIN,), ("eager",))
    assert [line.scale for line in stored.sets] == [None, None]
    (record,) = stored.records
    assert (record.status, record.limit_share) == ("ok", None)
    assert "it could not be measured" in record.notes
