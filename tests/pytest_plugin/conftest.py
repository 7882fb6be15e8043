from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path

import _pytest.pytester
import pytest
import torch  # noqa: F401  # pytester has modules imported anew that are first imported in its sessions

from attnbench.plugins.registry import load_registry
from attnbench.pytest_plugin import session_verifier
from attnbench.pytest_plugin.session_verifier import SessionVerifier

SLY = Path(__file__).parent / "sly"


class InProcess:
    """Run a session with some arguments; warnings are errors."""

    def __init__(self, pytester: pytest.Pytester, plugin_words: list[str]) -> None:
        self.pytester = pytester
        self._words = [*plugin_words, "-p", "no:xdist", "-p", "no:cacheprovider", "-rs", "--strict-markers"]
        # pytest-benchmark warns if there is nothing to store.
        self._words += ["-W", "error", "-W", "ignore:Not saving anything"]

    def __call__(self, *words: str) -> pytest.RunResult:
        return self.pytester.runpytest_inprocess(*self._words, *words)


class OwnModulesOnly:
    """Drop only the test modules that a session in this process imported. pytester would drop all modules,
    but NumPy can't be imported twice."""

    folder: Path

    def __init__(self, preserve: object = None) -> None:
        pass

    def restore(self) -> None:
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None)).startswith(str(self.folder)):
                del sys.modules[name]


class SharedVerifier(SessionVerifier):
    """One verifier for all sessions in this process: its processes take seconds to start."""

    end = SessionVerifier.close

    def close(self) -> None:
        pass


@contextmanager
def sly_installed() -> Iterator[None]:
    """Install the distribution ``attnbench-sly``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SLY)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(SLY), *filter(None, [os.environ.get("PYTHONPATH")])]))
        yield


@pytest.fixture
def sly_plugin() -> Iterator[None]:
    """For one test, since others in this process must not find the plugin."""
    with sly_installed():
        yield


@pytest.fixture(scope="session")
def shared_verifier() -> Iterator[SessionVerifier]:
    """The verifier of all sessions."""
    with sly_installed():
        verifier = SharedVerifier(load_registry())
    yield verifier
    verifier.end()


@pytest.fixture
def in_process(
    sly_plugin: None,
    pytester: pytest.Pytester,
    plugin_words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> InProcess:
    """Runs sessions in this process; those that check anything use the shared verifier."""
    monkeypatch.setattr(_pytest.pytester, "SysModulesSnapshot", OwnModulesOnly)
    monkeypatch.setattr(OwnModulesOnly, "folder", pytester.path, raising=False)
    shared = lambda registry: request.getfixturevalue("shared_verifier")  # noqa: E731
    monkeypatch.setattr(session_verifier, "SessionVerifier", shared)
    return InProcess(pytester, plugin_words)


@pytest.fixture(scope="session")
def plugin_words() -> list[str]:
    """The arguments that load the plugin if it is not installed."""
    names = {point.value for point in entry_points(group="pytest11")}
    return [] if "attnbench.pytest_plugin" in names else ["-p", "attnbench.pytest_plugin"]
