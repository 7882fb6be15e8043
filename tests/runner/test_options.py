"""The dials: what is impossible is refused in words, and all of them are in the manifest."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.api import make_options
from attnbench.inputs.kinds import FAMILIES
from attnbench.runner.options import CHECKS, Options, options_of
from attnbench.types.errors import BadInput

NOTHING = "stretches, timed draws, seconds of a turn and operations of the oracle are above 0"
SWITCHES = (
    "timed", "pinned", "put_first", "shuffled", "balanced", "lockstep", "allocator_pinned", "verified",
)  # fmt: skip


@pytest.mark.parametrize(
    ("dials", "sentence"),
    [
        ({"budget_s": 0}, "a budget of 0 s: give a positive number of seconds"),
        ({"budget_s": -1.5}, "a budget of -1.5 s: give a positive number of seconds"),
        ({"budget_s": math.inf}, "a budget of inf s: give a positive number of seconds"),
        ({"budget_s": math.nan}, "a budget of nan s: give a positive number of seconds"),
        ({"sets": 0}, "0 sets: at least 1 is needed, and 9 for a verdict"),
        ({"timeout_s": 0}, "a timeout of 0 s: give a positive number of seconds, 1000000 at most"),
        ({"timeout_s": math.nan}, "a timeout of nan s: give a positive number of seconds, 1000000 at most"),
        ({"timeout_s": 1e300}, "a timeout of 1e+300 s: give a positive number of seconds, 1000000 at most"),
        ({"launches": 0}, "0 launches: at least 1 is needed"),
        (
            {"memory_limit_bytes": 0},
            "a memory limit of 0 bytes: a worker needs 67108864 (0.0625 GiB) at least",
        ),
        ({"budget_s": 1e300}, "a budget of 1e+300 s: 1000000 at most"),
        ({"sets": 10**9}, "1000000000 sets: 10000 at most"),
        ({"delta": 0}, "a delta of 0: give a fraction between 0 and 1, as 0.02 for 2 %"),
        ({"delta": 2}, "a delta of 2: give a fraction between 0 and 1, as 0.02 for 2 %"),
        ({"delta": math.nan}, "a delta of nan: give a fraction between 0 and 1, as 0.02 for 2 %"),
        ({"warm_s": -0.1}, "-0.1 s of warm calls: give 0 or more"),
        ({"warm_s": math.nan}, "nan s of warm calls: give 0 or more"),
        ({"stretches": 0}, NOTHING),
        ({"timed_draws": 0}, NOTHING),
        ({"turn_s": 0}, NOTHING),
        ({"turn_s": math.nan}, NOTHING),
        ({"oracle_flops": -1}, NOTHING),
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
        sets=st.integers(1, 99),
        stretches=st.integers(1, 9),
        delta=st.floats(1e-4, 0.9),
        turn_s=st.floats(1e-6, 10),
        warm_s=st.floats(0, 1),
        baseline=st.text(max_size=9),
        timeout_s=st.floats(1e-3, 1e5),
        memory_limit_bytes=st.none() | st.integers(2**26, 2**50),
        without=st.sets(st.sampled_from(CHECKS)).map(tuple),
        **{name: st.booleans() for name in SWITCHES},
    )
)
def test_what_the_manifest_states_gives_the_same_options_again(options: Options) -> None:
    """A run is resumed by what its file says, after a trip through JSON."""
    told = json.loads(json.dumps(options.protocol()))
    assert set(told) == {field.name for field in fields(Options)}
    assert options_of(told) == options
    assert Options(**told | {"without": tuple(told["without"])}) == options


def test_every_part_of_the_protocol_is_on_unless_it_is_switched_off() -> None:
    assert all(getattr(Options(), name) is True for name in SWITCHES)
    assert {field.name for field in fields(Options) if field.type == "bool"} == set(SWITCHES)


def test_checks_are_left_out_by_their_names_alone() -> None:
    assert {"strided", "graded", "weights"} <= set(CHECKS)
    assert {family.name for family in FAMILIES} - {"normal"} <= set(CHECKS)
    assert Options(without=CHECKS).without == CHECKS
    with pytest.raises(
        BadInput, match=r"^no check 'stride' to leave out; there are near, .*strided, graded$"
    ):
        Options(without=("strided", "stride"))


def test_what_is_not_said_is_the_default() -> None:
    assert make_options() == Options()
    assert make_options(sets=2, timed=False) == Options(sets=2, timed=False)


@pytest.mark.parametrize("dial", ["budget", "sets", "timeout", "memory_limit"])
def test_zero_is_said_and_not_left_out(dial: str) -> None:
    with pytest.raises(BadInput, match=r"\b0\b"):
        make_options(**{dial: 0})
