"""Answers and refusals of a worker."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest
from asked import BUILT_IN_BACKENDS, BUILT_IN_RULES, ENOUGH_S, OUTSPOKEN, Asked, attend

from attnbench.ipc import messages as m
from attnbench.ipc.shared_memory import pack, unpack
from attnbench.runner.link import WorkerFailed
from attnbench.types.extensions import Source

New = Callable[[str], Asked]
SMALL = "attention/dot/B2-H2-Lq3-Lk5-D4-Dv4/none/float32"
SQUARE = "attention/dot/B2-H2-L3-D4/none"
SPECIAL = {
    "float64": [0x7FEFFFFFFFFFFFFF, 0xFFF0000000000000, 0x8000000000000000, 1],
    "float32": [0x7F7FFFFF, 0xFF800000, 0x80000000, 1],
    "float16": [0x7BFF, 0xFC00, 0x8000, 1],
    "bfloat16": [0x7F7F, 0xFF80, 0x8000, 1],
}
NARROW = "attention/dot/B2-H2-Lq3-Lk5-D4/none/float32"
MIB = 1024**2
BROKEN = Source("broken", "does_not_load", "broken-things", "2.1")
MISSING = Source("lost", "no_such_module_anywhere", "lost-things", "3")
DROPPING = "attention/dot/B2-H2-Lq8-Lk8-D4/none/float32/cpu/forward/dropout0.5"


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


def refused(worker: Asked, *args: object, **options: object) -> tuple[str, str]:
    with pytest.raises(WorkerFailed) as failure:
        worker.prepare(*args, **options)  # type: ignore[arg-type]
    return failure.value.status, failure.value.reason


@pytest.mark.parametrize(
    ("backend", "source", "status", "reason"),
    [
        ("egaer", BUILT_IN_BACKENDS, "error", "attnbench 0 (attnbench.backends) brings no 'egaer' here"),
        ("any", MISSING, "error", "lost-things 3 (no_such_module_anywhere): does not import: "
         "ModuleNotFoundError: No module named 'no_such_module_anywhere'"),
        ("any", BROKEN, "error", "broken-things 2.1 (does_not_load): does not import: "
         "OSError: a library is missing from this machine"),
        ("not_here", OUTSPOKEN, "unavailable", "no kernel for cpu"),
        ("asks_in_vain", OUTSPOKEN, "error", "supports() raised LookupError: no idea"),
    ],
)  # fmt: skip
def test_backends_that_can_not_be_prepared(
    prepared_worker: New, backend: str, source: Source, status: str, reason: str
) -> None:
    worker = prepared_worker(NARROW)
    assert refused(worker, backend, source) == (status, reason)
    worker.prepare("counts_calls")
    worker.give()
    assert worker.output().shape == (2, 2, 3, 4)


def test_rules_and_cases_that_nobody_knows(prepared_worker: New) -> None:
    unknown = prepared_worker("attention/dto/H1-L2-D2/none/float32")
    assert refused(unknown, "eager", BUILT_IN_BACKENDS, parameters={}) == (
        "error",
        "attnbench 0 (attnbench.rules) brings no 'dto' here",
    )
    assert refused(prepared_worker(NARROW), "eager", BUILT_IN_BACKENDS, rule_source=BROKEN)[1].startswith(
        "broken-things 2.1 (does_not_load): does not import"
    )
    worker = prepared_worker(NARROW).link
    fd, _ = pack({}, "float32")
    request = m.Prepare("attention/dot/H0-L1-D1", "eager", BUILT_IN_BACKENDS, BUILT_IN_RULES, (), None)
    with pytest.raises(WorkerFailed, match="BadCase: case 'attention/dot/H0-L1-D1': H = 0: sizes are 1"):
        worker.ask(request, m.Prepared, ENOUGH_S, (fd,))
    os.close(fd)


def test_a_failure_in_a_block_is_one_of_the_call_and_the_worker_goes_on(prepared_worker: New) -> None:
    worker = prepared_worker(NARROW)
    worker.prepare("raises_once_warm")
    worker.give()
    with pytest.raises(WorkerFailed) as failure:
        worker.block(calls=2, samples=5)
    assert (failure.value.status, failure.value.reason) == ("error", "the call raised ArithmeticError: tired")
    assert set(worker.output().ravel()) == {4}


def test_a_subclass_of_tensor_is_no_output(prepared_worker: New) -> None:
    worker = prepared_worker(NARROW)
    worker.prepare("gives_a_parameter")
    worker.give()
    with pytest.raises(WorkerFailed, match=r"^the output is a Parameter, not a torch.Tensor$") as failure:
        worker.output()
    assert failure.value.status == "mismatch"


@pytest.mark.parametrize("limit_mib", [64, 256])
def test_a_call_may_allocate_up_to_its_limit(prepared_worker: New, limit_mib: int) -> None:
    """The backend holds 96 MiB; a fork has the limit of its template."""
    worker = prepared_worker(NARROW)
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


def test_preparation_is_under_the_limit_too(prepared_worker: New) -> None:
    status, reason = refused(prepared_worker(NARROW), "prepares_memory", limit=64 * MIB)
    assert status == "out_of_memory"
    assert reason.startswith("preparation ran out of memory: RuntimeError: ")


def many(worker: Asked, count: int) -> list[np.ndarray]:
    answer, fd = worker.link.ask(m.Compute(count=count), m.Outputs, ENOUGH_S)
    try:
        return [unpack(fd, parts)["out"] for parts in answer.outputs]
    finally:
        os.close(fd)


def test_outputs_come_in_the_order_of_their_calls(prepared_worker: New) -> None:
    worker = prepared_worker(NARROW)
    worker.prepare("counts_calls")
    worker.give()
    assert [set(output.ravel()) for output in many(worker, 5)] == [{1.0}, {2.0}, {3.0}, {4.0}, {5.0}]
    assert [set(output.ravel()) for output in many(worker, 1)] == [{6.0}]


@pytest.mark.parametrize("backend", ["eager", "numpy"])
def test_forks_of_one_template_drop_other_weights(prepared_worker: New, backend: str) -> None:
    """Whether the random numbers are torch's or a generator's made in preparation."""
    worker = prepared_worker(DROPPING)
    worker.prepare(backend, BUILT_IN_BACKENDS)
    worker.give()
    outputs = [each.fork().output().tobytes() for each in (worker, worker, worker)]
    outputs += [output.tobytes() for output in many(worker, 2)]
    assert len(set(outputs)) == len(outputs)
