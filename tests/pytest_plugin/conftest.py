from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from attnbench.plugins.registry import load_registry
from attnbench.pytest_plugin import one_test
from attnbench.pytest_plugin.court import Court

SLY = Path(__file__).parent / "sly"


@pytest.fixture(scope="session")
def sly_plugin() -> Iterator[None]:
    """The distribution ``attnbench-sly`` is installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SLY)
        paths = [str(SLY), *filter(None, [os.environ.get("PYTHONPATH")])]
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        yield


@pytest.fixture(scope="session")
def court(sly_plugin: None) -> Iterator[Court]:
    """One for all sessions that tests make within their own process: to convene it takes seconds."""
    court = Court(load_registry())
    yield court
    court.close()


@pytest.fixture
def one_court(court: Court, monkeypatch: pytest.MonkeyPatch) -> Court:
    """Sessions within this process are judged by it."""
    monkeypatch.setattr(one_test, "court_of", lambda config, registry: court)
    return court


@pytest.fixture(scope="session")
def plugin_words() -> list[str]:
    """What a command line needs so that the plugin is there: nothing where it's installed."""
    names = {point.value for point in entry_points(group="pytest11")}
    return [] if "attnbench.pytest_plugin" in names else ["-p", "attnbench.pytest_plugin"]
