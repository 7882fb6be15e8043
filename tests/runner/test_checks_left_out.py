"""What a check has besides ordinary inputs can be left out, and then finds nobody."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_parts import LESS_CHECKED, PLAIN, by_backend, run_of

from attnbench.inputs.kinds import FAMILIES
from attnbench.runner.options import CHECKS, Options
from attnbench.types.errors import BadInput

ONE_KEY = PLAIN.replace("Lk16", "Lk1")
TELLS_NOTHING = (
    "the case tells nothing: its check is passed by who computes no attention but gives first value"
)


def test_all_families_can_be_left_out_but_ordinary_numbers() -> None:
    families = {family.name for family in FAMILIES} - {"normal"}
    assert set(CHECKS) == families | {"near", "guards", "canaries", "weights", "renewal"}
    assert len(set(CHECKS)) == len(CHECKS)
    assert set(LESS_CHECKED) == families | {"near", "weights"}
    assert Options(without=CHECKS).without == CHECKS
    with pytest.raises(BadInput, match=r"no check 'normal' to leave out; there are near, "):
        Options(without=("near", "normal"))


def test_a_case_that_tells_nothing_is_refused_and_the_next_goes_on(tmp_path: Path) -> None:
    stored = run_of(tmp_path, (ONE_KEY, PLAIN), ("eager", "bmm"), sets=1)
    for record in by_backend(stored, ONE_KEY).values():
        assert (record.status, record.reason) == ("unsupported", TELLS_NOTHING)
    assert {record.status for record in by_backend(stored).values()} <= {"ok", "suspect"}
    assert [line.case for line in stored.cases] == [PLAIN]


def test_without_canaries_it_is_measured(tmp_path: Path) -> None:
    stored = run_of(tmp_path, (ONE_KEY,), ("eager",), timed=False, without=(*LESS_CHECKED, "canaries"))
    assert by_backend(stored, ONE_KEY)["eager"].status == "ok"


def test_what_is_read_beside_the_inputs_shows_between_guards(odd_plugins: None, tmp_path: Path) -> None:
    stored = run_of(tmp_path, (PLAIN,), ("reads_before",), timed=False, without=LESS_CHECKED)
    record = by_backend(stored)["reads_before"]
    assert record.status == "mismatch"
    assert "not finite" in record.reason
