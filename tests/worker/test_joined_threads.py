"""What a call has ended is not held against it, however late a busy machine lets it be gone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, repeat

import pytest

from attnbench.worker import activity
from attnbench.worker.activity import Activity, Past, check_company
from attnbench.worker.outputs import WrongOutput

SECOND = Past(calls=1)
LATER = 200
"""So many looks after the call, at a thousandth of a second each."""


def quiet() -> Activity:
    """Nobody else at work, whatever other tests have left in this process."""
    own, others = activity._used()
    return Activity(frozenset({1}), frozenset(), own, others)


@pytest.mark.parametrize(
    ("started", "words"),
    [
        ({"threads": frozenset({1, 2})}, "the call left a thread running"),
        ({"threads": frozenset({1, 2, 3})}, "the call left 2 threads running"),
        ({"children": frozenset({9})}, "the call left a process running that it started"),
    ],
)
def test_what_is_on_its_way_out_is_waited_for_and_what_stays_is_told(
    monkeypatch: pytest.MonkeyPatch, started: dict[str, frozenset[int]], words: str
) -> None:
    before = quiet()
    seen = replace(before, **started)

    def looks(*found: Iterator[Activity]) -> None:
        monkeypatch.setattr(activity, "read_activity", chain(*found).__next__)

    monkeypatch.setattr(activity, "_LOOK_S", 0.0)
    looks(repeat(seen, LATER), repeat(before))
    check_company(before, SECOND, 1)
    looks(repeat(seen))
    with pytest.raises(WrongOutput, match=f"^{words}$"):
        check_company(before, SECOND, 1)
