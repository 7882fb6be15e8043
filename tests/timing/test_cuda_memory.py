"""What a call takes of a device at its peak: of a real one, and of an allocator that counts."""

from __future__ import annotations

from itertools import accumulate

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnbench.timing.memory import cuda_peak_extra_bytes


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_known_allocation_on_a_real_device() -> None:
    def call() -> torch.Tensor:
        large = torch.empty(64 * 2**20, dtype=torch.uint8, device="cuda")
        return large[:1024].clone()

    assert 64 * 2**20 <= cuda_peak_extra_bytes(call) < 65 * 2**20


class Allocator:
    """Stands for ``torch.cuda``. Work that was launched takes its memory when the host waits for it."""

    def __init__(self, held: int, peak: int) -> None:
        self.held, self.peak = held, max(held, peak)
        self.launched: list[int] = []

    def synchronize(self) -> None:
        for change in self.launched:
            self.held += change
            self.peak = max(self.peak, self.held)
        self.launched.clear()

    def reset_peak_memory_stats(self) -> None:
        self.peak = self.held

    def memory_allocated(self) -> int:
        return self.held

    def max_memory_allocated(self) -> int:
        return self.peak


@given(
    st.integers(0, 2**30), st.integers(0, 2**30), st.lists(st.integers(0, 2**20), max_size=6),
    st.integers(0, 2**20), st.integers(0, 2**20),
)  # fmt: skip
def test_the_peak_is_that_of_a_call_after_the_first(
    held: int, before: int, taken: list[int], output: int, kept: int
) -> None:
    """Memory that was held, an earlier peak, and what the first call keeps do not count.

    A call takes these amounts one after the other, gives all back, and returns an output.
    """
    cuda, first = Allocator(held, before), [kept]

    def call() -> None:
        cuda.launched += [*(first.pop() for _ in list(first)), *taken, -sum(taken), output]

    assert cuda_peak_extra_bytes(call, cuda) == max(output, *accumulate(taken, initial=0))
