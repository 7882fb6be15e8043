"""The pool of processes: its servers, workers that import a plugin themselves, and one that measures."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from pathlib import Path

import pytest
from run_parts import PLAIN, parent_of

from attnbench.cases.ids import parse_case
from attnbench.ipc import messages as m
from attnbench.ipc.shared_memory import pack
from attnbench.plugins.sources import named
from attnbench.runner.options import Options
from attnbench.runner.pool import MOST_FAILURES, ScaleMeter, WorkerPool
from attnbench.runner.processes import Interpreter, WorkerFailed, WorkerLink, wait_until_ended
from attnbench.types.extensions import Source

LAUNCHES = Options().launches
CASE = parse_case(PLAIN)
RULES = Source("rules", "attnbench.rules", "attnbench", "0")
PLUGIN = """
import attnbench
def prepare(setup):
    # Its own place in memory, which a record has a text for.
    raise RuntimeError(f"lies at {id(prepare)}")
@attnbench.hookimpl
def attnbench_backends():
    yield attnbench.Backend(name="mine", summary="lies somewhere", prepare=prepare)
"""


def failure_of(worker: WorkerLink, source: Source) -> str:
    """Return why a worker can't prepare the backend ``mine``, and end the worker."""
    no_parameters, specs = pack({}, "float32")
    try:
        request = m.Prepare(PLAIN, "mine", source, RULES, specs, None)
        with pytest.raises(WorkerFailed) as failure:
            worker.ask(request, m.Prepared, 60, (no_parameters,))
    finally:
        os.close(no_parameters)
        worker.kill()
    return str(failure.value)


def test_each_worker_imports_the_plugin_itself_elsewhere_and_only_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(PLUGIN)
    source, gone = named(str(file)), Source("gone", "no_such_module_anywhere", "gone", "1")
    with closing(WorkerPool(Options(repetitions=1))) as pool:
        assert "gone 1 (no_such_module_anywhere): cannot be imported" in failure_of(
            pool.new_worker(1, pool.all_cpus), gone
        )
        workers = [pool.new_worker(1, pool.all_cpus) for _ in range(4)]
        # All come from one server.
        assert len({parent_of(worker.pid) for worker in workers}) == 1
        places = {failure_of(worker, source) for worker in workers}
        assert all("lies at" in place for place in places)
        assert len(places) > 1
        # The same size, as soon after as the file system's clock may tell apart.
        file.write_text(PLUGIN.replace("lies at", "lies on"))
        changed = failure_of(pool.new_worker(1, pool.all_cpus), source)
        assert "mine.py has changed since it was first loaded: start again" in changed
    assert not list(tmp_path.glob("__pycache__"))


def test_sides_share_servers_unless_their_environments_differ(tmp_path: Path) -> None:
    sides = {}
    for name, variables in (("base", {}), ("head", {}), ("other", {"PYTHONHASHSEED": "1"})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "of_a_side.py").write_text(PLUGIN.replace("lies at", f"is of {name}"))
        paths = m.ImportFrom((str(tmp_path / name),), "")
        sides[name] = Interpreter(variables=variables, side=paths)
    source, servers = Source("of_a_side", "of_a_side", "sides", "1"), {}
    with closing(WorkerPool(Options(repetitions=1), sides)) as pool:
        for name in sides:
            worker = pool.new_worker(1, pool.all_cpus, side=name)
            servers[name] = parent_of(worker.pid)
            assert f"is of {name}" in failure_of(worker, source)
    assert servers["base"] == servers["head"] != servers["other"]


@pytest.mark.slow
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
    scale = ScaleMeter(pool)
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
    scale = ScaleMeter(pool)
    try:
        assert scale.measure(CASE, 1e6) is not None
        os.kill(made[0].pid, 9)
        assert scale.measure(CASE, 1e6) is not None
        assert len(made) == 2
        assert "died of SIGKILL during the measurement of the machine's speed" in scale.problem
        assert os.sched_getaffinity(made[1].pid) == set(pool.measured_cpus(1))
    finally:
        scale.close()
