"""How long help takes, over the interpreter alone: ``pytest -o addopts= tests/cli/bench_startup.py``.

The target is 100 ms more than the interpreter alone; asserted nowhere, because a busy machine isn't a fault.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest


@pytest.mark.parametrize("words", [["-c", ""], ["-m", "attnbench", "--help"]], ids=["interpreter", "help"])
def test_start(benchmark: Any, words: list[str]) -> None:
    benchmark(subprocess.run, [sys.executable, *words], capture_output=True, check=True)
