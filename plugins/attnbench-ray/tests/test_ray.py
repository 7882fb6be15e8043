"""Runs on a real cluster of Ray, whose nodes are processes on this machine."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
from ray.cluster_utils import Cluster
from watching import GATE, LOG

from attnbench.fleet.drive import AGAIN
from attnbench.results.format import read_runs
from attnbench.types.record import Record

HERE = Path(__file__).parent
SHORT = "attention/scaled_dot/B1-H1-L16-D8"
THREADED = f"{SHORT}/threads2"
OF_THE_CLUSTER = "7"
"""OMP_NUM_THREADS of the nodes, which no case has."""

LONGEST_S = 120


@dataclass
class Watched:
    """A folder for the files of one test, and the variables that name them."""

    folder: Path

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def variables(self) -> dict[str, str]:
        return {LOG: str(self.log), GATE: str(self.folder / "gate")}

    def open_gate(self) -> None:
        (self.folder / "gate").touch()

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def start(self, name: str, backend: str, *options: str) -> subprocess.Popen[str]:
        """Begin a run of both cases."""
        backends = [word for each in ("eager", "bmm", backend) for word in ("--backend", each)]
        words = ["run", SHORT, THREADED, *backends, "--budget", "0.02", "--repetitions", "3"]
        words += ["--plugin", str(HERE / "watching.py"), "--out", str(self.folder / f"{name}.jsonl")]
        return attnbench(*words, *options, variables=self.variables)

    def processes(self) -> list[psutil.Process]:
        """The processes of attnbench, by what only they have in their environment."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(LOG) == str(self.log) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def finished(self, process: subprocess.Popen[str], name: str) -> list[Record]:
        """Wait for a run that must succeed; return its records."""
        _, errors = process.communicate(timeout=LONGEST_S)
        assert process.returncode == 0, errors
        return self.records(name)

    def records(self, name: str) -> list[Record]:
        """The records of a run that has ended, of which no two are of one cell."""
        runs = read_runs(self.folder / f"{name}.jsonl")
        records = [record for run in runs for record in run.records]
        assert max(Counter((each.case, each.backend) for each in records).values()) == 1
        return records


def attnbench(*words: str, variables: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "attnbench", *words],
        env=os.environ | variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def until(met: Callable[[], Any], what: str) -> Any:
    """Return the first value of a condition that is true."""
    deadline = time.monotonic() + LONGEST_S
    while not (value := met()):
        assert time.monotonic() < deadline, what
        time.sleep(0.1)
    return value


def cells(records: Sequence[Record]) -> set[tuple[str, str, str]]:
    return {(each.case, each.backend, each.status) for each in records}


def raylet_of(node: Any) -> int:
    (raylet,) = node.all_processes["raylet"]
    return raylet.process.pid


class Nodes:
    """A cluster with two nodes that have the resource ``lab``."""

    def __init__(self) -> None:
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        for _ in range(2):
            self.add()

    def add(self, resource: str = "lab", **variables: str) -> Any:
        return self.cluster.add_node(
            num_cpus=1,
            resources={resource: 1},
            env_vars={"OMP_NUM_THREADS": OF_THE_CLUSTER, **variables},
        )

    @property
    def raylets(self) -> list[int]:
        return [raylet_of(node) for node in self.cluster.worker_nodes]

    @property
    def on(self) -> tuple[str, ...]:
        return ("--on", f"ray:{self.cluster.address}", "--where", "resource=lab")


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAY_ADDRESS", raising=False)
        nodes = Nodes()
        yield nodes
        nodes.cluster.shutdown()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    watched = Watched(tmp_path)
    yield watched
    for process in watched.processes():
        process.kill()


@pytest.fixture(scope="module")
def plain_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Record], list[dict[str, Any]]]:
    """The records and lines of a run on this machine, without Ray."""
    here = Watched(tmp_path_factory.mktemp("plain"))
    here.open_gate()
    return here.finished(here.start("plain", "waiting"), "plain"), here.lines()


@pytest.fixture(scope="module")
def unbroken(plain_run) -> set[tuple[str, str, str]]:
    return cells(plain_run[0])


