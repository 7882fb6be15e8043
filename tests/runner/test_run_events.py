"""Runs in which something happens from outside: too little memory, lost processes, other priorities."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from run_parts import CAUSAL, LESS_CHECKED, PLAIN, by_backend, declared, run_of

from attnbench.cases.ids import parse_case
from attnbench.cases.work import too_large
from attnbench.plugins.registry import load_registry
from attnbench.runner import case as case_module
from attnbench.runner import processes
from attnbench.runner.forecast import RunPlan
from attnbench.runner.machine import allowed_cpus
from attnbench.runner.options import Options
from attnbench.runner.pool import ScaleMeter, ServerKey, WorkerPool
from attnbench.runner.processes import wait_until_ended

LARGE = "attention/dot/B1-H4-Lq512-Lk512-D64/none/float32/cpu/forward"


def test_a_backend_that_compiles_is_left_out_where_the_suite_says_unless_it_is_named(tmp_path: Path) -> None:
    registry = declared(load_registry(), "bmm", compiles=True)
    stored = run_of(
        tmp_path, (PLAIN, CAUSAL), ("eager", "bmm"), registry=registry, compiled_on=frozenset({PLAIN}),
        timed=False,
    )  # fmt: skip
    refused = [(r.case, r.backend, r.status, r.reason) for r in stored.records if r.reason]
    words = "compiles slowly: this suite gives it few cases"
    assert refused == [(CAUSAL, "bmm", "unsupported", words)]
    named = RunPlan((), ("bmm",), registry, Options(), named=("bmm",), compiled_on=frozenset())
    assert named.left_out(PLAIN) == frozenset()


def test_a_case_that_does_not_fit_into_memory_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(case_module, "free_memory", lambda: 5000)
    stored = run_of(tmp_path, (PLAIN,), ("eager", "bmm"))
    registry = load_registry()
    for name, record in by_backend(stored).items():
        words = too_large(parse_case(PLAIN), registry.rule("dot"), registry.backend(name), 5000)
        assert (record.status, record.reason) == ("out_of_memory", words)
    assert stored.cases == stored.repetitions == ()


@pytest.mark.slow
def test_how_often_a_backend_is_prepared(
    odd_plugins: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for the check, and anew for each repetition; one that can't be forked for three at most."""
    # However a busy machine stretches its milliseconds.
    monkeypatch.setattr("attnbench.runner.check._ANEW_BELOW_NS", 1e18)
    pids = tmp_path / "pids"
    pids.mkdir()
    monkeypatch.setenv("BROKEN_PIDS", str(pids))
    names = ("record_process", "record_process_too")
    registry = declared(load_registry(), names[1], forkable=False)
    stored = run_of(tmp_path, (PLAIN,), names, registry=registry, repetitions=5, launches=1)
    assert {(record.status, record.repetitions) for record in stored.records} == {("ok", 5)}
    found = Counter(path.name.rpartition("-")[0] for path in pids.iterdir())
    assert found == {names[0]: 1 + 5, names[1]: 1 + 3}


@pytest.mark.slow
def test_a_run_goes_on_without_a_server_and_without_the_speed_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that was lost is there again when a case begins."""
    started = WorkerPool.start_servers

    def start_and_kill(pool: WorkerPool, threads: int) -> None:
        first = ServerKey("", threads, 0) not in pool._servers
        started(pool, threads)
        server = pool._servers[ServerKey("", threads, 1)]
        if first:
            os.kill(server.pid, signal.SIGKILL)
            wait_until_ended(server.pid, 10)

    def fails(self: ScaleMeter, case: object, bytes_moved: float) -> None:
        self.problem = "it could not be measured"

    monkeypatch.setattr(WorkerPool, "start_servers", start_and_kill)
    monkeypatch.setattr(ScaleMeter, "measure", fails)
    stored = run_of(tmp_path, (PLAIN,), ("eager", "bmm"), repetitions=2)
    assert [line.scale for line in stored.repetitions] == [None] * 2
    for record in stored.records:
        assert (record.status, record.limit_share) == ("ok", None)
        assert "it could not be measured" in record.notes


@pytest.mark.slow
def test_a_right_backend_that_is_faster_than_the_machine_is_suspect(
    odd_plugins: None, tmp_path: Path
) -> None:
    """It answers from memory. Inputs stay as they are here, or the clocks of the others might tell first."""
    without = (*LESS_CHECKED, "refreshed")
    stored = run_of(tmp_path, (LARGE,), ("eager", "remember_by_value"), without=without)
    records = by_backend(stored, LARGE)
    suspect = records["remember_by_value"]
    assert (suspect.status, suspect.failed_check) == ("suspect", "limit")
    assert ": 268 MFLOP at " in suspect.reason
    assert suspect.limit_share > 1.25
    assert suspect.median_ms is not None, "a suspect keeps its samples"
    assert (records["eager"].status, records["eager"].best) == ("ok", "eager"), "and ranks nowhere"


@pytest.mark.slow
@pytest.mark.parametrize("allowed", [True, False])
def test_candidates_are_pinned_to_one_core_and_put_first_there_if_the_system_allows_it(
    odd_plugins: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: bool
) -> None:
    def refuse(*ignored: int) -> None:
        raise PermissionError("Operation not permitted")

    cores, mine = allowed_cpus(), os.getpriority(os.PRIO_PROCESS, 0)
    if not allowed:
        monkeypatch.setattr(processes.os, "setpriority", refuse)
    highest = processes.HIGHEST_PRIORITY if allowed and may_raise_priorities() else mine
    notes = tmp_path / "notes"
    notes.mkdir()
    monkeypatch.setenv("ODD_NOTES", str(notes))
    stored = run_of(tmp_path / "run", (PLAIN,), ("honest1", "every_tell_where_it_runs"))
    assert {record.status for record in stored.records} == {"ok"}, [r.reason for r in stored.records]
    found = [json.loads(path.read_text()) for path in notes.iterdir()]
    assert found == [{"cpus": [cores[-1]], "nice": highest}]
    assert allowed_cpus() == cores, "the parent has its cores back"
    assert os.getpriority(os.PRIO_PROCESS, 0) == mine


def may_raise_priorities() -> bool:
    """Try to give a process the highest priority, and end it at once."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setpriority(os.PRIO_PROCESS, 0, processes.HIGHEST_PRIORITY)
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


@pytest.mark.slow
@pytest.mark.parametrize("forkable", [True, False])
def test_a_pinned_allocator_keeps_what_a_call_frees(
    odd_plugins: None, tmp_path: Path, forkable: bool
) -> None:
    """64 times 8 MiB: without it the system gives and clears all pages in each call."""
    registry = declared(load_registry(), "takes_8_mib", forkable=forkable)
    faults: list[float] = []
    for pinned in (True, False):
        out = tmp_path / str(pinned)
        (record,) = run_of(
            out, (PLAIN,), ("takes_8_mib",), registry=registry, allocator_pinned=pinned
        ).records
        assert record.status == "ok", record.reason
        faults.append(record.faults_per_call)
    # In huge pages, where the system gives them, it's 256.
    assert faults[1] > 20
    assert faults[0] < faults[1] / 20
