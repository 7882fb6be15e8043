"""Backends change settings of their process; a worker has one of its own, tests share theirs."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch
from torch.backends import cuda

from attnbench.backends.compiled import PRECOMPILED_HEADERS

# A dozen cases are compiled: worth it. Read when torch's compiler is imported.
os.environ.setdefault(PRECOMPILED_HEADERS, "1")


@pytest.fixture(autouse=True)
def one_thread_and_torch_as_it_was() -> Iterator[None]:
    torch.set_num_threads(1)
    kinds = ("flash", "math", "mem_efficient", "cudnn")
    before = {kind: getattr(cuda, f"{kind}_sdp_enabled")() for kind in kinds}
    yield
    for kind, enabled in before.items():
        getattr(cuda, f"enable_{kind}_sdp")(enabled)