@pytest.fixture(scope="module")
def two_runs(
    nodes: Nodes, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[list[Record]], list[dict[str, Any]]]:
    """The records of two runs at once on two nodes, each with two units, and the lines of both."""
    here = Watched(tmp_path_factory.mktemp("two"))
    names = ("first", "second")
    runs = [here.start(name, "dear", *nodes.on) for name in names]
    return [here.finished(run, name) for run, name in zip(runs, names, strict=True)], here.lines()


@pytest.mark.slow
def test_a_run_on_ray_has_the_records_of_a_plain_run(two_runs, unbroken: set[tuple[str, str, str]]) -> None:
    wanted = {(case, backend.replace("waiting", "dear"), status) for case, backend, status in unbroken}
    assert len(wanted) == 6
    assert [cells(records) for records in two_runs[0]] == [wanted, wanted]


@pytest.mark.slow
def test_one_task_at_a_time_on_a_node(two_runs, nodes: Nodes) -> None:
    times: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in two_runs[1]:
        (raylet,) = set(line["above"]) & set(nodes.raylets)
        # The worker of Ray is a child of the raylet, and the task a child of the worker.
        task = line["above"][line["above"].index(raylet) - 2]
        times[raylet][task].append(line["seen_at"])
    assert sorted(times) == sorted(nodes.raylets)
    assert sum(map(len, times.values())) == 4
    for tasks in times.values():
        spans = sorted((min(each), max(each)) for each in tasks.values())
        assert all(before[1] < after[0] for before, after in pairwise(spans))


@pytest.mark.slow
def test_what_ray_sets_is_not_seen(two_runs, plain_run, nodes: Nodes) -> None:
    asking = (
        "import json, os, sys, ray\n"
        "ray.init(address=sys.argv[1], log_to_driver=False)\n"
        "there = ray.remote(num_cpus=1)(lambda: dict(os.environ))\n"
        "print(json.dumps(ray.get(there.remote())))"
    )
    command = [sys.executable, "-c", asking, nodes.cluster.address]
    of_worker = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert of_worker["OMP_NUM_THREADS"] == OF_THE_CLUSTER
    assert any(name.startswith("RAY_") for name in of_worker)
    seen_without = {name for line in plain_run[1] for name in line["environment"]}
    for line in two_runs[1]:
        seen = line["environment"]
        assert set(seen) <= seen_without
        assert [name for name in seen if name.startswith("RAY_")] == []
        assert seen["OMP_NUM_THREADS"] == str(line["threads"])
    assert {line["threads"] for line in two_runs[1]} == {1, 2}


def at_the_gate(watched: Watched) -> dict[str, Any]:
    """Wait until a unit has brought home all lines of its first case, and waits in its second; its line."""
    line = until(
        lambda: next((line for line in watched.lines() if line["threads"] == 2), None),
        "no backend has come to the gate",
    )
    until(lambda: any(map(has_a_case, watched.folder.glob("*.units/*.jsonl"))), "no case has come home")
    return line


def has_a_case(path: Path) -> bool:
    return path.read_bytes().count(b'"kind":"record"') >= 3


def noted(records: Sequence[Record]) -> dict[str, bool]:
    """Whether the records of a case carry the note that it was measured again."""
    found = defaultdict(set)
    for record in records:
        found["threads2" in record.case].add(AGAIN in record.notes)
    assert [len(each) for each in found.values()] == [1, 1]
    return {"threaded": found[True].pop(), "other": found[False].pop()}


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["worker", "node"])
def test_what_was_lost_is_measured_again(
    killed: str, nodes: Nodes, watched: Watched, unbroken: set[tuple[str, str, str]]
) -> None:
    run = watched.start("all", "waiting", *nodes.on)
    above = at_the_gate(watched)["above"]
    (raylet,) = set(above) & set(nodes.raylets)
    os.kill(raylet if killed == "node" else above[above.index(raylet) - 1], signal.SIGKILL)
    if killed == "node":
        (node,) = [node for node in nodes.cluster.worker_nodes if raylet_of(node) == raylet]
        nodes.cluster.remove_node(node, allow_graceful=False)
        nodes.add()
    watched.open_gate()
    records = watched.finished(run, "all")
    assert cells(records) == unbroken
    assert noted(records) == {"threaded": True, "other": False}


