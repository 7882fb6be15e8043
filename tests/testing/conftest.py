from __future__ import annotations

import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

# Modules that stand beside these tests are plugins, imported by other processes too.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def plugin_words() -> list[str]:
    """The arguments that load the pytest plugin if it is not installed."""
    names = {point.value for point in entry_points(group="pytest11")}
    return [] if "attnbench.pytest_plugin" in names else ["-p", "attnbench.pytest_plugin"]
