"""Verdicts, reasons and warnings for cells without two times."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_sides import SHORT, beside, cell, side

from attnbench.compare.gate import Gate, hold
from attnbench.compare.stored import compare_sides
from attnbench.types.compared import Cell, Compared
from attnbench.types.status import STATUSES, Status


def said(base: Cell | None, new: Cell | None) -> tuple[str, str]:
    cells = [side(*([] if one is None else [one]), *beside()) for one in (base, new)]
    compared = compare_sides([cells[0]], [cells[1]])
    (found,) = (one for one in compared.cells if one.backend == "mine")
    return found.verdict, found.reason


def failed(status: Status) -> Cell:
    return replace(cell(status=status), reason="as said")


@pytest.mark.parametrize(
    ("base", "new", "verdict", "reason"),
    [
        (cell(), failed("mismatch"), "mismatch", "as said"),
        (failed("mismatch"), failed("mismatch"), "mismatch", "as said"),
        (None, failed("mismatch"), "mismatch", "as said"),
        (cell(), failed("crashed"), "missing", "crashed in new (as said)"),
        (cell(), failed("out_of_memory"), "missing", "out of memory in new (as said)"),
        (cell(), None, "missing", "not in new"),
        (failed("suspect"), failed("error"), "missing", "error in new (as said)"),
        (failed("suspect"), None, "missing", "not in new"),
        (failed("suspect"), failed("suspect"), "none", "suspect in both (as said)"),
        (None, cell(), "none", "not in base"),
        (failed("crashed"), cell(), "none", "crashed in base (as said)"),
        (failed("mismatch"), cell(), "none", "mismatch in base (as said)"),
        (failed("unsupported"), failed("unsupported"), "none", "unsupported in both (as said)"),
        (failed("crashed"), failed("timeout"), "none", "crashed in base (as said); timeout in new (as said)"),
        (None, failed("crashed"), "none", "not in base; crashed in new (as said)"),
        (failed("crashed"), None, "none", "crashed in base (as said); not in new"),
        (cell(processes_ns=()), cell(), "missing", "ok in base, and yet without a sample"),
        (cell(), cell(processes_ns=()), "missing", "ok in new, and yet without a sample"),
        (
            cell(fingerprint="1 pair"),
            cell(fingerprint="2 pairs"),
            "missing",
            "the case has another meaning on either side: 1 pair and 2 pairs",
        ),
        (cell(), failed("unjudged"), "none", "unjudged in new (as said)"),
        (failed("unjudged"), failed("crashed"), "none", "unjudged in base (as said)"),
        (failed("unjudged"), failed("mismatch"), "mismatch", "as said"),
        (cell(fingerprint=""), cell(fingerprint="2 pairs"), "same", ""),
    ],
)
def test_what_stands_where_there_are_no_two_times(
    base: Cell | None, new: Cell | None, verdict: str, reason: str
) -> None:
    assert said(base, new) == (verdict, reason)


@pytest.mark.parametrize("base", STATUSES)
@pytest.mark.parametrize("new", STATUSES)
def test_no_pair_of_statuses_is_silent(base: Status, new: Status) -> None:
    verdict, reason = said(cell(status=base), cell(status=new))
    assert (verdict == "same") == (base == new == "ok")
    assert reason or verdict == "same"
    if base == "ok" and new != "ok":
        kinds: dict[Status, str] = {"mismatch": "mismatch", "inaccurate": "mismatch", "unjudged": "none"}
        assert verdict == kinds.get(new, "missing")


def test_a_cell_that_was_not_judged_is_a_warning_and_not_a_failure() -> None:
    found = compare_sides([side(cell(), *beside())], [side(failed("unjudged"), *beside())])
    assert warned(found, f"1 cell that attnbench could not judge: mine on {SHORT}")
    assert not warned(found, "failed")
    gate = hold(found, Gate())
    assert (gate.exit_code, gate.failing) == (4, ())
    assert gate.sentence == "nothing is known of 1 cell: attnbench could not judge, twice; measure again"


def warned(compared: Compared, words: str) -> bool:
    return any(words in warning for warning in compared.warnings)


def test_a_benchmark_without_a_backend_is_named_by_its_case_alone() -> None:
    base = side(cell("", "test_a.py::test_one"), origin="pytest-benchmark")
    new = side(cell("", "test_a.py::test_two"), origin="pytest-benchmark")
    found = compare_sides([base], [new])
    assert warned(found, "1 cell only in base: test_a.py::test_one")


def test_what_failed_on_both_sides_is_warned_of_and_what_can_t_be_is_not() -> None:
    there = side(cell("a", status="crashed"), cell("b", status="unsupported"))
    again = side(cell("a", status="crashed"), cell("b", status="unsupported"), started="later")
    found = compare_sides([there], [again])
    assert warned(found, f"1 cell without a time on both sides, because it failed: a on {SHORT}")


def test_a_time_in_some_runs_alone_is_warned_of() -> None:
    runs = [side(cell(), *beside()), side(cell(status="crashed"), *beside())]
    found = compare_sides([side(cell(), *beside())], runs)
    assert warned(found, f"1 cell with a time in some runs of new alone: mine on {SHORT}")
    assert next(one for one in found.cells if one.backend == "mine").new_status == "crashed"


def test_unequal_versions_of_a_format_are_warned_of() -> None:
    found = compare_sides([side(cell())], [side(cell(), version="2")])
    assert warned(found, "files of unequal versions of the format of attnbench: 1 and 2")


def test_a_cell_that_both_tools_measured_is_warned_of() -> None:
    other = side(cell(), origin="pytest-benchmark")
    found = compare_sides([side(cell()), other], [side(cell()), other])
    assert warned(found, f"1 cell measured by attnbench and by pytest-benchmark: mine on {SHORT}")
