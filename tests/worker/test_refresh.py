"""Refreshed inputs, hot and rotating, and the log of outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from asked import BUILT_IN_BACKENDS, ENOUGH_S, Asked, answer, attend, stretch

from attnbench.cases.ids import parse_case
from attnbench.cases.work import pool_copies
from attnbench.ipc import messages as m
from attnbench.timing.allocator import last_level_cache_bytes

New = Callable[[str], Asked]
SMALL = "attention/dot/B2-H2-Lq3-Lk5-D4-Dv4/none/float32"
ROTATING = "attention/dot/B2-H8-L64-D64/none/float32/cpu/forward/rotating"
HOT = "attention/dot/B2-H8-L64-D64/none/float32"
ROTATING_SMALL = f"{HOT}/cpu/forward/rotating"


@pytest.mark.parametrize("case", [SMALL, ROTATING])
def test_outputs_before_and_after_are_those_of_their_inputs(prepared_worker: New, case: str) -> None:
    worker = prepared_worker(case)
    worker.prepare("eager", BUILT_IN_BACKENDS)
    for begins in (0, 2, 4):
        worker.give(begins)
        taken = stretch(worker, begins + 1, calls=4, samples=3, warm_calls=1)
        assert len(taken.block.wall_ns) == 3
        kept = worker.kept()
        assert [each.refreshed for each, _ in kept].count(True) >= 1
        for each, output in kept:
            right = answer(worker, begins + each.refreshed)
            np.testing.assert_allclose(output, right, rtol=1e-4, atol=1e-5)
        last, _ = kept[-1]
        assert (last.slot, last.call) == (2, 3)


def test_any_call_of_any_turn_may_be_the_first_on_new_inputs(prepared_worker: New) -> None:
    worker = prepared_worker(SMALL)
    worker.prepare("eager", BUILT_IN_BACKENDS)
    seen: Counter[tuple[int, int]] = Counter()
    for _ in range(120):
        worker.give(0)
        stretch(worker, 1, calls=2, samples=2)
        first = next(each for each, _ in worker.kept() if each.refreshed)
        seen[first.slot, first.call] += 1
    assert len(seen) == 4
    # Each is as likely: of 120 fewer than 10 of one kind come once in a million times.
    assert min(seen.values()) >= 10


@pytest.mark.parametrize("case", [SMALL, ROTATING])
def test_the_time_of_the_first_call_on_new_inputs_is_told_alone(prepared_worker: New, case: str) -> None:
    worker = prepared_worker(case)
    worker.prepare("eager", BUILT_IN_BACKENDS)
    worker.give(0)
    one = stretch(worker, 1, calls=1, samples=1).block
    assert one.renewed_ns == one.wall_ns[0]
    worker.give(2)
    many = stretch(worker, 3, calls=40, samples=1).block
    assert 0 < many.renewed_ns < many.wall_ns[0]
    worker.give(0)
    assert worker.block(calls=3, samples=3).renewed_ns == 0


def test_what_was_kept_outlives_new_inputs_until_it_is_handed_over(prepared_worker: New) -> None:
    worker = prepared_worker(SMALL)
    worker.prepare("eager", BUILT_IN_BACKENDS)
    worker.give(0)
    stretch(worker, 1, calls=1, samples=2)
    worker.give(2)
    stretch(worker, 3, calls=1, samples=2)
    kept = worker.kept()
    assert {each.segment for each, _ in kept} == {0}
    assert 2 <= len(kept) <= 6
    first = [output for each, output in kept if each.refreshed]
    np.testing.assert_allclose(first[0], answer(worker, 1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(first[-1], answer(worker, 3), rtol=1e-4, atol=1e-5)
    assert worker.kept() == []


def places(worker: Asked) -> int:
    """Told by the last timed call."""
    (count,) = set(worker.last().ravel())
    return int(count)


@pytest.fixture
def copies() -> int:
    case = parse_case(HOT)
    return pool_copies([case.B * case.H * case.Lq * case.D * 4] * 3, last_level_cache_bytes("cpu"))


def test_every_timed_call_finds_its_inputs_elsewhere_and_samples_go_on(
    prepared_worker: New, copies: int
) -> None:
    worker = prepared_worker(ROTATING_SMALL)
    worker.prepare("counts_places")
    worker.give()
    assert copies > 50
    worker.block(calls=3, samples=4, warm_calls=2)
    assert places(worker) == 20
    worker.block(calls=30, samples=1)
    assert places(worker) == 50
    worker.block(calls=copies, samples=2)
    assert places(worker) == copies, "all others, then the first again"


def test_renewed_inputs_are_what_timed_calls_compute_on_at_the_same_places(prepared_worker: New) -> None:
    worker, where = prepared_worker(ROTATING_SMALL), prepared_worker(ROTATING_SMALL)
    worker.prepare("eager", BUILT_IN_BACKENDS)
    where.prepare("counts_places")
    for draw in range(3):
        arrays = worker.give(draw)
        for calls in (1, 4):
            worker.block(calls=calls, samples=2)
            np.testing.assert_allclose(worker.last(), attend(*arrays), rtol=1e-4, atol=1e-5)
        where.give(draw)
        where.block(calls=5, samples=1)
        assert places(where) == 5


def test_a_fork_makes_a_pool_of_its_own_inputs(prepared_worker: New) -> None:
    worker = prepared_worker(ROTATING_SMALL)
    worker.prepare("eager", BUILT_IN_BACKENDS)
    worker.give(0)
    worker.link.ask(m.WarmUp(2, 1.0), m.Warmed, ENOUGH_S)
    timed = worker.fork()
    arrays = timed.give(1)
    timed.block(calls=3, samples=1)
    np.testing.assert_allclose(timed.last(), attend(*arrays), rtol=1e-4, atol=1e-5)
