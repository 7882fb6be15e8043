"""The dials: what is impossible is refused in words, and all of them are in the manifest."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.runner.options import CHECK_PARTS, Options, keyword_options, make_options, options_of
from attnbench.stats.protocol import PROTOCOL
from attnbench.types.errors import BadFile, BadInput


@pytest.mark.parametrize(
    ("dials", "sentence"),
    [
        ({"budget_s": math.nan}, "a budget of nan s: give a positive number of seconds, 1000000 at most"),
        ({"delta": 0}, "a delta of 0: give a fraction between 0 and 1, as 0.02 for 2 %"),
        ({"delta": math.nan}, "a delta of nan: give a fraction between 0 and 1, as 0.02 for 2 %"),
        ({"budget_s": "1"}, "a budget of '1': give a number of seconds"),
        ({"note": 5}, "a note of 5: give a text"),
        ({"delta": "2%"}, "a delta of '2%': give a fraction between 0 and 1, as 0.02 for 2 %"),
    ],
)
def test_impossible_dials_are_refused(dials: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput) as caught:
        Options(**dials)
    assert str(caught.value) == sentence
    assert caught.value.exit_code == 2


@given(
    st.builds(
        Options,
        budget_s=st.floats(1e-6, 1e6),
        repetitions=st.integers(1, 99),
        delta=st.floats(1e-4, 0.9),
        baseline=st.text(max_size=9),
        timeout_s=st.floats(1e-3, 1e5),
        memory_limit_bytes=st.none() | st.integers(2**26, 2**50),
        without=st.sets(st.sampled_from(CHECK_PARTS)).map(tuple),
        timed=st.booleans(),
        allocator_pinned=st.booleans(),
        note=st.text(max_size=9),
    )
)
def test_what_the_manifest_states_gives_the_same_options_again(options: Options) -> None:
    """A run is resumed by what its file says, after a trip through JSON."""
    told = json.loads(json.dumps(options.protocol()))
    unstated = set() if options.note else {"note"}
    assert set(told) == {field.name for field in fields(Options)} - unstated | set(PROTOCOL)
    assert options_of(told) == options


def test_a_run_of_another_protocol_is_refused_by_a_sentence() -> None:
    told = Options().protocol() | {"segments": 3, "lockstep": False}
    with pytest.raises(BadFile) as caught:
        options_of(told)
    assert str(caught.value) == (
        "the run follows another protocol (segments 3, lockstep False), so this attnbench cannot go on with "
        "it: begin anew"
    )


def test_what_is_not_said_is_the_default() -> None:
    assert make_options() == Options()
    assert make_options(repetitions=2, timed=False) == Options(repetitions=2, timed=False)
    assert make_options(budget_s=None, delta=0.05) == Options(delta=0.05)
    assert make_options(budget_s=1).repetitions == 22, "as many repetitions as suit the budget"
    assert make_options(budget_s=1, repetitions=2).repetitions == 2


def test_each_option_is_a_keyword_of_run() -> None:
    chosen = {
        "budget": 1,
        "repetitions": 5,
        "baseline": "bmm",
        "delta": 0.1,
        "timeout": 9,
        "memory_limit": 2**27,
    }
    assert keyword_options(chosen | {"allocator_pinned": False, "timed": False}) == Options(
        budget_s=1, repetitions=5, baseline="bmm", delta=0.1, timeout_s=9, memory_limit_bytes=2**27,
        allocator_pinned=False, timed=False,
    )  # fmt: skip
    with pytest.raises(BadInput, match=r"^no option 'without'; there are "):
        keyword_options({"without": ("variant_case",)})


@pytest.mark.parametrize("dial", ["budget_s", "repetitions", "timeout_s", "memory_limit_bytes"])
def test_zero_is_said_and_not_left_out(dial: str) -> None:
    with pytest.raises(BadInput, match=r"\b0\b"):
        make_options(**{dial: 0})
