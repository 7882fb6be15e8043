from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from attnbench.cli import attnbench


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run a command line in this process: ``invoke("list", "rules")``."""
    monkeypatch.delenv("COLUMNS", raising=False)
    return lambda *words: CliRunner().invoke(attnbench, list(words), prog_name="attnbench")
