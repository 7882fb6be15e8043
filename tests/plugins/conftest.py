from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Install = Callable[..., Path]


@pytest.fixture
def install(add_distribution: Install) -> Install:
    """Install a real distribution that holds one module: ``install(module, source)``."""

    def make(module: str, source: str, *, distribution: str = "", value: str = "", **more: str) -> Path:
        name, plugins = distribution or f"attnbench-{module}", {module: value or module}
        return add_distribution(name, {f"{module}.py": source}, plugins=plugins, **more)

    return make
