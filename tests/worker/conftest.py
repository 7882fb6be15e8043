"""One server for all tests of the worker, since loading torch takes seconds."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from asked import OUTSPOKEN, Asked, New

from attnbench.runner.processes import WorkerLink, start_server
from attnbench.types.extensions import Source

HERE = Path(__file__).parent
# The simulated device stands beside the tests of the timer.
sys.path.insert(0, str(HERE.parent / "timing"))


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


@pytest.fixture
def prepared_worker(server: WorkerLink) -> Iterator[New]:
    """``prepared_worker(case)``: a new worker; if a backend is named, it is prepared and has inputs."""
    made: list[WorkerLink] = []

    def new(case: str, backend: str = "", source: Source = OUTSPOKEN) -> Asked:
        made.append(server.fork(timed=False, cpus=tuple(os.sched_getaffinity(0))))
        worker = Asked(made[-1], case, made)
        if backend:
            worker.prepare(backend, source)
            worker.give()
        return worker

    yield new
    for link in reversed(made):
        link.kill()