@pytest.mark.slow
def test_the_same_command_goes_on_after_the_driver_was_killed(
    nodes: Nodes, watched: Watched, unbroken: set[tuple[str, str, str]]
) -> None:
    run = watched.start("all", "waiting", *nodes.on)
    at_the_gate(watched)
    run.kill()
    run.communicate()
    until(lambda: not watched.processes(), "processes of attnbench stay")
    watched.open_gate()
    before = len(watched.lines())
    records = watched.finished(watched.start("all", "waiting", *nodes.on), "all")
    assert cells(records) == unbroken
    assert {line["threads"] for line in watched.lines()[before:]} == {2}


def kill(what: str, run: subprocess.Popen[str], nodes: Nodes, chance: random.Random) -> None:
    """Kill the driver, a node, or a worker of Ray if there is one now."""
    if what == "driver":
        run.kill()
        run.communicate()
        return
    raylet = chance.choice(nodes.raylets)
    if what == "worker":
        ours = ("ray::_there", "ray::IDLE")
        below = psutil.Process(raylet).children()
        workers = [each for each in below if " ".join(each.cmdline()).startswith(ours)]
        for worker in workers[:1]:
            worker.kill()
        return
    os.kill(raylet, signal.SIGKILL)
    (node,) = [node for node in nodes.cluster.worker_nodes if raylet_of(node) == raylet]
    nodes.cluster.remove_node(node, allow_graceful=False)
    nodes.add()


@pytest.mark.slow
@pytest.mark.parametrize("number", range(10))
@pytest.mark.parametrize("killed", ["worker", "node", "driver"])
def test_a_kill_at_any_moment_loses_no_record(
    killed: str, number: int, nodes: Nodes, watched: Watched, unbroken: set[tuple[str, str, str]]
) -> None:
    chance = random.Random(f"{killed} {number}")
    watched.open_gate()
    run = watched.start("all", "waiting", *nodes.on)
    # An unbroken run takes about so long.
    time.sleep(chance.uniform(0, 20))
    kill(killed, run, nodes, chance)
    if killed == "driver":
        until(lambda: not watched.processes(), "processes of attnbench stay")
        # A kill may come after the end.
        if (watched.folder / "all.jsonl").exists():
            assert cells(watched.records("all")) == unbroken
            return
        run = watched.start("all", "waiting", *nodes.on)
    assert cells(watched.finished(run, "all")) == unbroken


@pytest.mark.slow
def test_unlike_software_is_refused_with_the_list(nodes: Nodes, watched: Watched, tmp_path: Path) -> None:
    package = tmp_path / "other" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "from types import SimpleNamespace\n"
        "__version__ = '0.0.1'\n"
        "cuda = SimpleNamespace(device_count=lambda: 0)\n"
    )
    odd = nodes.add("odd", PYTHONPATH=str(package.parent))
    try:
        run = watched.start("all", "waiting", *nodes.on[:2])
        _, errors = run.communicate(timeout=LONGEST_S)
    finally:
        nodes.cluster.remove_node(odd, allow_graceful=False)
    assert run.returncode == 2, errors
    assert "the places have different software: torch is " in errors
    assert "0.0.1 (node" in errors
    assert "Traceback" not in errors


def test_no_cluster_at_the_address(watched: Watched) -> None:
    # Nothing listens on port 1.
    run = watched.start("all", "waiting", "--on", "ray:127.0.0.1:1")
    _, errors = run.communicate(timeout=LONGEST_S)
    assert run.returncode == 2
    assert "Traceback" not in errors
    assert errors.splitlines()[-1].startswith("attnbench: --on ray:127.0.0.1:1: no cluster answers there")


@pytest.mark.slow
@pytest.mark.parametrize("named", [True, False])
def test_what_answers_there_is_no_cluster(watched: Watched, named: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        variables = {} if named else {"RAY_ADDRESS": address}
        on = f"ray:{address}" if named else "ray"
        run = attnbench("fleet", "--on", on, variables=watched.variables | variables)
        _, errors = run.communicate(timeout=LONGEST_S)
    assert run.returncode == 2, errors
    assert errors.splitlines()[-1] == f"attnbench: --on {on}: no cluster answers there within 30 s"
