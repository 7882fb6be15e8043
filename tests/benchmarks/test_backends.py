"""The backends, and what watching them costs: ``pytest tests/benchmarks --benchmark-only -n 0``.

In the ordinary run all of this is skipped. Figures of one process on one day: to compare versions, see
``attnbench compare``.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from attnbench.pytest_plugin.watched import CheckedBackend, watched


@pytest.mark.attnbench("smoke", rules=["scaled_dot", "dot", "softcap", "alibi"])
def test_a_backend(benchmark: Any, attnbench_backend: CheckedBackend) -> None:
    benchmark(attnbench_backend)


def no_op(a: Any, b: Any, c: Any) -> None:
    """What a backend would be that does nothing."""


@pytest.mark.benchmark(group="what watching a call costs")
def test_a_bare_call(benchmark: Any) -> None:
    x = torch.ones(2)
    benchmark(no_op, x, x, x)


@pytest.mark.benchmark(group="what watching a call costs")
def test_a_watched_call(benchmark: Any) -> None:
    x = torch.ones(2)
    benchmark(watched(no_op, (x, x, x)).call)
