"""The case beside a case: who is right at known lengths only is found there; who can't go there goes on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from run_parts import PLAIN, by_backend, declared, run_of

from attnbench.cases.ids import parse_case
from attnbench.inputs.kinds import FAMILIES
from attnbench.plugins.registry import load_registry
from attnbench.types.record import Record

NEAR = re.compile(r"^on a case beside it, (\S+): ")
FAMILIES_BUT_NORMAL = tuple(family.name for family in FAMILIES if family.name != "normal")


@pytest.fixture(scope="module")
def records(odd_plugins: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Record]:
    stored = run_of(
        tmp_path_factory.mktemp("near"),
        (PLAIN,),
        ("eager", "halves_elsewhere", "raises_elsewhere", "refuses_elsewhere"),
        timed=False,
        without=(),
    )
    assert stored.finished is not None
    assert stored.finished.phases_s["near"] > 0
    return by_backend(stored)


def test_who_is_right_at_known_lengths_only_is_wrong(records: dict[str, Record]) -> None:
    record = records["halves_elsewhere"]
    assert record.status == "mismatch"
    found = NEAR.match(record.reason)
    assert found
    near, case = parse_case(found[1]), parse_case(PLAIN)
    assert (near.rule, near.operation, near.D, near.mask) == (case.rule, case.operation, case.D, case.mask)
    assert (near.Lq, near.Lk) != (case.Lq, case.Lk)
    assert "RMS error" in record.reason
    assert "near:normal" in record.failed_on
    assert all(family.startswith("near:") for family in record.failed_on)
    assert (record.failed_check, record.failed_case) == ("values", found[1])
    # Numbers of another case would be taken for those of this one.
    assert record.accuracy is None


def test_who_fails_there_is_told_with_its_own_status(records: dict[str, Record]) -> None:
    record = records["raises_elsewhere"]
    assert record.status == "error"
    assert NEAR.match(record.reason)
    assert record.reason.endswith("preparation raised ValueError: not written for this")
    assert record.failed_on == []


@pytest.mark.parametrize("backend", ["eager", "refuses_elsewhere"])
def test_who_is_right_there_or_says_that_it_can_not_goes_on(records: dict[str, Record], backend: str) -> None:
    assert (records[backend].status, records[backend].reason) == ("ok", "")
    assert (records[backend].failed_on, records[backend].failed_check) == ([], "")


def test_what_compiles_is_not_asked(odd_plugins: None, tmp_path: Path) -> None:
    registry = declared(load_registry(), "halves_elsewhere", compiles=True)
    stored = run_of(
        tmp_path, (PLAIN,), ("halves_elsewhere",), registry=registry, named=("halves_elsewhere",),
        timed=False, without=FAMILIES_BUT_NORMAL,
    )  # fmt: skip
    assert by_backend(stored)["halves_elsewhere"].status == "ok"


def test_left_out_it_finds_nobody(odd_plugins: None, tmp_path: Path) -> None:
    stored = run_of(tmp_path, (PLAIN,), ("halves_elsewhere",), timed=False)
    assert by_backend(stored)["halves_elsewhere"].status == "ok"
    assert stored.finished is not None
    assert "near" not in stored.finished.phases_s


@pytest.mark.slow
def test_its_inputs_are_others_in_every_run(odd_plugins: None, tmp_path: Path) -> None:
    """Nobody can know the near case before."""
    reasons = {
        by_backend(run_of(tmp_path / word, (PLAIN,), ("halves_elsewhere",), timed=False, without=()))[
            "halves_elsewhere"
        ].reason
        for word in ("one", "two")
    }
    assert len(reasons) == 2
