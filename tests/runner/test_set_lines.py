"""What a run file says of its sets: turns in balanced order, as planned, on inputs that change."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from statistics import median

import pytest
from run_parts import CAUSAL, PLAIN, run_of, six_turns

from attnbench.results.format import StoredRun
from attnbench.runner.options import Options, options_of
from attnbench.runner.plan import plan_all, plan_calls
from attnbench.runner.repetitions import WORKER_WARM_UP
from attnbench.stats.pairs import compare
from attnbench.stats.summary import summarise, timed_calls
from attnbench.types.record import Block, Record, SetLine

NAMES = ("eager", "sdpa_flash", "sdpa_math")
SETS, STRETCHES = 6, 3


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    folder = tmp_path_factory.mktemp("sets")
    return run_of(folder, (PLAIN, CAUSAL), NAMES, **six_turns(SETS, STRETCHES))


def sets_of(stored: StoredRun, case: str) -> list[SetLine]:
    return [line for line in stored.sets if line.case == case]


def blocks_of(line: SetLine, stretch: int) -> dict[str, Block]:
    return {
        name: block for name, blocks in line.blocks.items() for block in blocks if block.stretch == stretch
    }


def order_of(line: SetLine, stretch: int) -> list[str]:
    """Who was measured in each turn of a stretch."""
    taken = [(turn, name) for name, block in blocks_of(line, stretch).items() for turn in block.turns]
    return [name for _, name in sorted(taken)]


def test_sets_are_numbered_through_for_each_case(stored: StoredRun) -> None:
    assert [(line.case, line.index) for line in stored.sets] == [
        (case, index) for case in (PLAIN, CAUSAL) for index in range(SETS)
    ]
    assert all(line.failed == {} for line in stored.sets)


def test_everyone_takes_as_many_turns_as_planned_and_every_turn_is_taken_once(stored: StoredRun) -> None:
    plans = {planned.case: planned.contenders for planned in stored.cases}
    for line in stored.sets:
        assert sorted(line.order) == sorted(NAMES)
        assert all([b.stretch for b in line.blocks[name]] == [*range(STRETCHES)] for name in NAMES)
        planned = {name: plans[line.case][name].samples for name in NAMES}
        for stretch in range(STRETCHES):
            blocks = blocks_of(line, stretch)
            assert {name: len(block.turns) for name, block in blocks.items()} == planned
            turns = [turn for block in blocks.values() for turn in block.turns]
            assert sorted(turns) == [*range(sum(planned.values()))]
            assert all(block.turns == sorted(block.turns) for block in blocks.values())


def test_nobody_follows_itself_and_nobody_always_follows_the_same(stored: StoredRun) -> None:
    """Where all take as many turns, as they do here."""
    planned = [contender for line in stored.cases for contender in line.contenders.values()]
    assert {contender.samples for contender in planned} == {6}
    follows: Counter[tuple[str, str]] = Counter()
    for line in stored.sets:
        for stretch in range(STRETCHES):
            follows.update(pairwise(order_of(line, stretch)))
    assert all(before != after for before, after in follows)
    assert len(follows) == 6
    # Each of six pairs has a sixth on average; half of that is far out of reach of chance.
    assert min(follows.values()) > sum(follows.values()) / 12


def test_sets_and_stretches_are_ordered_independently(stored: StoredRun) -> None:
    orders = {tuple(order_of(line, stretch)) for line in stored.sets for stretch in range(STRETCHES)}
    assert len(orders) > SETS
    assert len({tuple(line.order) for line in stored.sets}) > 1, "and so are their starts"


def test_blocks_have_the_planned_calls_and_samples(stored: StoredRun) -> None:
    plans = {planned.case: planned.contenders for planned in stored.cases}
    for line in stored.sets:
        for name, blocks in line.blocks.items():
            plan = plans[line.case][name]
            for block in blocks:
                assert block.calls == plan.calls
                for column in (block.wall_ns, block.cpu_ns, block.switches, block.faults, block.asked_ns):
                    assert len(column) == plan.samples
                assert min(block.wall_ns) > 0
                assert min(block.cpu_ns + block.switches + block.faults) >= 0


def test_every_turn_takes_longer_by_the_clocks_around_it_than_its_sample(stored: StoredRun) -> None:
    """By the warm calls, and by handing on the baton. The parent is around the first and the last turn."""
    for line in stored.sets:
        for block in (block for blocks in line.blocks.values() for block in blocks):
            taken = list(zip(block.turns, block.asked_ns, block.wall_ns, strict=True))
            inner = [(asked, wall) for turn, asked, wall in taken if 0 < turn < 6 * len(NAMES) - 1]
            assert len(inner) >= 4
            assert all(asked > wall for asked, wall in inner)


def test_turns_by_the_clocks_around_them_add_up_to_the_stretch(stored: StoredRun) -> None:
    """Between two turns there is only the baton, so what all took is not more than twice what they had to."""
    asked = [ns for line in stored.sets for bs in line.blocks.values() for b in bs for ns in b.asked_ns]
    phases = stored.finished.phases_s if stored.finished else {}
    # Each moment counts in two turns at most: from one's end to the next one's beginning.
    assert sum(asked) / 1e9 < 2 * phases["sets"]


def test_the_plan_follows_from_the_stored_warm_up(stored: StoredRun) -> None:
    options = options_of(stored.manifest.protocol)
    assert options.protocol().items() >= six_turns(SETS, STRETCHES).items()
    for planned in stored.cases:
        assert planned.stretches == STRETCHES
        traces = {
            name: [round(ms * 1e6) for ms in contender.warmup_ms]
            for name, contender in planned.contenders.items()
        }
        plans = plan_all(traces, options)
        for name, contender in planned.contenders.items():
            told = (contender.calls, contender.samples, contender.warm_calls, contender.sets)
            plan = plans[name]
            assert told == (plan.calls, plan.samples, plan.warm_calls, plan.sets)
            assert contender.fresh


def test_warm_up_traces_of_children_are_kept(stored: StoredRun) -> None:
    for line in stored.sets:
        assert set(line.warmup_ns) == set(NAMES)
        for trace in line.warmup_ns.values():
            assert 1 <= len(trace) <= WORKER_WARM_UP.most_calls + 1
            assert min(trace) > 0


def test_inputs_change_from_stretch_to_stretch_and_sets_begin_on_all_of_them(stored: StoredRun) -> None:
    for case in (PLAIN, CAUSAL):
        lines = sets_of(stored, case)
        pool = {draw for line in lines for draw in line.draws}
        assert len(pool) == Options().timed_draws == 3
        for line in lines:
            assert len(line.draws) == len(line.changes) == 2 * STRETCHES
            assert all(a != b for a, b in pairwise(line.draws))
    changes = [change for line in stored.sets for change in line.changes]
    assert len(set(changes)) == len(changes), "no inputs twice"


def test_timed_inputs_are_of_another_seed_for_each_case(stored: StoredRun) -> None:
    assert len({planned.draw_entropy for planned in stored.cases}) == 2


def test_every_set_is_verified(stored: StoredRun) -> None:
    assert all(sorted(line.verified) == sorted(NAMES) for line in stored.sets)
    # Of each stretch the last call, the first on inputs renewed within it, mostly the one before it, and
    # one at random.
    for line in stored.sets:
        # The renewal may come before the last call of all.
        assert all(STRETCHES <= calls <= 4 * STRETCHES for calls in line.verified_calls.values())
        assert line.checking_s > 0
    for record in stored.records:
        of_sets = [line.verified_calls[record.backend] for line in sets_of(stored, record.case)]
        assert record.verified_calls == sum(of_sets) < record.timed_calls


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
    timing = summarise(lines, name)
    assert timing is not None
    assert record.median_ms == pytest.approx(median(medians) / 1e6) == timing.median_ms
    # Of six sets the outermost medians are the interval, at 1 - 2 / 2**6.
    assert (record.low_ms, record.high_ms) == pytest.approx((min(medians) / 1e6, max(medians) / 1e6))
    assert record.confidence == pytest.approx(1 - 2 / 2**SETS)
    if name == "eager":
        assert (record.ratio, record.ratio_low, record.p_value, record.pairs) == (1.0, None, None, 0)
    else:
        against = compare(lines, name, "eager")
        assert against is not None
        assert against.interval is not None
        assert record.ratio == against.ratio
        assert (record.ratio_low, record.ratio_high) == (against.interval.low, against.interval.high)
        assert record.ratio_confidence == against.interval.confidence
        assert record.p_value == against.p_value
        assert (record.pairs, record.pairs_left_out) == (against.pairs, against.left_out)
    assert (record.baseline, record.delta) == ("eager", Options().delta)
    assert record.timed_calls == timed_calls(lines, name)
    contender = planned.contenders[name]
    assert record.timed_calls == contender.calls * contender.samples * STRETCHES * SETS
    faults = sum(sum(block.faults) for line in lines for block in line.blocks[name])
    assert record.faults_per_call == pytest.approx(faults / record.timed_calls)
    assert record.sets == sum(name in line.blocks for line in lines)
    assert record.tflops == pytest.approx(planned.flops / record.median_ms / 1e9)
    assert record.gbps == pytest.approx(planned.bytes_moved / record.median_ms / 1e6)
    said = (record.accuracy, record.prepare_ms, record.first_call_ms, record.warmup_ms)
    assert said == (
        contender.accuracy, contender.prepare_ms, contender.first_call_ms, contender.warmup_ms,
    )  # fmt: skip
    assert record.notes[: len(contender.notes)] == contender.notes


@pytest.mark.parametrize("case", [PLAIN, CAUSAL])
def test_the_best_is_the_one_with_the_least_median_and_everyone_is_held_against_it(
    stored: StoredRun, case: str
) -> None:
    records = [record for record in stored.records if record.case == case]
    fastest = min(records, key=lambda record: record.median_ms or 0)
    for record in records:
        assert record.best == fastest.backend
        against = compare(sets_of(stored, case), record.backend, fastest.backend)
        assert against is not None
        assert record.ratio_to_best == against.ratio
    assert fastest.ratio_to_best == 1.0


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
    """The same outcome with nothing but a status, its reason and what ran: what can be told untimed."""
    return Record(
        record.case, record.rule, record.backend, record.status, record.reason,
        ran=record.ran, kernel_of=record.kernel_of, failed_check=record.failed_check,
    )  # fmt: skip


def test_a_slow_contender_takes_part_in_the_first_sets_alone() -> None:
    slow = plan_calls(10**9, replace(Options(), sets=8, budget_s=0.1))
    assert (slow.sets, slow.calls, slow.samples, slow.warm_calls) == (3, 1, 1, 0)
