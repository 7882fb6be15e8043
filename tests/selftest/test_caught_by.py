"""From a record to what refused it: families, or the kind of check, by how the reason begins."""

from __future__ import annotations

import pytest

from attnbench.selftest.caught_by import caught_by
from attnbench.types.record import Record, Status

CASE = "attention/dot/H1-L8-D4"
NEARBY = "on a case beside it, attention/dot/H1-L9-D4/seed7: "


def record(status: Status, reason: str = "", on: tuple[str, ...] = ()) -> Record:
    return Record(CASE, "dot", "wrong_one", status, reason, failed_on=list(on))


def test_families_are_told_as_they_are_with_where_they_were() -> None:
    assert caught_by(record("mismatch", "RMS error 1", ("normal", "loud"))) == ("normal", "loud")
    assert caught_by(record("mismatch", NEARBY + "RMS error 1", ("near:quiet",))) == ("near:quiet",)


def test_gradients_are_not_taken_for_outputs() -> None:
    assert caught_by(record("mismatch", "the gradient of q: RMS error 1", ("normal",))) == ("gradients",)
    found = caught_by(record("mismatch", NEARBY + "the gradient of w: RMS error", ("near:normal",)))
    assert found == ("near:gradients",)


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("in the output of a timed call, call 4 of a sample: RMS error 1", "timed calls"),
        ("the call changed its second input", "inputs"),
        ("the call wrote to its first input, and put the values back", "inputs"),
        ("the call wrote outside its third input", "guards"),
        ("the output shares memory with the first input", "output"),
        ("the output is a list, not a torch.Tensor", "output"),
        ("the output has shape (1, 2); (2, 1) is asked for", "output"),
        ("several elements of the output share one place in memory: strides (0,)", "output"),
        ("the call replaced time.perf_counter_ns", "clocks and comparisons"),
        ("the call left a thread running", "threads and children"),
        ("the call computes on other threads: 3 ms", "threads and children"),
        ("it worked on after the call before: 9 ms", "threads and children"),
        ("the call changed the default dtype from torch.float32 to torch.float64", "global state"),
        ("the call drew from NumPy's random numbers", "global state"),
        ("element (b=0, h=0, i=1, d=2) and 3 more are not finite: got nan, expected 0.5", "not finite"),
        ("something that nobody has thought of", "mismatch"),
    ],
)
def test_the_rest_is_told_by_its_kind(reason: str, word: str) -> None:
    assert caught_by(record("mismatch", reason)) == (word,)
    assert caught_by(record("mismatch", NEARBY + reason)) == (f"near:{word}",)


def test_what_is_no_verdict_stands_for_itself_and_right_ones_are_caught_by_nothing() -> None:
    assert caught_by(record("crashed", "the call changed its first input")) == ("crashed",)
    assert caught_by(record("error", NEARBY + "the call raised ValueError")) == ("error",)
    assert caught_by(record("ok")) == ()
