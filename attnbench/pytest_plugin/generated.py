"""The tests of a run with no test written. pytest finds them by ``--attnbench-suite``, not by their names."""

from __future__ import annotations

from typing import Any

from attnbench.pytest_plugin.watched import CheckedBackend

TIMED, UNTIMED = "test_attention", "test_right"


def test_attention(benchmark: Any, attnbench_backend: CheckedBackend) -> None:
    """Checked and timed."""
    benchmark(attnbench_backend)


def test_right(attnbench_backend: CheckedBackend) -> None:
    """Checked: where pytest-benchmark isn't there, and for cases that are for checking alone."""
    attnbench_backend()
