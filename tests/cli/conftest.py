from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from attnbench.cli import attnbench


@pytest.fixture(autouse=True)
def own_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load no plugins but attnbench's own, whatever is installed beside it."""
    monkeypatch.setenv("ATTNBENCH_LOAD_PLUGINS", "attnbench")
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def invoke() -> Callable[..., Result]:
    """Run a command line in this process: ``invoke("list", "rules")``."""
    return lambda *words: CliRunner().invoke(attnbench, list(words), prog_name="attnbench")
