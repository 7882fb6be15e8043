"""Progress: where the time went adds up, and what is left is told from what was expected and what was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.runner import progress as moment
from attnbench.runner.progress import Clock, Moment


class Time:
    """A monotonic clock that goes when it is told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    stopped = Time()
    monkeypatch.setattr(moment, "time", stopped)
    return stopped


def test_moments_say_which_case_and_what_is_done(time: Time) -> None:
    told: list[Moment] = []
    clock = Clock(2, told.append)
    clock.tell("start")
    time.now += 5
    clock.begin_case("a")
    clock.tell("oracle")
    time.now += 2
    clock.begin_case("b")
    clock.tell("set 1 of 8")
    assert told == [
        Moment(0, 2, "", "start", 0.0, None),
        Moment(1, 2, "a", "oracle", 5.0, None),
        Moment(2, 2, "b", "set 1 of 8", 7.0, 2.0),
    ]


def test_the_start_of_the_run_is_no_part_of_the_estimate(time: Time) -> None:
    """Loading torch takes long once, not for each case."""
    told: list[Moment] = []
    clock = Clock(10, told.append)
    time.now += 100
    for name in "abc":
        clock.begin_case(name)
        time.now += 3
    clock.tell("check eager")
    # Two are done in 3 s each; the third has had its 3 s, and 7 more are left.
    assert told[0].left_s == pytest.approx(3 * 7)


def test_one_case_that_compiles_does_not_alarm(time: Time) -> None:
    told: list[Moment] = []
    clock = Clock(12, told.append)
    for name, seconds in (("compiles", 30), ("b", 2), ("c", 3), ("d", 1)):
        clock.begin_case(name)
        time.now += seconds
    clock.tell("set 8 of 8")
    assert told[0].left_s == pytest.approx(2 + 3 * 8)


def test_before_a_case_is_done_there_is_no_estimate(time: Time) -> None:
    told: list[Moment] = []
    clock = Clock(3, told.append)
    clock.begin_case("a")
    time.now += 50
    clock.tell("check")
    assert told[0].left_s is None


def test_what_was_expected_is_told_from_the_first_case_on(time: Time) -> None:
    told: list[Moment] = []
    clock = Clock(3, told.append, [10, 2, 3])
    clock.begin_case("compiles")
    clock.tell("oracle")
    time.now += 4
    clock.tell("check")
    assert [moment.left_s for moment in told] == pytest.approx([15, 11])


def test_a_machine_half_as_fast_as_expected_is_believed_more_with_each_case(time: Time) -> None:
    told: list[Moment] = []
    clock = Clock(100, told.append, [2.0] * 100)
    for _ in range(100):
        clock.begin_case("a")
        clock.tell("oracle")
        time.now += 4
    assert told[0].left_s == pytest.approx(200)
    assert told[1].left_s == pytest.approx(1.5 * 2 * 99)
    assert told[50].left_s == pytest.approx(4 * 50, rel=0.02)
    assert told[99].left_s == pytest.approx(4, rel=0.02)


def test_a_case_that_takes_longer_than_expected_tells_so_while_it_does(time: Time) -> None:
    """The time left had stood still, for minutes, until the case was done."""
    told: list[Moment] = []
    clock = Clock(10, told.append, [2.0] * 10)
    clock.begin_case("a")
    for _ in range(3):
        time.now += 2
        clock.tell("oracle")
    # On time; then as late as the average case that is believed in as well allows.
    assert [moment.left_s for moment in told] == pytest.approx([18, 1.5 * 18, 2 * 18])


def test_cases_that_were_expected_to_take_no_time_at_all_are_no_trouble(time: Time) -> None:
    """Every backend is refused on them."""
    told: list[Moment] = []
    clock = Clock(2, told.append, [0.0, 0.0])
    for name in "ab":
        clock.begin_case(name)
        clock.tell("oracle")
    assert [moment.left_s for moment in told] == [0, 0]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 1000)), max_size=20))
def test_phases_add_up_to_the_time_elapsed(spent: list[tuple[str, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        time = Time()
        patch.setattr(moment, "time", time)
        clock = Clock(1, None)
        for phase, seconds in spent:
            time.now += seconds
            clock.spend(phase)
    assert sum(clock.phases_s.values()) == sum(seconds for _, seconds in spent)
    for phase in "abc":
        assert clock.phases_s.get(phase, 0) == sum(s for name, s in spent if name == phase)


def test_nobody_listening_is_fine() -> None:
    clock = Clock(1, None)
    clock.begin_case("a")
    clock.tell("check")
    assert clock.elapsed_s >= 0
