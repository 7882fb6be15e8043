"""Every repetition starts from a process of its own that imports the plugin itself."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest
from run_parts import PLAIN, parent_of, run_of

from attnbench.ipc import messages as m
from attnbench.ipc.shared_memory import pack
from attnbench.plugins.registry import load_registry
from attnbench.plugins.sources import installed, named
from attnbench.runner.options import Options
from attnbench.runner.pool import WorkerPool
from attnbench.runner.processes import Interpreter, WorkerFailed, WorkerLink
from attnbench.types.extensions import Source

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
    with closing(WorkerPool(Options(sets=1))) as pool:
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
    for name, variables in (("base", {}), ("head", {}), ("other", {"PYTHONSAFEPATH": "1"})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "of_a_side.py").write_text(PLUGIN.replace("lies at", f"is of {name}"))
        paths = m.ImportFrom((str(tmp_path / name),), "")
        sides[name] = Interpreter(variables=variables, side=paths)
    source, servers = Source("of_a_side", "of_a_side", "sides", "1"), {}
    with closing(WorkerPool(Options(sets=1), sides)) as pool:
        for name in sides:
            worker = pool.new_worker(1, pool.all_cpus, side=name)
            servers[name] = parent_of(worker.pid)
            assert f"is of {name}" in failure_of(worker, source)
    assert servers["base"] == servers["head"] != servers["other"]


def test_a_module_that_changes_during_a_run_ends_its_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An editor that saves a file while it is measured would mix the times of two codes."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "saved_often.py").write_text(SAVED_OFTEN)
    registry = load_registry([*installed(), named("saved_often")])
    run = run_of(tmp_path / "out", (PLAIN,), ("saved_often",), registry=registry)
    (record,) = run.records
    assert record.status == "error"
    assert "changed during the run: start again" in record.reason


SAVED_OFTEN = """
import os
import attnbench
def prepare(setup):
    os.utime(__file__)
    return lambda q, k, v: (q @ k.mT).softmax(-1) @ v
@attnbench.hookimpl
def attnbench_backends():
    yield attnbench.Backend(name="saved_often", summary="is saved", prepare=prepare)
"""
