"""Timers and their samples: calls, outputs, CPU time and page faults."""

from __future__ import annotations

import mmap

import pytest
import torch

from attnbench.timing.sample import device_fields, take_sample, timer_for
from attnbench.types.case import CacheMode


def test_a_cpu_waits_for_no_device_and_adds_nothing() -> None:
    timer = timer_for("cpu")
    seen: list[int] = []

    def call(a: int, b: int, c: int) -> int:
        seen.append(a + b + c)
        return len(seen)

    timer.warm(call, 1, 2, 3, 3)
    assert timer(call, 1, 2, 3, 2)[1] == 5
    assert seen == [6] * 5
    assert type(timer).__call__ is take_sample
    assert (timer.mode, device_fields(timer, [])) == ("", {})
    assert timer_for("cpu") is timer


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(("cache", "mode"), [("hot", "batch"), ("rotating", "cold")])
def test_on_a_real_device_twice_the_work_takes_about_twice_as_long(cache: CacheMode, mode: str) -> None:
    timer = timer_for("cuda", cache)
    a, b = (torch.rand(4096, 4096, device="cuda") for _ in range(2))

    def once(a: torch.Tensor, b: torch.Tensor, c: None) -> torch.Tensor:
        return a @ b

    def twice(a: torch.Tensor, b: torch.Tensor, c: None) -> torch.Tensor:
        return (a @ b) @ b

    walls = []
    for call, expected in ((once, a @ b), (twice, (a @ b) @ b)):
        samples = [timer(call, a, b, None, 4) for _ in range(9)]
        torch.testing.assert_close(samples[-1][1], expected)
        walls.append(sorted(sample.wall_ns for sample, _ in samples)[4])
    assert timer.mode == mode
    assert 1.5 < walls[1] / walls[0] < 2.5


def test_an_output_is_dropped_before_the_one_after_the_next_is_made() -> None:
    """Never more than two at once: the last, and the one that is being made."""
    alive = most = 0

    class Output:
        def __init__(self) -> None:
            nonlocal alive, most
            alive += 1
            most = max(most, alive)

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    _, output = take_sample(lambda a, b, c: Output(), 1, 2, 3, 50)
    assert isinstance(output, Output)
    assert (most, alive) == (2, 1)


def test_cpu_time_is_that_of_this_thread() -> None:
    def burn(a: int, b: int, c: int) -> int:
        return sum(range(200_000))

    sample, _ = take_sample(burn, 1, 2, 3, 3)
    assert 0 < sample.cpu_ns <= 1.5 * sample.wall_ns


def test_page_faults_of_a_call_are_counted() -> None:
    pages = 64

    def touch(a: int, b: int, c: int) -> None:
        with mmap.mmap(-1, pages * mmap.PAGESIZE) as memory:
            for page in range(pages):
                memory[page * mmap.PAGESIZE] = 1

    sample, _ = take_sample(touch, 1, 2, 3, 5)
    assert sample.faults >= 5 * pages
