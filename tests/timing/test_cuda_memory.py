"""What a call takes of a device at its peak, told by an allocator that counts."""

from __future__ import annotations

from itertools import accumulate

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnbench.timing.memory import cuda_peak_extra_bytes


class Allocator:
    """Counts what is taken and given back."""

    def __init__(self) -> None:
        self.now = self.peak = 1000

    def take(self, count: int) -> None:
        self.now += count
        self.peak = max(self.peak, self.now)

    def synchronize(self) -> None: ...

    def reset_peak_memory_stats(self) -> None:
        self.peak = self.now

    def memory_allocated(self) -> int:
        return self.now

    def max_memory_allocated(self) -> int:
        return self.peak


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_known_allocation_on_a_real_device() -> None:
    def call() -> torch.Tensor:
        large = torch.empty(64 * 2**20, dtype=torch.uint8, device="cuda")
        return large[:1024].clone()

    assert 64 * 2**20 <= cuda_peak_extra_bytes(call) < 65 * 2**20


class Output:
    """Memory that is held until nobody refers to it."""

    def __init__(self, cuda: Allocator, count: int) -> None:
        self._cuda, self._count = cuda, count
        cuda.take(count)

    def __del__(self) -> None:
        self._cuda.take(-self._count)


@given(st.lists(st.integers(-(2**30), 2**33), max_size=30), st.integers(0, 2**33), st.integers(0, 2**33))
def test_the_peak_is_the_most_that_a_call_holds_beyond_what_it_found(
    steps: list[int], kept: int, output: int
) -> None:
    """Whatever it takes and gives back; what it keeps after its first call was there before the second."""
    cuda, first = Allocator(), [True]
    # What was taken before, and more of it, does not count.
    cuda.take(2**40)
    cuda.take(-(2**40))

    def call() -> Output:
        if first.pop() if first else False:
            cuda.take(kept)
        for step in steps:
            cuda.take(step)
        cuda.take(-sum(steps))
        return Output(cuda, output)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "cuda", cuda)
        assert cuda_peak_extra_bytes(call) == max(0, *accumulate(steps), output)
    assert cuda.now == 1000 + kept
