"""Who reads which copy of a pool that workers share."""

from __future__ import annotations

from attnbench import Backend
from attnbench.cases.ids import parse_case
from attnbench.cases.work import pools_of
from attnbench.runner.input_pools import InputPools
from attnbench.types.record import CandidatePlan

CASE = parse_case("attention/dot/H2-L8-D4/rotating")
PLAN = CandidatePlan(
    calls=3, samples=2, warm_calls=2, repetitions=9, accuracy=None, prepare_ms=0.0, first_call_ms=0.0,
    warmup_ms=[], fresh=True, anew=True,
)  # fmt: skip


def backend(name: str, **declared: object) -> Backend:
    return Backend(name=name, summary=name, prepare=lambda setup: setup, **declared)  # type: ignore[arg-type]


BACKENDS = {
    "one": backend("one"),
    "two": backend("two"),
    "other_layout": backend("other_layout", layout="BLHD"),
    "converting": backend("converting", converts=("k",)),
}


def test_slots_of_one_layout_get_one_stretch_after_the_other_and_go_on_in_the_next_segment() -> None:
    """So a copy comes again only after all others, whichever backend reads them."""
    pools = InputPools(CASE, {"BHLD": 10, "BLHD": 11})
    assert {name: pools.file(one) for name, one in BACKENDS.items()} == {
        "one": 10, "two": 10, "other_layout": 11, "converting": None,
    }  # fmt: skip
    assert pools_of(CASE, BACKENDS.values()) == 3
    begin = pools.deal_warm_up()
    plans = dict.fromkeys(BACKENDS, PLAN)
    order = ["two", "one", "other_layout", "converting", "one", "two"]
    first = pools.deal(order, BACKENDS, plans)
    assert "converting" not in first, "its pool is its own"
    (two, after_both), (one, again) = first["two"], first["one"]
    assert [one - two, again - one, after_both - again] == [5, 5, 5]
    assert two > begin, "behind the copies that warm-ups read"
    assert first["other_layout"] == [two]
    following = pools.deal(["one"], BACKENDS, plans)
    assert following["one"] == [after_both + 5]
    assert pools.deal_warm_up() == after_both + 10
