"""From stored sets to trials, shorter ones and samples."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import CALLS, alike, block, set_line

from attnbench.compare.comparison import compare
from attnbench.selftest.trials import Trial, dropped, kept_share, measured_s, samples, shortened, trials_of
from attnbench.types.record import Block, Failure, SetLine

NAMES = ("copy_0", "copy_1")


def sets_of(case: str, count: int) -> list[SetLine]:
    return [set_line(i, alike(), NAMES, case) for i in range(count)]


def test_consecutive_sets_of_a_case_make_trials_and_the_rest_is_left_out() -> None:
    found = trials_of([*sets_of("a", 7), *sets_of("b", 3), *sets_of("c", 2)], 3)
    assert [(one.cluster, [line.index for line in one.sets]) for one in found] == [
        ("a", [0, 1, 2]),
        ("a", [3, 4, 5]),
        ("b", [0, 1, 2]),
    ]
    assert trials_of([], 3) == []


def test_a_part_of_the_time_is_the_first_samples_of_each_block() -> None:
    line = SetLine("case", 0, [0, 1], ["a"], {}, {"a": [block([1, 2, 3, 4, 5])]}, ["a"], {})
    (half,) = shortened([line], 0.5)
    (kept,) = half.blocks["a"]
    assert kept.wall_ns == kept.cpu_ns == [1, 2, 3]
    assert kept.turns == [0, 1, 2]
    assert (kept.calls, kept.stretch) == (CALLS, 0)
    assert msgspec.structs.replace(half, blocks=line.blocks) == line


def test_every_column_of_a_block_is_cut_alike() -> None:
    """A column that a later version adds must not be forgotten here."""
    columns = {"host_ns": [1, 2, 3, 4], "clock_mhz": [1, 2, 3, 4]}
    whole = msgspec.structs.replace(block([1, 2, 3, 4]), **columns)
    line = SetLine("case", 0, [0], ["a"], {}, {"a": [whole]}, [], {})
    (kept,) = shortened([line], 0.5)[0].blocks["a"]
    lengths = {
        field.name: len(value)
        for field in msgspec.structs.fields(Block)
        if isinstance(value := getattr(kept, field.name), list)
    }
    assert set(lengths.values()) == {2}
    assert len(lengths) == 8


@given(st.integers(1, 50), st.floats(0.01, 1))
def test_at_least_one_sample_is_left_and_never_more_than_there_were(count: int, part: float) -> None:
    line = SetLine("case", 0, [0], ["a"], {}, {"a": [block(range(1, count + 1))]}, [], {})
    left = len(shortened([line], part)[0].blocks["a"][0].wall_ns)
    assert max(1, part * count - 1e-9) <= left < part * count + 1


@pytest.mark.parametrize(("count", "part", "kept"), [(8, 0.25, 0.25), (3, 0.5, 2 / 3), (1, 0.25, 1.0)])
def test_the_share_that_is_kept_is_told_as_it_is(count: int, part: float, kept: float) -> None:
    line = set_line(0, lambda name, index: 1.0, NAMES, samples=count)
    assert kept_share([Trial("a", (line,))], part) == pytest.approx(kept)
    assert kept_share([], part) == part


@pytest.mark.parametrize("part", [0.0, -1.0, 1.5])
def test_a_part_is_above_nothing_and_at_most_all(part: float) -> None:
    with pytest.raises(ValueError, match="a part of"):
        shortened([], part)


def test_what_is_left_can_be_compared() -> None:
    sets = sets_of("a", 9)
    short = compare(shortened(sets, 0.25), "copy_1", "copy_0")
    whole = compare(sets, "copy_1", "copy_0")
    assert short is not None
    assert whole is not None
    assert (short.sets, whole.sets) == (9, 9)
    assert (short.pairs, whole.pairs) == (9 * 2, 9 * 8)
    # Samples of one set are equal here, so nothing is lost but their number.
    assert short.set_log_ratios == whole.set_log_ratios


def test_samples_are_times_per_call_by_set() -> None:
    sets = [set_line(i, lambda name, index: index + 1.0, NAMES, samples=1) for i in range(2)]
    assert samples(sets, "copy_0") == [[40_000.0] * 2, [80_000.0] * 2]
    assert samples(sets, "missing") == []


def test_time_measured_is_the_sum_of_samples() -> None:
    sets = [set_line(0, lambda name, index: 1.0, NAMES, samples=5)]
    assert measured_s(sets) == pytest.approx(dict.fromkeys(NAMES, 2 * 5 * CALLS * 40_000 / 1e9))
    assert measured_s([]) == {}


def test_who_dropped_out_is_said_with_the_reason() -> None:
    line = msgspec.structs.replace(sets_of("a", 1)[0], failed={"copy_1": Failure("crashed", "signal 9")})
    assert dropped([line]) == {"copy_1": "crashed: signal 9"}
