"""What all tests share."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# Before any library starts its threads: tests run beside each other on two cores.
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

# How long an example takes says nothing on a machine that others use too.
settings.register_profile("steady", deadline=None)
settings.load_profile("steady")

BROKEN = Path(__file__).parent / "broken"


@pytest.fixture
def broken_plugin(monkeypatch: pytest.MonkeyPatch) -> str:
    """The distribution ``attnbench-broken`` is installed, for this process and those it starts."""
    monkeypatch.syspath_prepend(BROKEN)
    paths = [str(BROKEN), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.delitem(sys.modules, "broken_backends", raising=False)
    return "attnbench-broken"


@pytest.fixture
def not_in_xdist(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions within a test are no part of the one around it: pytest-benchmark would time nothing."""
    for name in [name for name in os.environ if name.startswith("PYTEST_XDIST")]:
        monkeypatch.delenv(name)
