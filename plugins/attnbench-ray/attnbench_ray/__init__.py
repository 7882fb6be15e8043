"""The machines of a Ray cluster as places for attnbench."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from attnbench import BadInput, Executor, Fleet, Place, PlaceLost, Task, hookimpl
from attnbench.fleet.node import run_here
from attnbench.types.fleet import Pieces

SET_BY_RAY = ("RAY_", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "PYTHONBREAKPOINT", "SPT_NOENV")
"""Beginnings of the variables that Ray sets in its workers (ray #6998, #27256)."""

_CARD = "accelerator_type:"

_ANSWER_S, _CONNECT_S = 10.0, 30.0
"""The time in which a host must answer, and in which a process must have joined the cluster."""

_TRY = "import sys, ray; ray.init(address=sys.argv[1], log_to_driver=False, logging_level='CRITICAL')"


@contextmanager
def connect(address: str) -> Iterator[Fleet]:
    """Yield the nodes of a cluster: the GPUs of each, and its processor.

    address: of the cluster, as ``ray.init`` takes it; "" for the one that runs here. Raises BadInput where
    there is none.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    try:
        _check_answers(address)
        ray.init(address=address or "auto", log_to_driver=False, logging_level="ERROR")
    except (OSError, ValueError, RuntimeError) as failure:
        raise BadInput(f"--on ray{address and f':{address}'}: {failure}") from failure
    node_of: dict[str, dict[str, Any]] = {}
    places = []
    for number, node in enumerate(sorted(filter(_alive, ray.nodes()), key=lambda each: each["NodeID"])):
        has = node["Resources"]
        cards = [name.removeprefix(_CARD) for name in has if name.startswith(_CARD)]
        facts = {
            "node": node["NodeManagerHostname"],
            "gpu_type": " ".join(cards),
            "resource": " ".join(sorted(_custom(node))),
        }
        those = [Place(f"node{number}", "cpu", facts)] if has.get("CPU") else []
        those += [Place(f"node{number} gpu{n}", "cuda", facts) for n in range(int(has.get("GPU", 0)))]
        node_of |= dict.fromkeys((place.name for place in those), node)
        places += those

    def run(place: Place, task: Task) -> Pieces:
        node = node_of[place.name]
        on_node = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        # A case on the CPU has the node for itself, also beside other drivers: one on a card takes some CPU.
        needed: dict[str, Any] = {"num_gpus": 1, "num_cpus": 0.01 if "CPU" in node["Resources"] else 0}
        if place.device == "cpu":
            needed = {"num_cpus": node["Resources"]["CPU"]}
        remote = ray.remote(max_retries=0, scheduling_strategy=on_node, **needed)(_there)
        pieces = remote.options(num_returns="streaming").remote(replace(task, dropped=SET_BY_RAY))
        try:
            for piece in pieces:
                yield ray.get(piece)
        except ray.exceptions.RayError as failure:
            raise PlaceLost(str(failure).strip().splitlines()[0]) from failure
        finally:
            ray.cancel(pieces, force=True)

    try:
        yield Fleet(tuple(places), run)
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """Raise ConnectionError if no cluster answers at an address, or at that of this machine's last cluster.

    Ray itself would wait without end, also for a cluster that has ended. So another process tries first.
    """
    host, _, port = (address or os.environ.get("RAY_ADDRESS", "")).rpartition(":")
    if host and port.isdigit() and "://" not in host:
        try:
            socket.create_connection((host, int(port)), timeout=_ANSWER_S).close()
        except (OSError, OverflowError) as failure:
            raise ConnectionError(f"no cluster answers there ({failure})") from failure
    words = [sys.executable, "-c", _TRY, address or "auto"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_CONNECT_S, check=False)
    except subprocess.TimeoutExpired as late:
        raise ConnectionError(f"no cluster answers there within {_CONNECT_S:g} s") from late
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no cluster answers there"]
        raise ConnectionError(last[0].partition("Error: ")[2] or last[0])


def _there(task: Task) -> Pieces:
    """Run a task in a worker of Ray."""
    yield from run_here(task)


def _alive(node: dict[str, Any]) -> bool:
    return bool(node["Alive"])


def _custom(node: dict[str, Any]) -> Iterator[str]:
    """Yield the resources of a node that its owner has named."""
    for name in node["Resources"]:
        if name not in ("CPU", "GPU", "memory", "object_store_memory") and ":" not in name:
            yield name


@hookimpl
def attnbench_executors() -> tuple[Executor, ...]:
    """Bring the executor."""
    return (Executor("ray", "The nodes of a Ray cluster, one task at a time on each device.", connect),)
