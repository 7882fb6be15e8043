"""What all tests share."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from distributions import write_distribution
from hypothesis import settings

# Before any library starts its threads: tests run beside each other on two cores.
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

# Hundreds of processes import attnbench: each would compile it anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# How long an example takes says nothing on a machine that others use too.
settings.register_profile("steady", deadline=None)
settings.load_profile("steady")

BROKEN = Path(__file__).parent / "broken"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect no garbage among modules and tests, which last: each look at them takes most of a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture
def broken_plugin(monkeypatch: pytest.MonkeyPatch) -> str:
    """The distribution ``attnbench-broken`` is installed, for this process and those it starts."""
    monkeypatch.syspath_prepend(BROKEN)
    paths = [str(BROKEN), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.delitem(sys.modules, "broken_backends", raising=False)
    return "attnbench-broken"


@pytest.fixture
def not_in_xdist(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions within a test are no part of the one around it: pytest-benchmark would time nothing."""
    for name in [name for name in os.environ if name.startswith("PYTEST_XDIST")]:
        monkeypatch.delenv(name)


@pytest.fixture
def add_distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Install a distribution: ``add_distribution("attnbench-x", {"x.py": "..."}, plugins={"x": "x"})``.

    plugins, commands: places by name. Where only chosen plugins are loaded, these are too. Modules called
    ``mini_*`` are forgotten again.
    """
    before = set(sys.modules)
    sites: list[Path] = []

    def add(
        name: str,
        files: Mapping[str, str],
        *,
        plugins: Mapping[str, str] | None = None,
        commands: Mapping[str, str] | None = None,
        **more: str,
    ) -> Path:
        points = {"attnbench": plugins or {}, "attnbench.commands": commands or {}}
        sites.append(tmp_path / f"site{len(sites)}")
        info = write_distribution(sites[-1], name, points, files, **more)
        monkeypatch.syspath_prepend(sites[-1])
        if chosen := os.environ.get("ATTNBENCH_LOAD_PLUGINS"):
            monkeypatch.setenv("ATTNBENCH_LOAD_PLUGINS", f"{chosen},{name}")
        return info

    yield add
    for module in set(sys.modules) - before:
        if module.startswith("mini_"):
            del sys.modules[module]


@pytest.fixture(scope="module")
def kept_servers() -> Iterator[None]:
    """A run in this process takes over the servers of the run before it: each has torch to load.

    It does so where new ones would get the same threads, time limit, variables, import path and folder.
    """
    from attnbench.runner import pool
    from attnbench.runner.processes import WorkerLink

    start, close = pool.start_server, pool.WorkerPool.close
    started: dict[WorkerLink, tuple[object, ...]] = {}
    kept: list[WorkerLink] = []

    def take_over(*asked: object) -> WorkerLink:
        variables = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
        here = (*asked, variables, [*sys.path], Path.cwd())
        for server in kept:
            if started[server] == here and server.alive:
                kept.remove(server)
                return server
        server = start(*asked)
        started[server] = here
        return server

    def keep(self: pool.WorkerPool) -> None:
        for place, server in list(self._servers.items()):
            if server.alive:
                kept.append(self._servers.pop(place))
        close(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "start_server", take_over)
        patch.setattr(pool.WorkerPool, "close", keep)
        yield
    for server in kept:
        server.kill()
