from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from attnbench.runner.options import Options
from attnbench.runner.pool import WorkerPool

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def odd_plugins() -> Iterator[None]:
    """The distributions ``attnbench-broken`` and ``attnbench-odd`` are installed while a module is tested."""
    folders = [HERE.parent / "broken", HERE / "odd"]
    with pytest.MonkeyPatch.context() as patch:
        for folder in folders:
            patch.syspath_prepend(folder)
        paths = [*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])]
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        yield


@pytest.fixture(scope="module")
def pool(odd_plugins: None) -> Iterator[WorkerPool]:
    """A server with torch and a verifier, for all tests of a module."""
    with closing(WorkerPool(Options(budget_s=0.01, repetitions=1, timeout_s=30))) as opened:
        yield opened
