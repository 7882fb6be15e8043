"""One server and one verifier for all tests of the worker: to load torch takes seconds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from asked import Asked

from attnbench.runner.link import VerifierLink, WorkerLink, start_server

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def plugins_on_path() -> Iterator[None]:
    """Processes started from here find the plugins beside this file."""
    with pytest.MonkeyPatch.context() as patch:
        paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        yield


@pytest.fixture(scope="session")
def server(plugins_on_path: None) -> Iterator[WorkerLink]:
    link = start_server(1)
    yield link
    link.kill()


@pytest.fixture(scope="session")
def verifier(plugins_on_path: None) -> Iterator[VerifierLink]:
    link = VerifierLink(60)
    yield link
    link.close()


@pytest.fixture
def prepared_worker(server: WorkerLink) -> Iterator[Callable[[str], Asked]]:
    """``template(case)``: a fresh template for a case."""
    made: list[WorkerLink] = []

    def new(case: str) -> Asked:
        made.append(server.fork(timed=False, cpus=tuple(os.sched_getaffinity(0))))
        return Asked(made[-1], case, made)

    yield new
    for link in reversed(made):
        link.kill()
