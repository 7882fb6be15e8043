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
    before = (
        cuda.flash_sdp_enabled(),
        cuda.math_sdp_enabled(),
        cuda.mem_efficient_sdp_enabled(),
        cuda.cudnn_sdp_enabled(),
    )
    yield
    cuda.enable_flash_sdp(before[0])
    cuda.enable_math_sdp(before[1])
    cuda.enable_mem_efficient_sdp(before[2])
    cuda.enable_cudnn_sdp(before[3])
