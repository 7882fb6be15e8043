"""Which calls are kept: any as likely as any other, and what is kept stays as it was."""

from __future__ import annotations

from itertools import islice
from math import sqrt
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnbench.pytest_plugin.prepared import Prepared
from attnbench.pytest_plugin.watched import KEPT, Watched, copied, schedule, watched


def kept_of(calls: int, size: int) -> list[int]:
    """The numbers of the calls that are kept in the end of so many."""
    slots: dict[int, int] = {}
    number = 0
    for gap, slot in schedule(size, calls):
        number += gap
        if number <= calls:
            slots[slot] = number
    return sorted(slots.values())


@given(st.integers(1, 500), st.integers(1, 6))
def test_as_many_are_kept_as_there_is_room_for_each_once(calls: int, size: int) -> None:
    kept = kept_of(calls, size)
    assert len(set(kept)) == len(kept) == min(calls, size)
    assert kept[0] >= 1
    assert kept[-1] <= calls


def test_every_call_is_as_likely_to_be_kept_as_any_other() -> None:
    calls, size, times = 30, 3, 3000
    counts = [0] * calls
    for _ in range(times):
        for number in kept_of(calls, size):
            counts[number - 1] += 1
    share = size / calls
    sigma = sqrt(times * share * (1 - share))
    # Beyond five sigma in one of thirty: once in 60,000 runs of this test.
    assert all(abs(count - times * share) < 5 * sigma for count in counts), counts


def test_a_schedule_is_short_and_reaches_far() -> None:
    gaps = [gap for gap, _ in schedule(KEPT, 10**12)]
    assert sum(gaps) >= 10**12
    assert len(gaps) < 1000
    assert all(gap >= 1 for gap in gaps)


def counting() -> tuple[Watched, tuple[torch.Tensor, ...]]:
    """A kernel whose answers count its calls."""
    inputs = tuple(torch.zeros(2) for _ in range(3))
    made = 0

    def kernel(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        nonlocal made
        made += 1
        return torch.full((2,), float(made))

    return watched(kernel, inputs), inputs  # type: ignore[arg-type]


@given(st.integers(1, 60))
def test_what_is_kept_is_the_answer_of_that_call(calls: int) -> None:
    seen, _ = counting()
    for number in range(1, calls + 1):
        seen.call().mul_(-1)
        assert seen.last().number == number
    kept = seen.watch.kept()
    assert len(kept) == min(calls, KEPT)
    # What the caller did to the output afterwards isn't among it.
    assert all(bool((each.output == each.number).all()) for each in kept)
    assert all(each.ours for each in kept)


def test_with_no_call_there_is_nothing() -> None:
    seen, _ = counting()
    assert seen.last() == (0, None, True)
    assert seen.watch.kept() == []


def test_inputs_of_its_own_may_be_given_and_others_are_noticed() -> None:
    seen, inputs = counting()
    seen.call(*inputs)
    seen.call(inputs[0], inputs[1], torch.ones(2))
    assert [each.ours for each in seen.watch.kept()] == [True, False]


def test_within_a_round_nothing_is_copied_and_all_of_it_after() -> None:
    seen, _ = counting()
    seen.watch.in_round = True
    outputs = [seen.call() for _ in range(KEPT)]
    assert [each.output for each in seen.watch.kept()] == outputs
    seen.watch.end_round(seen.last(), called=True, shown=True)
    for output in outputs:
        output.zero_()
    assert [float(each.output[0]) for each in seen.watch.kept()] == [1, 2, 3, 4]
    assert not seen.watch.in_round


def test_the_last_of_the_last_round_is_kept_whether_drawn_or_not() -> None:
    seen, _ = counting()
    for _ in range(20):
        seen.watch.in_round = True
        for _ in range(50):
            seen.call()
        seen.watch.end_round(seen.last(), called=True, shown=False)
    assert seen.watch.kept()[-1].number == 1000
    seen.watch.end_round(seen.last(), called=False, shown=False)
    assert seen.watch.kept()[-1].number == 1000


@pytest.mark.parametrize("before", [0, 1000])
def test_the_last_of_a_round_may_have_been_on_other_inputs(before: int) -> None:
    seen, inputs = counting()
    for _ in range(before):
        seen.call()
    seen.watch.in_round = True
    seen.call(*inputs[:2], torch.ones(2))
    seen.watch.end_round(seen.last(), called=True, shown=True)
    assert [(each.number, each.ours) for each in seen.watch.kept()][-1] == (before + 1, False)
    seen.call()
    seen.watch.end_round(seen.last(), called=True, shown=True)
    assert seen.watch.kept()[-1].ours


def test_place_is_that_of_the_call() -> None:
    seen, _ = counting()
    seen.call()
    seen.watch.place = 3
    seen.call()
    assert [each.place for each in islice(seen.watch.kept(), 2)] == [0, 3]


def renewable(output_bytes: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Prepared, list[str]]:
    """Four values that inputs may have, and which were written; calls are counted and not made."""
    written: list[str] = []
    held: Any = SimpleNamespace(write=written.append, output_bytes=output_bytes)
    stored: Any = ("a", "b", "c", "d")
    monkeypatch.setattr(Prepared, "call_once", lambda made: made.outside.append(None))
    return Prepared(held, Any, (Any,) * 4, stored, counting()[0]), written  # type: ignore[arg-type]


def test_inputs_never_get_the_values_that_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    made, written = renewable(1, monkeypatch)
    for _ in range(100):
        before = made.watched.watch.place
        made.renew_now()
        assert made.watched.watch.place != before
        assert written[-1] == made.stored[made.watched.watch.place]
    assert set(written) == set(made.stored)


@pytest.mark.parametrize(("output_bytes", "renewals"), [(1, 16), (40 * 2**20, 2), (2**40, 1)])
def test_outputs_of_renewals_take_little_memory(
    monkeypatch: pytest.MonkeyPatch, output_bytes: int, renewals: int
) -> None:
    made, written = renewable(output_bytes, monkeypatch)
    for _ in range(100):
        made.renew()
    assert len(written) == len(made.outside) == renewals


def test_copies_go_into_tuples_and_leave_alone_what_is_no_tensor() -> None:
    tensor = torch.ones(2)
    whole: Any = copied((tensor, None, 5))
    assert whole[0] is not tensor
    assert torch.equal(whole[0], tensor)
    assert whole[1:] == (None, 5)
