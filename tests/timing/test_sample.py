"""One sample: every call is made, the last output is handed over, vitals are counted."""

from __future__ import annotations

import mmap

from attnbench.timing.sample import take_sample


class Counter:
    def __init__(self) -> None:
        self.seen: list[tuple[int, int, int]] = []

    def __call__(self, a: int, b: int, c: int) -> int:
        self.seen.append((a, b, c))
        return len(self.seen)


def test_makes_exactly_the_calls_asked_for_and_gives_the_last_output() -> None:
    call = Counter()
    sample, output = take_sample(call, 1, 2, 3, 7)
    assert call.seen == [(1, 2, 3)] * 7
    assert output == 7
    assert sample.calls == 7
    assert sample.wall_ns > 0


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
