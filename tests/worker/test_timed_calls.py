"""Timed calls: slots, refreshed inputs, hot and rotating, and the log of outputs."""

from __future__ import annotations

import os
from collections import Counter

import numpy as np
from asked import BUILT_IN_BACKENDS, ENOUGH_S, Asked, New, attend, stretch

from attnbench.cases.work import pool_copies
from attnbench.ipc import messages as m
from attnbench.timing.allocator import last_level_cache_bytes
from attnbench.timing.warmup import Limits

SMALL = "attention/dot/B2-H2-Lq3-Lk5-D4-Dv4/none/float32"
ROTATING = "attention/dot/B2-H8-L64-D64/none/float32/cpu/forward/rotating"


def test_outputs_of_samples_count_where_their_bits_repeat(prepared_worker: New) -> None:
    worker = prepared_worker(SMALL, "eager", BUILT_IN_BACKENDS)
    for _ in range(4):
        worker.give(0)
        stretch(worker, 1, calls=1, samples=4)
        log, fd = worker.link.ask(m.TimedOutputs(), m.Kept, ENOUGH_S)
        os.close(fd)
        assert len(log.outputs) + log.repeated == 4
        assert log.repeated >= 1


def test_outputs_with_other_bits_are_kept_for_the_verifier(prepared_worker: New) -> None:
    """Each call of this backend gives another number."""
    worker = prepared_worker(SMALL, "counts_calls")
    for _ in range(4):
        stretch(worker, 1, calls=1, samples=4)
        numbers = [float(output.flat[0]) for _, output in worker.kept()]
        assert len(set(numbers)) == len(numbers) == 4


def test_inputs_may_be_refreshed_before_any_call_of_any_slot(prepared_worker: New) -> None:
    worker = prepared_worker(SMALL, "eager", BUILT_IN_BACKENDS)
    seen: Counter[tuple[int, int]] = Counter()
    for _ in range(120):
        worker.give(0)
        stretch(worker, 1, calls=2, samples=2)
        first = next(each for each, _ in worker.kept() if each.refreshed)
        seen[first.slot, first.call] += 1
    assert len(seen) == 4
    # Each is as likely: of 120 fewer than 10 of one kind come once in a million times.
    assert min(seen.values()) >= 10


def told(worker: Asked) -> int:
    """Return the number that the output of the last timed call is full of."""
    (count,) = set(worker.kept()[-1][1].ravel())
    return int(count)


def test_every_timed_call_finds_its_inputs_elsewhere_and_samples_go_on(prepared_worker: New) -> None:
    worker = prepared_worker(ROTATING, "counts_places")
    copies = pool_copies([2 * 8 * 64 * 64 * 4] * 3, last_level_cache_bytes("cpu"))
    assert copies > 50
    worker.block(calls=3, samples=4, warm_calls=2)
    assert told(worker) == 20
    worker.block(calls=30, samples=1)
    assert told(worker) == 50
    worker.block(calls=copies, samples=2)
    assert told(worker) == copies, "all others, then the first again"


def test_a_fork_makes_a_pool_of_its_own_inputs(prepared_worker: New) -> None:
    worker = prepared_worker(ROTATING, "eager", BUILT_IN_BACKENDS)
    worker.link.ask(m.WarmUp(Limits(2, 1.0)), m.Warmed, ENOUGH_S)
    timed = worker.fork()
    arrays = timed.give(1)
    timed.block(calls=3, samples=1)
    np.testing.assert_allclose(timed.kept()[-1][1], attend(*arrays), rtol=1e-4, atol=1e-5)
