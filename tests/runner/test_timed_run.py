"""One timed run with steady slots; the tests read its records, and what its file says of repetitions."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import exp, log, sqrt
from pathlib import Path
from statistics import fmean, median, stdev

import pytest
from run_parts import CAUSAL, PLAIN, assert_records, by_backend, declared, run_of

from attnbench.plugins.registry import load_registry
from attnbench.results.format import StoredRun
from attnbench.runner.options import Options
from attnbench.stats.doubts import FEWEST, clock_problem
from attnbench.stats.pairs import compare
from attnbench.stats.protocol import SEGMENTS, TIMED_DRAWS
from attnbench.timing.warmup import BEFORE_SLOTS
from attnbench.types.record import RepetitionLine, SegmentSamples

pytestmark = pytest.mark.slow

NAMES = ("eager", "sdpa_flash", "sdpa_math")
TRACED, CLOCKS = f"{PLAIN}/seed1", f"{PLAIN}/seed2"
ROTATING = "attention/dot/B1-H4-Lq64-Lk64-D64/none/float32/cpu/forward/rotating"
KEPT = "attention/dot/B1-H4-Lq256-Lk256-D64/none/float32/cpu/forward"
MIB = 1024**2
REPETITIONS = 6


@pytest.fixture(scope="module")
def steady(odd_plugins: None, tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    """A run whose slots take 2 ms, against which a handoff takes no time.

    By its budget everyone takes six of them in a segment, however noisy its warm-up.
    """
    asked = {
        CLOCKS: ("eager", "honest1", "slow_the_clock", "clock_hundredth", "clock_double"),
        f"{PLAIN}/seed3": ("slow_the_clock",),
        f"{PLAIN}/seed4": ("honest1",),
        KEPT: ("eager", "honest1", "keeps_its_answer"),
        ROTATING: ("eager", "can_not_be_forked", "remember_when_timed"),
        TRACED: ("eager", "take_64_mib", "traced_exit_at_once", "traced_raise_an_error", "calls_flash"),
        PLAIN: NAMES,
        CAUSAL: NAMES,
    }
    assert REPETITIONS * 2 >= FEWEST
    out, budget_s = tmp_path_factory.mktemp("steady"), 6.5 * 0.002 * REPETITIONS * SEGMENTS
    return run_of(out, asked, repetitions=REPETITIONS, launches=2, sample_s=0.002, budget_s=budget_s)


def doubted(stored: StoredRun, case: str) -> set[str]:
    """Backends whose clock is doubted. Other reasons to be suspect are not meant."""
    lines = [line for line in stored.repetitions if line.case == case]
    return {name for line in lines for name in line.samples if clock_problem(lines, name)}


def test_a_slow_clock_is_doubted_and_honest_clocks_beside_it_are_not(steady: StoredRun) -> None:
    records = by_backend(steady, CLOCKS)
    slow = records["slow_the_clock"]
    assert (slow.status, slow.failed_check) == ("suspect", "clock")
    assert "by its own clock" in slow.reason
    assert slow.median_ms is not None, "its samples are kept"
    assert slow.best != "slow_the_clock", "and rank nowhere"
    for name in ("clock_hundredth", "clock_double"):
        # Their slots lie before the segment, or after it.
        assert_records(records, {name: ("error", "clock", "by the worker's clock")})
    assert doubted(steady, CLOCKS) == {"slow_the_clock"}
    for name in ("eager", "honest1"):
        assert records[name].status == "ok", records[name].reason
        assert records[name].verified_calls >= 2 * REPETITIONS


def test_a_clock_is_doubted_without_other_backends_too(steady: StoredRun) -> None:
    assert by_backend(steady, f"{PLAIN}/seed3")["slow_the_clock"].status == "suspect"
    assert doubted(steady, f"{PLAIN}/seed3") == {"slow_the_clock"}
    assert by_backend(steady, f"{PLAIN}/seed4")["honest1"].status == "ok"
    assert doubted(steady, f"{PLAIN}/seed4") == set()


def test_an_answer_that_is_kept_while_inputs_stay_the_same_is_suspect(steady: StoredRun) -> None:
    """It is never wrong, and is detected by its time."""
    records = by_backend(steady, KEPT)
    found = records["keeps_its_answer"]
    assert (found.status, found.failed_check) == ("suspect", "kept_answers")
    assert "on new inputs take" in found.reason
    assert all("on inputs written anew" not in records[name].reason for name in ("eager", "honest1"))


def test_a_rotating_case_is_checked_timed_and_recorded_as_such(steady: StoredRun) -> None:
    records = by_backend(steady, ROTATING)
    for name in ("eager", "can_not_be_forked"):
        assert records[name].status == "ok", records[name].reason
        assert records[name].verified_calls >= 2 * REPETITIONS
    # It remembers by address: new values in the same pool are wrong for it.
    assert records["remember_when_timed"].failed_check == "timed_values"


def test_the_peak_of_memory_is_what_a_backend_is_known_to_need(steady: StoredRun) -> None:
    """64 MiB, within 3 %; beside it one that needs next to nothing for so small a case."""
    records = by_backend(steady, TRACED)
    assert records["take_64_mib"].peak_extra_bytes == pytest.approx(64 * MIB, rel=0.03)
    little = records["eager"].peak_extra_bytes
    assert little < 2 * MIB


def test_a_trace_that_fails_costs_nothing_but_the_names_of_operations(steady: StoredRun) -> None:
    records = by_backend(steady, TRACED)
    words = {
        "traced_raise_an_error": "the call raised ValueError: not today",
        "traced_exit_at_once": "exited with status 3 during the tracing of a call",
    }
    for name, said in words.items():
        record = records[name]
        assert (record.status, record.repetitions) == ("ok", REPETITIONS), record.reason
        assert (record.ran, record.kernel_of) == ([], "")
        assert f"the operations of a call are not known: {said}" in record.notes
    assert records["calls_flash"].kernel_of == "sdpa_flash"


def test_a_backend_that_cannot_be_forked_is_traced_and_measured_all_the_same(
    odd_plugins: None, tmp_path: Path
) -> None:
    names = ("take_64_mib", "traced_raise_an_error")
    registry = load_registry()
    for name in names:
        registry = declared(registry, name, forkable=False)
    records = by_backend(run_of(tmp_path, (PLAIN,), names, registry=registry))
    found = {(record.status, record.reason, record.repetitions) for record in records.values()}
    assert found == {("ok", "", 1)}
    assert records["take_64_mib"].peak_extra_bytes == pytest.approx(64 * MIB, rel=0.03)
    assert records["traced_raise_an_error"].ran == []


# --- repetitions in the run file ------------------------------------------------------------------


def repetitions_of(stored: StoredRun, case: str) -> list[RepetitionLine]:
    return [line for line in stored.repetitions if line.case == case]


def blocks_of(line: RepetitionLine, segment: int) -> dict[str, SegmentSamples]:
    return {name: block for name, both in line.samples.items() for block in both if block.segment == segment}


def order_of(line: RepetitionLine, segment: int) -> list[str]:
    """The backend of each slot of a segment."""
    taken = [(slot, name) for name, block in blocks_of(line, segment).items() for slot in block.slots]
    return [name for _, name in sorted(taken)]


def test_repetitions_are_numbered_and_every_planned_sample_is_taken(steady: StoredRun) -> None:
    for planned in (line for line in steady.cases if line.case in (PLAIN, CAUSAL)):
        lines = repetitions_of(steady, planned.case)
        assert [line.index for line in lines] == [*range(REPETITIONS)]
        assert planned.segments == SEGMENTS
        for line in lines:
            assert line.failed == {}
            assert sorted(line.order) == sorted(NAMES)
            assert line.scale.gemm_ns
            assert line.scale.copy_ns
            assert line.scale.empty_ns
            for segment in range(SEGMENTS):
                assert sorted(order_of(line, segment)) == sorted(NAMES * 6)
                for name, block in blocks_of(line, segment).items():
                    plan = planned.candidates[name]
                    assert (block.calls, len(block.slots)) == (plan.calls, plan.samples) == (plan.calls, 6)
                    columns = (block.wall_ns, block.cpu_ns, block.switches, block.faults)
                    assert {len(column) for column in columns} == {6}
                    assert min(block.wall_ns) > 0


def test_slots_are_balanced_and_starts_in_random_order(steady: StoredRun) -> None:
    lines = [*repetitions_of(steady, PLAIN), *repetitions_of(steady, CAUSAL)]
    orders = [order_of(line, segment) for line in lines for segment in range(SEGMENTS)]
    assert len(set(map(tuple, orders))) > REPETITIONS
    assert len({tuple(line.order) for line in lines}) > 1
    follows = Counter(pair for order in orders for pair in pairwise(order))
    assert all(before != after for before, after in follows)
    # Each of six pairs has a sixth on average; half of that is far out of reach of chance.
    assert len(follows) == 6
    assert min(follows.values()) > follows.total() / 12


def test_inputs_change_from_segment_to_segment_and_are_verified(steady: StoredRun) -> None:
    lines = [*repetitions_of(steady, PLAIN), *repetitions_of(steady, CAUSAL)]
    assert len({draw for line in lines for draw in line.draws}) <= TIMED_DRAWS
    changes = [change for line in lines for change in line.transforms]
    assert len(set(changes)) == len(changes), "no inputs twice"
    assert len({planned.draw_entropy for planned in steady.cases}) == len(steady.cases)
    for line in lines:
        assert len(line.draws) == len(line.transforms) == 2 * SEGMENTS
        assert all(before != after for before, after in pairwise(line.draws))
        assert sorted(line.verified) == sorted(line.warmup_ns) == sorted(NAMES)
        # From each segment the last call, the first on refreshed inputs, mostly the one before it, and the
        # last of some samples.
        assert all(SEGMENTS <= calls <= 8 * SEGMENTS for calls in line.verified_calls.values())
        assert all(1 <= len(trace) <= BEFORE_SLOTS.most_calls + 1 for trace in line.warmup_ns.values())


@pytest.mark.parametrize("case", [PLAIN, CAUSAL])
def test_every_number_of_a_record_follows_from_the_stored_samples(steady: StoredRun, case: str) -> None:
    lines, records = repetitions_of(steady, case), by_backend(steady, case)
    (planned,) = (line for line in steady.cases if line.case == case)
    # Two heads of 16 queries: 16 keys each, or 1 + 2 + ... + 16 under a causal mask.
    assert planned.pairs == (2 * 256 if case == PLAIN else 2 * 136)
    assert planned.flops == 2 * planned.pairs * (8 + 8)
    for name, record in records.items():
        candidate = planned.candidates[name]
        assert record.status == "ok", record.reason
        medians = [
            median(wall / block.calls for block in line.samples[name] for wall in block.wall_ns)
            for line in lines
        ]
        assert record.median_ms == pytest.approx(median(medians) / 1e6)
        # Student's t for six values at 95 % is 2.5706; the spread of the logarithms counts as 0.1 at least.
        logs = [log(ns / 1e6) for ns in medians]
        far = 2.5706 * max(stdev(logs), 0.1) / sqrt(REPETITIONS)
        bounds = exp(fmean(logs) - far), exp(fmean(logs) + far)
        assert (record.low_ms, record.high_ms) == pytest.approx(bounds, rel=1e-4)
        assert record.confidence == 0.95
        against = compare(lines, name, "eager")
        if name == "eager":
            assert (record.ratio, record.ratio_low, record.p_value, record.pairs) == (1.0, None, None, 0)
        elif against is not None and against.interval is not None:
            assert (record.ratio, record.p_value) == (against.ratio, against.p_value)
            assert (record.ratio_low, record.ratio_high) == (against.interval.low, against.interval.high)
            assert (record.pairs, record.pairs_left_out) == (against.pairs, against.left_out)
        assert (record.baseline, record.delta, record.repetitions) == ("eager", Options().delta, REPETITIONS)
        assert record.timed_calls == candidate.calls * candidate.samples * SEGMENTS * REPETITIONS
        assert record.verified_calls == sum(line.verified_calls[name] for line in lines) < record.timed_calls
        faults = sum(sum(block.faults) for line in lines for block in line.samples[name])
        assert record.faults_per_call == pytest.approx(faults / record.timed_calls)
        assert record.tflops == pytest.approx(planned.flops / record.median_ms / 1e9)
        assert record.gbps == pytest.approx(planned.bytes_moved / record.median_ms / 1e6)
        for word in ("accuracy", "prepare_ms", "first_call_ms", "warmup_ms"):
            assert getattr(record, word) == getattr(candidate, word)
        assert record.notes[: len(candidate.notes)] == candidate.notes
        assert 0 < record.copy_share <= record.limit_share < 1
        to_best = compare(lines, name, record.best)
        assert (record.ratio_to_best, record.ratio_to_best_p_value) == (to_best.ratio, to_best.p_value)
        assert record.ratio_to_best_low <= record.ratio_to_best <= record.ratio_to_best_high
    fastest = min(records.values(), key=lambda record: record.median_ms or 0)
    assert {record.best for record in records.values()} == {fastest.backend}
    assert fastest.ratio_to_best == 1.0


def test_the_run_ends_with_where_its_time_went(steady: StoredRun) -> None:
    phases = steady.finished.phases_s
    assert set(phases) == {"start", "oracle", "check", "repetitions", "other"}
    assert sum(phases.values()) <= steady.finished.wall_s
