"""The backends: ``pytest tests/benchmarks --benchmark-only -n 0``.

In the ordinary run all of this is skipped. Figures of one process on one day: to compare versions, see
``attnbench compare``.
"""

from __future__ import annotations

from typing import Any

import pytest

from attnbench.pytest_plugin.checked_test import CheckedBackend


@pytest.mark.attnbench("smoke", rules=["scaled_dot", "dot", "softcap", "alibi"])
def test_a_backend(benchmark: Any, attnbench_backend: CheckedBackend) -> None:
    benchmark(attnbench_backend)
