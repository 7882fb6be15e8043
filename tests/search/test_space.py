"""The space of what a backend declares, and how its properties meet."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from random import Random

import pytest

from attnbench import Backend, Case, Rule
from attnbench.cases.select import Overrides
from attnbench.plugins.registry import load_wanted
from attnbench.search.covering import Covering
from attnbench.search.space import Space, can_meet, space_of
from attnbench.testing.judge import rules_in


def takes_causal(case: Case, rule: Rule) -> str | None:
    return None if case.mask.window is None and case.mask.explicit is None else "causal or padding"


MINE = Backend(
    name="mine", summary="a test", prepare=lambda setup: lambda q, k, v: v, rules=("scaled_dot",),
    dtypes=("float32", "float16"), passes=("forward", "both"), supports=takes_causal,
)  # fmt: skip


@pytest.fixture(scope="module")
def space() -> Space:
    return space_of(MINE, {"scaled_dot": rules_in(load_wanted())["scaled_dot"]})


def ended(covering: Covering, most: int) -> int:
    """Draw and count points until no pair is left; return how many."""
    for number in range(most):
        if not covering.waiting:
            return number
        drawn = covering.draw()
        assert drawn is not None
        covering.count(drawn.row)
    raise AssertionError(f"{len(covering.waiting)} pairs left after {most} points")


@pytest.mark.slow
def test_all_pairs_that_the_backend_takes_meet_in_few_hundred_points(space: Space) -> None:
    covering = Covering(space, Random(1))
    assert ended(covering, 600) > 20
    assert covering.met
    assert len(covering.met) == covering.possible
    met = covering.met
    for one, other in combinations(space.properties, 2):
        for a in space.properties[one]:
            for b in space.properties[other]:
                pair = frozenset({(one, a), (other, b)})
                taken = not {one, other} & {"window", "explicit"} or not (
                    (one in ("window", "explicit") and a) or (other in ("window", "explicit") and b)
                )
                if can_meet(one, a, other, b) and taken and pair not in met:
                    assert pair in covering.never_made, pair
    # Nothing that supports() declines was asked.
    assert not any(("window", word) in pair for pair in met for word in space.properties["window"] if word)


def test_points_lie_within_the_declarations(space: Space) -> None:
    covering = Covering(space, Random(2))
    for _ in range(200):
        drawn = covering.draw()
        assert drawn is not None
        case = drawn.point.case
        assert takes_causal(case, space.rules["scaled_dot"]) is None
        assert case.dtype in MINE.dtypes
        assert case.pass_ in MINE.passes
        assert not (drawn.point.way.upstream and case.pass_ == "forward")


def test_the_same_seed_asks_the_same_points(space: Space) -> None:
    def asked(seed: int) -> list[str]:
        covering = Covering(space, Random(seed))
        drawn = [covering.draw() for _ in range(20)]
        return [str(one.point) for one in drawn if one is not None]

    assert asked(7) == asked(7) != asked(8)


def test_a_backend_that_needs_contiguous_inputs_gets_them() -> None:
    narrow = replace(MINE, needs_contiguous=True)
    found = space_of(narrow, {"scaled_dot": rules_in(load_wanted())["scaled_dot"]})
    assert {found.properties[name] for name in ("q", "k", "v", "upstream")} == {("",)}


@pytest.mark.slow
def test_autocast_and_two_threads_are_asked_of_those_that_declare_them() -> None:
    rules = {"scaled_dot": rules_in(load_wanted())["scaled_dot"]}
    plain = space_of(MINE, rules)
    assert plain.properties["autocast"] == plain.properties["at_once"] == ("",)
    declared = replace(MINE, dtypes=("float32",), autocast=("bfloat16",), concurrent=True)
    covering = Covering(space_of(declared, rules), Random(5))
    points = [drawn.point for drawn in (covering.draw() for _ in range(150)) if drawn is not None]
    assert {point.case.dtype for point in points if point.way.autocast} == {"bfloat16"}
    assert {point.case.dtype for point in points if not point.way.autocast} == {"float32"}
    assert {point.way.at_once for point in points} == {"", "two_threads"}


def test_options_narrow_the_space() -> None:
    from attnbench.types.mask import Mask

    options = Overrides(
        dtypes=("float16",), masks=(Mask(causal="upper_left"),), passes=("forward",), threads=1
    )
    found = space_of(MINE, {"scaled_dot": rules_in(load_wanted())["scaled_dot"]}, options)
    covering = Covering(found, Random(3))
    for _ in range(30):
        drawn = covering.draw()
        assert drawn is not None
        case = drawn.point.case
        assert (case.dtype, case.mask, case.pass_, case.threads) == (
            "float16", Mask(causal="upper_left"), "forward", 1,
        )  # fmt: skip
