"""A worker's clock is doubted where those around it tell otherwise; honest ones are not, beside liars too."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_parts import PLAIN, by_backend, run_of, six_turns

from attnbench.results.format import StoredRun
from attnbench.stats.summary import clock_problem

HONEST = ("eager", "honest1", "honest2")


# Turns of 2 ms: against those it takes no time to hand on a baton.


def suspected(stored: StoredRun) -> dict[str, str]:
    """Who has a clock that is doubted, by the words for it. Other reasons to be suspect are not meant."""
    records = by_backend(stored)
    plans = stored.cases[0].contenders
    return {
        name: records[name].reason
        for name in records
        if clock_problem(stored.sets, name, warm_calls=plans[name].warm_calls)
    }


@pytest.fixture(scope="module")
def among_others(odd_plugins: None, tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    """A backend whose clock is slow, among honest ones."""
    names = (*HONEST, "slow_the_clock")
    return run_of(tmp_path_factory.mktemp("clocks"), (PLAIN,), names, **six_turns(4))


@pytest.mark.parametrize("name", ["slow_the_clock"])
def test_one_of_several_with_a_slow_clock_is_suspect(among_others: StoredRun, name: str) -> None:
    """The clock of its samples alone, or that of its turns too, by which they seem to be over at once."""
    record = by_backend(among_others)[name]
    assert record.status == "suspect", record.reason
    assert "by its own clock" in record.reason
    assert record.median_ms is not None, "its samples are kept"
    assert record.best != name, "and rank nowhere"


def test_honest_clocks_beside_liars_are_believed(among_others: StoredRun) -> None:
    assert set(suspected(among_others)) == {"slow_the_clock"}
    for name in HONEST:
        assert by_backend(among_others)[name].status == "ok", by_backend(among_others)[name].reason


@pytest.mark.parametrize("name", ["slow_the_clock"])
def test_alone_with_a_slow_clock_it_is_suspect(odd_plugins: None, tmp_path: Path, name: str) -> None:
    stored = run_of(tmp_path, (PLAIN,), (name,), **six_turns(3))
    (record,) = stored.records
    assert record.status == "suspect", record.reason
    assert set(suspected(stored)) == {name}


def test_alone_with_an_honest_clock_it_is_not(odd_plugins: None, tmp_path: Path) -> None:
    stored = run_of(tmp_path, (PLAIN,), ("honest1",), **six_turns(3))
    assert stored.records[0].status == "ok", stored.records[0].reason
    assert suspected(stored) == {}


@pytest.mark.parametrize("name", ["clock_hundredth", "clock_double"])
def test_times_that_can_not_be_are_an_error_and_cast_no_doubt_on_others(
    odd_plugins: None, tmp_path: Path, name: str
) -> None:
    """Slots before the segment, or after it."""
    stored = run_of(tmp_path, (PLAIN,), ("eager", name, "honest1"), **six_turns(3))
    records = by_backend(stored)
    assert records[name].status == "error"
    assert records[name].reason.startswith("by the worker's clock")
    assert suspected(stored) == {}
    for honest in ("eager", "honest1"):
        assert records[honest].status == "ok", records[honest].reason
        assert records[honest].verified_calls >= 2 * 3
