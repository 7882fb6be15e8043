"""Shards: every case is in one, and what else is selected moves none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.cases.ids import case_id, parse_case
from attnbench.cases.select import Selection, cut, shard_number, shard_words
from attnbench.types.case import Case
from attnbench.types.errors import BadInput

CASES = tuple(parse_case(f"attention/dot/H1-L{length}-D8") for length in range(1, 41))


def shards(selection: Selection, of: int) -> list[Selection]:
    return [cut(selection, f"{number}/{of}") for number in range(1, of + 1)]


@given(kept=st.sets(st.sampled_from(range(40)), min_size=1), of=st.integers(1, 50))
def test_each_case_is_in_one_shard_whatever_else_is_selected(kept: set[int], of: int) -> None:
    some = Selection(tuple(CASES[place] for place in sorted(kept)))
    of_all = [set(one.cases) for one in shards(Selection(CASES), of)]
    of_some = [set(one.cases) for one in shards(some, of)]
    assert sum(map(len, of_all)) == len(CASES)
    assert set.union(*of_all) == set(CASES)
    assert of_some == [one & set(some.cases) for one in of_all]


def test_the_shard_of_an_id_never_changes() -> None:
    """Machines with other versions of Python and attnbench must agree, and so must later runs."""
    names = [case_id(case) for case in CASES[:6]]
    assert [shard_number(name, 4) for name in names] == [3, 4, 4, 4, 3, 3]


def test_a_shard_keeps_the_order_the_counts_and_the_compiled_cases_of_its_cases() -> None:
    counts: dict[Case, float] = {case: float(place) for place, case in enumerate(CASES)}
    whole = Selection(CASES, frozenset(CASES[:20]), counts)
    for number, part in enumerate(shards(whole, 3), 1):
        assert part.cases == tuple(case for case in CASES if case in part.cases)
        assert part.counts == {case: counts[case] for case in part.cases}
        assert part.compiled_on == set(CASES[:20]) & set(part.cases)
        assert (str(part.shard), part.shard.cases) == (f"{number}/3", [case_id(case) for case in CASES])
        assert "the total of a step needs all of them" in shard_words(part)


def test_a_shard_may_be_empty_and_says_so() -> None:
    words = {shard_words(part) for part in shards(Selection(CASES[:1]), 2)}
    full = shard_number(case_id(CASES[0]), 2)
    assert words == {
        f"shard {full}/2: 1 of 1 case",
        f"shard {3 - full}/2: 0 of 1 case; nothing to run, and no file is written",
    }
    assert shard_words(Selection(CASES)) == ""


@pytest.mark.parametrize("text", ["", "3", "0/4", "5/4", "1/0", "-1/4", "1/4/2", "1.0/4", " 1/4", "١/٤"])
def test_what_is_not_a_shard_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"^shard .*: give K/N with K from 1 to N; 3/16 "):
        cut(Selection(CASES), text)
