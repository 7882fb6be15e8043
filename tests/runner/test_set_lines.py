"""What a run file says of its sets: everyone once a round, in balanced order, on inputs that change."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from statistics import median

import pytest
from run_parts import CAUSAL, PLAIN, run_of

from attnbench.compare.summary import median_ms, ratio, timed_calls
from attnbench.runner.options import Options
from attnbench.runner.plan import plan_calls
from attnbench.runner.run_file import StoredRun
from attnbench.types.record import Block, Record, SetLine

NAMES = ("eager", "bmm", "weighted_sum")
SETS, ROUNDS = 4, 6


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    return run_of(
        tmp_path_factory.mktemp("sets"), (PLAIN, CAUSAL), NAMES, sets=SETS, rounds=ROUNDS, budget_s=0.05
    )


def sets_of(stored: StoredRun, case: str) -> list[SetLine]:
    return [line for line in stored.sets if line.case == case]


def blocks_in_order(line: SetLine, number: int) -> list[tuple[int, str, Block]]:
    """The blocks of a round as they were measured."""
    found = [
        (block.position, name, block)
        for name, blocks in line.blocks.items()
        for block in blocks
        if block.round == number
    ]
    return sorted(found, key=lambda each: each[0])


def test_sets_are_numbered_through_for_each_case(stored: StoredRun) -> None:
    assert [(line.case, line.index) for line in stored.sets] == [
        (case, index) for case in (PLAIN, CAUSAL) for index in range(SETS)
    ]
    assert all(line.failed == {} for line in stored.sets)


def test_everyone_is_measured_once_a_round_one_after_the_other(stored: StoredRun) -> None:
    for line in stored.sets:
        assert sorted(line.order) == sorted(NAMES)
        for number in range(ROUNDS):
            taken = blocks_in_order(line, number)
            assert [position for position, _, _ in taken] == [0, 1, 2]
            assert sorted(name for _, name, _ in taken) == sorted(NAMES)
        assert all(len(blocks) == ROUNDS for blocks in line.blocks.values())


def test_nobody_follows_itself_and_nobody_always_follows_the_same(stored: StoredRun) -> None:
    follows: Counter[tuple[str, str]] = Counter()
    for line in stored.sets:
        measured = [name for number in range(ROUNDS) for _, name, _ in blocks_in_order(line, number)]
        follows.update(pairwise(measured))
    assert all(before != after for before, after in follows)
    assert len(follows) == 6
    # Of 136 neighbours each of the six pairs has about 23; half of that is far out of reach of chance.
    assert min(follows.values()) > 11


def test_sets_are_ordered_independently(stored: StoredRun) -> None:
    orders = {
        tuple(name for number in range(ROUNDS) for _, name, _ in blocks_in_order(line, number))
        for line in stored.sets
    }
    assert len(orders) > 1


def test_blocks_have_the_planned_calls_and_samples(stored: StoredRun) -> None:
    plans = {planned.case: planned.contenders for planned in stored.cases}
    for line in stored.sets:
        for name, blocks in line.blocks.items():
            plan = plans[line.case][name]
            for block in blocks:
                assert block.calls == plan.calls
                for column in (block.wall_ns, block.cpu_ns, block.switches, block.faults):
                    assert len(column) == plan.samples
                assert min(block.wall_ns) > 0
                assert min(block.cpu_ns + block.switches + block.faults) >= 0
                # The parent waits for the block, and for the message around it.
                assert block.asked_ns > sum(block.wall_ns)


def test_the_plan_follows_from_the_stored_warm_up(stored: StoredRun) -> None:
    options = Options(**stored.manifest.protocol)
    assert (options.sets, options.rounds, options.budget_s) == (SETS, ROUNDS, 0.05)
    for planned in stored.cases:
        assert planned.rounds == ROUNDS
        for contender in planned.contenders.values():
            trace = tuple(round(ms * 1e6) for ms in contender.warmup_ms)
            plan = plan_calls(trace, options)
            told = (contender.calls, contender.samples, contender.warm_calls, contender.sets)
            assert told == (plan.calls, plan.samples, plan.warm_calls, plan.sets)
            assert contender.fresh


def test_warm_up_traces_of_children_are_kept(stored: StoredRun) -> None:
    for line in stored.sets:
        assert set(line.warmup_ns) == set(NAMES)
        for trace in line.warmup_ns.values():
            assert 1 <= len(trace) <= 8
            assert min(trace) > 0


def test_inputs_change_from_round_to_round_and_sets_begin_on_all_of_them(stored: StoredRun) -> None:
    for case in (PLAIN, CAUSAL):
        lines = sets_of(stored, case)
        pool = set(lines[0].draws)
        assert len(pool) == Options().timed_draws == 2
        for line in lines:
            assert len(line.draws) == ROUNDS
            assert set(line.draws) == pool
            assert all(a != b for a, b in pairwise(line.draws))
        assert [line.draws[0] for line in lines[:2]] == sorted(pool)
        assert lines[2].draws == lines[0].draws


def test_timed_inputs_are_of_another_seed_for_each_case(stored: StoredRun) -> None:
    assert len({planned.draw_entropy for planned in stored.cases}) == 2


def test_every_set_is_verified(stored: StoredRun) -> None:
    assert all(sorted(line.verified) == sorted(NAMES) for line in stored.sets)
    assert all(record.verified_calls == record.sets == SETS for record in stored.records)


@pytest.mark.parametrize("case", [PLAIN, CAUSAL])
@pytest.mark.parametrize("name", NAMES)
def test_every_number_of_a_record_follows_from_the_stored_samples(
    stored: StoredRun, case: str, name: str
) -> None:
    lines = sets_of(stored, case)
    (planned,) = (each for each in stored.cases if each.case == case)
    (record,) = (each for each in stored.records if (each.case, each.backend) == (case, name))
    assert record.median_ms is not None
    # By hand, and once more with the functions that a reader of the file would use.
    medians = [
        median(wall / block.calls for block in line.blocks[name] for wall in block.wall_ns) for line in lines
    ]
    assert record.median_ms == pytest.approx(median(medians) / 1e6) == median_ms(lines, name)
    assert (record.low_ms, record.high_ms) == pytest.approx((min(medians) / 1e6, max(medians) / 1e6))
    assert record.ratio == ratio(lines, name, "eager")
    assert (record.ratio == 1.0) == (name == "eager")
    assert record.timed_calls == timed_calls(lines, name)
    contender = planned.contenders[name]
    assert record.timed_calls == contender.calls * contender.samples * ROUNDS * SETS
    assert record.sets == sum(name in line.blocks for line in lines)
    assert record.tflops == pytest.approx(planned.flops / record.median_ms / 1e9)
    assert record.gbps == pytest.approx(planned.bytes_moved / record.median_ms / 1e6)
    said = (record.accuracy, record.prepare_ms, record.first_call_ms, record.warmup_ms, record.notes)
    assert said == (
        contender.accuracy, contender.prepare_ms, contender.first_call_ms, contender.warmup_ms,
        contender.notes,
    )  # fmt: skip


def test_counts_are_of_kept_pairs(stored: StoredRun) -> None:
    """Two heads of 16 queries: 16 keys each, or 1 + 2 + ... + 16 under a causal mask."""
    pairs = {planned.case: planned.pairs for planned in stored.cases}
    assert pairs == {PLAIN: 2 * 256, CAUSAL: 2 * 136}
    for planned in stored.cases:
        assert planned.flops == 2 * pairs[planned.case] * (8 + 8)


def test_the_run_ends_with_where_its_time_went(stored: StoredRun) -> None:
    assert stored.finished is not None
    phases = stored.finished.phases_s
    assert set(phases) == {"start", "oracle", "check", "sets", "memory", "other"}
    assert sum(phases.values()) <= stored.finished.wall_s
    assert phases["sets"] == max(phases.values()) or phases["check"] == max(phases.values())


def test_dropping_out_of_a_set_leaves_the_others_whole(
    odd_plugins: None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    names = ("eager", "crash_when_timed", "only_when_timed", "bmm")
    stored = run_of(tmp_path_factory.mktemp("dropped"), (PLAIN,), names, sets=3)
    first, *others = stored.sets
    assert set(first.failed) == {"crash_when_timed", "only_when_timed"}
    assert first.failed["crash_when_timed"].status == "crashed"
    assert first.failed["only_when_timed"].status == "mismatch"
    for line in stored.sets:
        assert sorted(line.verified) == sorted(line.blocks) == ["bmm", "eager"]
    for line in others:
        assert sorted(line.order) == ["bmm", "eager"]
        assert line.failed == {}
    records = {record.backend: record for record in stored.records}
    for name in ("crash_when_timed", "only_when_timed"):
        assert records[name] == untimed(records[name])
        assert records[name].reason == first.failed[name].reason


def untimed(record: Record) -> Record:
    """The same outcome with nothing but a status and its reason."""
    return Record(record.case, record.rule, record.backend, record.status, record.reason)


def test_a_slow_contender_takes_part_in_the_first_sets_alone() -> None:
    slow = plan_calls((10**9,), replace(Options(), sets=8, budget_s=0.1))
    assert (slow.sets, slow.calls, slow.samples, slow.warm_calls) == (3, 1, 1, 0)
