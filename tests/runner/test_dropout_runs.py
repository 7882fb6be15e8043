"""Cases with dropout from start to finish: right backends have numbers, wrong ones are told apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_parts import by_backend, run_of

from attnbench.types.record import Record

CASE = "attention/scaled_dot/B2-H4-Lq64-Lk64-D16/none/float32/cpu/forward/dropout0.1"
SEES_NOTHING = "attention/scaled_dot/B1-H1-Lq4-Lk4-D8/padding:0/float32/cpu/forward/dropout0.1"
CHECKED = ("one_mask", "none_dropped", "not_rescaled", "p_a_fifth_larger", "heads_alike")
TIMED = ("none_when_timed", "first_weights_when_timed")
RIGHT = ("right", "generator_of_its_own")


def dropped(*names: str) -> tuple[str, ...]:
    return tuple(f"drop_{name}" for name in names)


@pytest.fixture(scope="module")
def checked(odd_plugins: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Record]:
    out = tmp_path_factory.mktemp("checked")
    stored = run_of(out, (CASE,), dropped(*CHECKED), timed=False, without=("near",))
    return by_backend(stored, CASE)


@pytest.fixture(scope="module")
def timed(odd_plugins: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Record]:
    out = tmp_path_factory.mktemp("timed")
    stored = run_of(out, (CASE,), (*dropped(*RIGHT, *TIMED), "eager", "numpy"), sets=3)
    return by_backend(stored, CASE)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        # With one mask for all calls their mean is off as well, and is told where it is by chance far off.
        ("one_mask", ("different calls do not drop weights independently", "times the oracle's answer")),
        ("none_dropped", ("the variance of one output is ",)),
        ("not_rescaled", ("times the oracle's answer",)),
        ("p_a_fifth_larger", ("the variance of",)),
        ("heads_alike", ("do not drop weights independently",)),
    ],
)
def test_wrong_dropout_is_a_mismatch(checked: dict[str, Record], name: str, said: tuple[str, ...]) -> None:
    record = checked[f"drop_{name}"]
    assert record.status == "mismatch"
    assert any(words in record.reason for words in said), record.reason
    assert record.accuracy is None


def test_the_record_says_that_it_is_dropout_that_failed_and_by_how_much(checked: dict[str, Record]) -> None:
    record = checked["drop_p_a_fifth_larger"]
    assert (record.failed_on, record.failed_check) == (["dropout"], "dropout")
    assert record.dropout is not None
    assert record.dropout.p > record.dropout.p_most > 0.1


@pytest.mark.parametrize("name", [*dropped(*RIGHT), "eager", "numpy"])
def test_right_dropout_has_a_time_and_its_numbers(timed: dict[str, Record], name: str) -> None:
    record = timed[name]
    assert (record.status, record.reason) == ("ok", "")
    assert record.median_ms is not None
    assert record.verified_calls >= 3 * 2
    found = record.dropout
    assert found is not None
    assert found.p_least < found.p < found.p_most
    assert found.p_least < 0.1 < found.p_most
    assert found.calls >= 32
    assert any(note.startswith(f"dropout 0.1: {found.p:.4g} by its spread over") for note in record.notes)


@pytest.mark.parametrize("name", dropped(*TIMED))
def test_who_drops_otherwise_when_timed_has_no_time(timed: dict[str, Record], name: str) -> None:
    record = timed[name]
    assert record.status == "mismatch"
    assert record.reason.startswith("in the output of a timed call"), record.reason
    assert record.median_ms is None


def test_a_case_in_which_nothing_can_be_seen_is_refused(odd_plugins: None, tmp_path: Path) -> None:
    stored = run_of(tmp_path, (SEES_NOTHING,), ("drop_none_dropped", "eager"), timed=False, without=("near",))
    for record in by_backend(stored, SEES_NOTHING).values():
        assert record.status == "unsupported"
        assert record.reason.startswith("the case tells nothing")
