from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import _pytest.pytester
import pytest

from attnbench.plugins.registry import load_registry
from attnbench.pytest_plugin import one_test
from attnbench.pytest_plugin.court import Court

SLY = Path(__file__).parent / "sly"


class OwnModulesAlone:
    """What a session within this process leaves of the modules that it has imported: all but its tests.

    pytester would drop all of them, and NumPy can't be imported twice.
    """

    folder: Path

    def __init__(self, preserve: object = None) -> None:
        pass

    def restore(self) -> None:
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None)).startswith(str(self.folder)):
                del sys.modules[name]


@pytest.fixture(scope="module")
def sly_plugin() -> Iterator[None]:
    """The distribution ``attnbench-sly`` is installed while a module is tested."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SLY)
        paths = [str(SLY), *filter(None, [os.environ.get("PYTHONPATH")])]
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        yield


@pytest.fixture(scope="module")
def court(sly_plugin: None) -> Iterator[Court]:
    """One for all sessions that a module's tests make within this process: to convene it takes seconds."""
    court = Court(load_registry())
    yield court
    court.close()


@pytest.fixture
def one_court(court: Court, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Court:
    """Sessions within this process are judged by it, and leave modules where they are."""
    monkeypatch.setattr(_pytest.pytester, "SysModulesSnapshot", OwnModulesAlone)
    monkeypatch.setattr(OwnModulesAlone, "folder", pytester.path, raising=False)
    monkeypatch.setattr(one_test, "court_of", lambda config, registry: court)
    return court


@pytest.fixture(scope="session")
def plugin_words() -> list[str]:
    """What a command line needs so that the plugin is there: nothing where it's installed."""
    names = {point.value for point in entry_points(group="pytest11")}
    return [] if "attnbench.pytest_plugin" in names else ["-p", "attnbench.pytest_plugin"]
