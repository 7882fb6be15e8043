from __future__ import annotations

import itertools

import pytest
from report_records import failed, ok

from attnbench.reports.run import exit_code
from attnbench.types.status import STATUSES

EXPECTED = {
    "ok": 0, "mismatch": 1, "suspect": 0, "unsupported": 0, "unavailable": 0, "out_of_memory": 3,
    "timeout": 3, "crashed": 3, "error": 3,
}  # fmt: skip
NAMED = EXPECTED | {"suspect": 3, "unsupported": 3, "unavailable": 3}


def test_every_status_has_an_expectation() -> None:
    assert set(EXPECTED) == set(STATUSES)


@pytest.mark.parametrize("status", STATUSES)
def test_one_record_among_good_ones_decides(status: str) -> None:
    for records in itertools.permutations([ok("eager", 1.0), failed("mine", status, "why"), ok("bmm", 2.0)]):
        assert exit_code(records) == EXPECTED[status]
        assert exit_code(records, {"eager", "bmm"}) == EXPECTED[status]
        assert exit_code(records, {"mine"}) == NAMED[status]


def test_a_wrong_output_outranks_what_could_not_be_measured() -> None:
    records = [failed("a", "crashed", ""), failed("b", "mismatch", ""), failed("c", "timeout", "")]
    assert {exit_code(some) for some in itertools.permutations(records)} == {1}


def test_nothing_is_fine() -> None:
    assert exit_code([]) == 0


def test_a_named_backend_may_be_unsupported_on_some_cases_but_not_on_all() -> None:
    assert exit_code([ok("mine", 1.0), failed("mine", "unsupported", "")], {"mine"}) == 0
    assert exit_code([failed("mine", "unsupported", ""), failed("mine", "unavailable", "")], {"mine"}) == 3
