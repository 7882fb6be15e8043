"""What a call takes of a real device at its peak. A pretended one is in ``tests/gpu``."""

from __future__ import annotations

import pytest
import torch

from attnbench.timing.memory import cuda_peak_extra_bytes


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_known_allocation_on_a_real_device() -> None:
    def call() -> torch.Tensor:
        large = torch.empty(64 * 2**20, dtype=torch.uint8, device="cuda")
        return large[:1024].clone()

    assert 64 * 2**20 <= cuda_peak_extra_bytes(call) < 65 * 2**20
