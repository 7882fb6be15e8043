"""Answers and refusals of a worker, and timed calls: slots, refreshed inputs, and the log of outputs."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from asked import BUILT_IN_BACKENDS, ENOUGH_S, OUTSPOKEN, Asked, New, attend, segment

from attnbench.cases.work import pool_copies
from attnbench.ipc import messages as m
from attnbench.runner.processes import WorkerFailed
from attnbench.timing.allocator import last_level_cache_bytes
from attnbench.timing.warmup import Limits
from attnbench.types.backend import Backend
from attnbench.types.extensions import Source
from attnbench.worker.failures import classify
from attnbench.worker.prepared import missing_modules

SMALL = "attention/dot/B2-H2-Lq3-Lk5-D4-Dv4/none/float32"
ROTATING = "attention/dot/B2-H8-L64-D64/none/float32/cpu/forward/rotating"
SQUARE = "attention/dot/B2-H2-L3-D4/none"
SPECIAL = {
    "float64": [0x7FEFFFFFFFFFFFFF, 0xFFF0000000000000, 0x8000000000000000, 1],
    "float32": [0x7F7FFFFF, 0xFF800000, 0x80000000, 1],
    "float16": [0x7BFF, 0xFC00, 0x8000, 1],
    "bfloat16": [0x7F7F, 0xFF80, 0x8000, 1],
}
MIB = 1024**2
BROKEN = Source("broken", "does_not_load", "broken-things", "2.1")
DROPPING = "attention/dot/B2-H2-Lq8-Lk8-D4/none/float32/cpu/forward/dropout0.5"


@pytest.mark.slow
def test_a_worker_runs_one_thread_builds_no_graph_and_reads_nothing(prepared_worker: New) -> None:
    worker = prepared_worker(SMALL, "tells_torch")
    assert worker.output()[0, 0, 0].tolist() == [1, 1, 0, 0]
    assert worker.fork().output()[1, 1, 2].tolist() == [1, 1, 0, 0]


def test_heads_last_is_given_and_taken_in_that_layout(prepared_worker: New) -> None:
    worker = prepared_worker("attention/dot/B2-H4-Hkv2-Lq3-Lk5-D4-Dv6/none/float32")
    worker.prepare("heads_last")
    arrays = worker.give()
    output = worker.output()
    assert output.shape == (2, 4, 3, 6)
    np.testing.assert_allclose(output, attend(*arrays), rtol=1e-6)


@pytest.mark.parametrize("dtype", SPECIAL)
def test_bits_go_through_a_worker_unchanged(prepared_worker: New, dtype: str) -> None:
    """-inf, -0, the largest and the smallest number; back through strides."""
    bits = np.arange(2 * 2 * 3 * 4, dtype=f"u{2 if dtype == 'bfloat16' else np.dtype(dtype).itemsize}")
    bits[:4] = SPECIAL[dtype]
    values = bits.reshape(2, 2, 3, 4)
    values = values if dtype == "bfloat16" else values.view(dtype)
    worker = prepared_worker(f"{SQUARE}/{dtype}")
    worker.prepare("gives_values")
    worker.give((np.zeros_like(values), np.zeros_like(values), values))
    assert worker.output().tobytes() == values.tobytes()


@pytest.mark.parametrize(
    ("sizes", "rule", "said"),
    [("L3-D2-E4", "dot", 3), ("L3-D2-E4-cross", "dot", 4), ("Lq2-Lk3-D2-E4", "dot", 4),
     ("Lq2-Lk3-D2-E4", "concat_linear", 0)],
)  # fmt: skip
def test_one_source_that_serves_twice_is_one_tensor(
    prepared_worker: New, sizes: str, rule: str, said: int
) -> None:
    worker = prepared_worker(f"multihead/{rule}/B2-H2-{sizes}/none/float32", "tells_identity")
    assert worker.output().tolist() == np.full((2, 2 if "Lq2" in sizes else 3, 4), said).tolist()


def test_the_last_output_is_that_of_the_last_timed_call(prepared_worker: New) -> None:
    worker = prepared_worker(SMALL, "counts_calls")
    block = worker.block(calls=3, samples=4, warm_calls=5)
    assert (block.segment, block.slots, block.calls) == (4, [1, 4, 7, 10], 3)
    vitals = (block.wall_ns, block.cpu_ns, block.switches, block.faults)
    assert [len(each) for each in vitals] == [4] * 4
    assert min(block.wall_ns) > 0
    # Warm calls are made before each sample, and are in none.
    made = (5 + 3) * 4
    # Computing leaves it alone; asking for it makes no call.
    assert set(worker.output().ravel()) == {made + 1}
    kept, output = worker.kept()[-1]
    assert (kept.segment, kept.slot, kept.call, kept.refreshed) == (4, 10, 2, False)
    assert set(output.ravel()) == {made}
    assert set(worker.output().ravel()) == {made + 2}


def test_required_modules_are_looked_for_and_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fast_things").mkdir()
    (tmp_path / "fast_things" / "__init__.py").write_text("raise RuntimeError('it was imported')")
    (tmp_path / "fast_things" / "kernels.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    there = ("fast_things", "fast_things.kernels", "xml.dom.minidom")
    lacking = ("fast_things.others", "fast_things.kernels.inner", "no_things", "no_things.kernels")
    backend = Backend("needy", "needs much", prepare=lambda setup: max, requires=(*there, *lacking))
    assert missing_modules(backend) == f"needs {', '.join(lacking)}, which is not installed"


@pytest.mark.parametrize(
    ("backend", "source", "status", "reason"),
    [
        ("egaer", BUILT_IN_BACKENDS, "error", "attnbench 0 (attnbench.backends) brings no 'egaer' here"),
        ("any", BROKEN, "error", "broken-things 2.1 (does_not_load): cannot be imported: "
         "OSError: a library is missing from this machine"),
        ("not_here", OUTSPOKEN, "unavailable", "no kernel for cpu"),
        ("asks_in_vain", OUTSPOKEN, "error", "supports() raised LookupError: no idea"),
        ("prepares_no_call", OUTSPOKEN, "error", "prepare() gave None, where a function is needed"),
    ],
)  # fmt: skip
def test_backends_that_can_not_be_prepared(
    prepared_worker: New, backend: str, source: Source, status: str, reason: str
) -> None:
    worker = prepared_worker(SMALL)
    with pytest.raises(WorkerFailed) as failure:
        worker.prepare(backend, source)
    assert (failure.value.status, failure.value.reason) == (status, reason)
    worker.prepare("counts_calls")
    worker.give()
    assert worker.output().shape == (2, 2, 3, 4)


@pytest.mark.parametrize("limit_mib", [64, 256])
def test_a_call_may_allocate_up_to_its_limit(prepared_worker: New, limit_mib: int) -> None:
    """The backend holds 96 MiB; a fork has the limit of its worker."""
    worker = prepared_worker(SMALL)
    worker.prepare("holds_memory", limit=limit_mib * MIB)
    for each in (worker, worker.fork()):
        each.give()
        if limit_mib > 96:
            assert each.output().shape == (2, 2, 3, 4)
            continue
        with pytest.raises(
            WorkerFailed, match=r"^the call ran out of memory: .*Unable to allocate 96"
        ) as failure:
            each.output()
        assert failure.value.status == "out_of_memory"


@pytest.mark.parametrize("backend", ["eager", "numpy"])
def test_forks_of_one_worker_drop_other_weights(prepared_worker: New, backend: str) -> None:
    """Whether the random numbers are torch's or a generator's made in preparation."""
    worker = prepared_worker(DROPPING, backend, BUILT_IN_BACKENDS)
    outputs = [each.fork().output().tobytes() for each in (worker, worker, worker)]
    outputs += [worker.output().tobytes() for _ in range(2)]
    assert len(set(outputs)) == len(outputs)


@pytest.mark.parametrize("guarded", [True, False])
def test_inputs_are_refreshed_in_place_until_they_come_in_another_way(
    prepared_worker: New, guarded: bool
) -> None:
    worker = prepared_worker(SMALL)
    worker.prepare("counts_places")
    counts = []
    for draw, delivery in enumerate(("", "", "strided", "strided")):
        worker.give(draw, guarded=guarded, delivery=delivery)
        counts.append(int(worker.output().flat[0]))
    assert counts == [1, 1, 2, 2]


class Unreadable(Exception):  # noqa: N818
    def __str__(self) -> str:
        raise RuntimeError("not even this")


@pytest.mark.parametrize(
    ("failure", "status", "reason"),
    [
        (Unreadable(), "error", "the call raised Unreadable: (its message can't be read)"),
        (SystemExit("\x1b[31m\nred"), "crashed", r"the call called exit('\\x1b[31m red')"),
        (MemoryError(), "out_of_memory", "the call ran out of memory: MemoryError"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "out_of_memory", None),
        (OSError(12, "Cannot allocate memory"), "out_of_memory", None),
    ],
)
def test_a_failure_is_a_status_and_one_line(failure: BaseException, status: str, reason: str | None) -> None:
    got = classify(failure, "the call")
    assert got[0] == status
    if reason is None:
        assert got[1].startswith(f"the call ran out of memory: {type(failure).__name__}: ")
    else:
        assert got[1] == reason


# --- timed calls ------------------------------------------------------------------------------------


def test_outputs_of_samples_count_where_their_bits_repeat(prepared_worker: New) -> None:
    worker = prepared_worker(SMALL, "eager", BUILT_IN_BACKENDS)
    for _ in range(4):
        worker.give(0)
        segment(worker, 1, calls=1, samples=4)
        log, fd = worker.link.ask(m.TimedOutputs(), m.Kept, ENOUGH_S)
        os.close(fd)
        assert len(log.outputs) + log.repeated == 4
        assert log.repeated >= 1


def test_outputs_with_other_bits_are_kept_for_the_verifier(prepared_worker: New) -> None:
    """Each call of this backend gives another number."""
    worker = prepared_worker(SMALL, "counts_calls")
    for _ in range(4):
        segment(worker, 1, calls=1, samples=4)
        numbers = [float(output.flat[0]) for _, output in worker.kept()]
        assert len(set(numbers)) == len(numbers) == 4


def test_inputs_may_be_refreshed_before_any_call_of_any_slot(prepared_worker: New) -> None:
    worker = prepared_worker(SMALL, "eager", BUILT_IN_BACKENDS)
    seen: Counter[tuple[int, int]] = Counter()
    for _ in range(120):
        worker.give(0)
        segment(worker, 1, calls=2, samples=2)
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
