"""A worker's answers to every request, from real processes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from asked import BUILT_IN_BACKENDS, ENOUGH_S, Asked, attend

from attnbench.ipc import messages as m

New = Callable[[str], Asked]

SMALL = "attention/dot/B2-H2-Lq3-Lk5-D4-Dv4/none/float32"
SQUARE = "attention/dot/B2-H2-L3-D4/none"


def test_a_worker_runs_one_thread_builds_no_graph_and_reads_nothing(prepared_worker: New) -> None:
    worker = prepared_worker(SMALL)
    worker.prepare("tells_torch")
    worker.give()
    assert worker.output()[0, 0, 0].tolist() == [1, 1, 0, 0]
    assert worker.fork().output()[1, 1, 2].tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("draw", [0, 1])
def test_an_output_is_that_of_the_inputs_given_last(prepared_worker: New, draw: int) -> None:
    worker = prepared_worker("attention/dot/B2-H4-Hkv2-Lq3-Lk5-D4-Dv6/none/float64")
    assert worker.prepare("eager", BUILT_IN_BACKENDS) > 0
    worker.give(7)
    arrays = worker.give(draw)
    np.testing.assert_allclose(worker.output(), attend(*arrays), rtol=1e-12)


def test_heads_last_is_given_and_taken_in_that_layout(prepared_worker: New) -> None:
    worker = prepared_worker("attention/dot/B2-H4-Hkv2-Lq3-Lk5-D4-Dv6/none/float32")
    worker.prepare("heads_last")
    arrays = worker.give()
    output = worker.output()
    assert output.shape == (2, 4, 3, 6)
    np.testing.assert_allclose(output, attend(*arrays), rtol=1e-6)


SPECIAL = {
    "float64": [0x7FEFFFFFFFFFFFFF, 0xFFF0000000000000, 0x8000000000000000, 1],
    "float32": [0x7F7FFFFF, 0xFF800000, 0x80000000, 1],
    "float16": [0x7BFF, 0xFC00, 0x8000, 1],
    "bfloat16": [0x7F7F, 0xFF80, 0x8000, 1],
}


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
    worker = prepared_worker(f"multihead/{rule}/B2-H2-{sizes}/none/float32")
    worker.prepare("tells_identity")
    worker.give()
    assert worker.output().tolist() == np.full((2, 2 if "Lq2" in sizes else 3, 4), said).tolist()


def test_the_last_output_is_that_of_the_last_timed_call(prepared_worker: New) -> None:
    worker = prepared_worker(SMALL)
    worker.prepare("counts_calls")
    worker.give()
    block = worker.block(calls=3, samples=4, warm_calls=5)
    assert (block.stretch, block.turns, block.calls) == (4, [1, 4, 7, 10], 3)
    vitals = (block.wall_ns, block.cpu_ns, block.switches, block.faults)
    assert [len(each) for each in vitals] == [4] * 4
    assert min(block.wall_ns) > 0
    # Warm calls are made before each sample, and are in none.
    made = (5 + 3) * 4
    # Computing leaves it alone; asking for it makes no call.
    assert set(worker.output().ravel()) == {made + 1}
    ((kept, output),) = worker.kept()
    assert (kept.segment, kept.slot, kept.call, kept.refreshed) == (4, 10, 2, False)
    assert set(output.ravel()) == {made}
    assert set(worker.output().ravel()) == {made + 2}


@pytest.mark.parametrize("most_calls", [0, 1, 3])
def test_warming_up_makes_as_many_calls_as_it_traces(prepared_worker: New, most_calls: int) -> None:
    worker = prepared_worker(SMALL)
    worker.prepare("counts_calls")
    worker.give()
    warmed, _ = worker.link.ask(m.WarmUp(most_calls, 60.0), m.Warmed, ENOUGH_S)
    assert (len(warmed.trace_ns), warmed.settled) == (most_calls, False)
    assert set(worker.output().ravel()) == {most_calls + 1}


def test_peak_memory_is_that_of_a_call_in_the_worker(prepared_worker: New) -> None:
    worker = prepared_worker(SMALL)
    peaks = []
    for backend in ("holds_memory", "counts_calls"):
        worker.prepare(backend)
        worker.give()
        peak, _ = worker.link.ask(m.MeasureMemory(), m.PeakMemory, ENOUGH_S)
        assert peak.bytes is not None
        peaks.append(peak.bytes / 1024**2)
    assert peaks[0] == pytest.approx(96, abs=2)
    assert peaks[1] < 2
