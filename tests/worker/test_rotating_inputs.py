"""Workers on cases whose inputs rotate: where timed calls find them, what is in them, what a fork keeps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from asked import BUILT_IN_BACKENDS, ENOUGH_S, Asked, attend

from attnbench.cases.ids import parse_case
from attnbench.cases.work import pool_copies
from attnbench.ipc import messages as m
from attnbench.timing.allocator import last_level_cache_bytes

New = Callable[[str], Asked]

HOT = "attention/dot/B2-H8-L64-D64/none/float32"
ROTATING = f"{HOT}/cpu/forward/rotating"


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
    worker = prepared_worker(ROTATING)
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
    worker, where = prepared_worker(ROTATING), prepared_worker(ROTATING)
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
    worker = prepared_worker(ROTATING)
    worker.prepare("eager", BUILT_IN_BACKENDS)
    worker.give(0)
    worker.link.ask(m.WarmUp(2, 1.0), m.Warmed, ENOUGH_S)
    timed = worker.fork()
    arrays = timed.give(1)
    timed.block(calls=3, samples=1)
    np.testing.assert_allclose(timed.last(), attend(*arrays), rtol=1e-4, atol=1e-5)
