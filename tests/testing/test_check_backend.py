"""The kit on backends that are wrong, each in one way: the sentence that its author gets."""

from __future__ import annotations

from pathlib import Path

import pytest
import wrong_first_tries as tries

from attnbench.api import make_options
from attnbench.plugins.registry import Registry, load_wanted
from attnbench.testing.findings import Finding, Report
from attnbench.testing.judging import plan, records_of, reported

FILE = Path(tries.__file__)
HERE = FILE.relative_to(Path.cwd()) if FILE.is_relative_to(Path.cwd()) else FILE


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_wanted([str(FILE)])


@pytest.fixture(scope="module")
def report(registry: Registry) -> Report:
    """All of them at once: inputs and exact answers are the same, and dear."""
    planned = plan(registry, tries.JUDGED)
    records = records_of(planned.cases(large=False), registry, make_options(timed=False))
    return reported(planned, records, registry)


def problems(report: Report, backend: str) -> list[Finding]:
    return [finding for finding in report.problems if finding.backend == backend]


def only(report: Report, backend: str) -> Finding:
    (finding,) = problems(report, backend)
    return finding


def test_a_right_one_passes(report: Report) -> None:
    assert problems(report, "right_one") == []
    counts = next(counts for counts in report.counts if counts.backend == "right_one")
    assert counts.right == counts.judged > 1
    assert counts.declined == counts.asked - counts.judged > 100
    assert counts.command == f"attnbench check CASE --backend right_one --plugin {HERE}"


def test_a_scale_that_is_missing(report: Report) -> None:
    found = only(report, "no_scale")
    assert found.problem.startswith("wrong answers: RMS error ")
    assert found.do == (
        "This is what comes out of a known mistake (not divided by √D): multiply the products by "
        "setup.scoring.dot.scale."
    )


def test_inputs_that_are_written_to(report: Report) -> None:
    found = only(report, "in_place")
    assert found.problem == "the call changed its first input."
    assert found.do.startswith(
        "Leave the inputs as they are: no operation in place (add_, masked_fill_, out=)"
    )


def test_answers_that_are_kept(report: Report) -> None:
    assert "an answer (or packed keys) of earlier inputs is kept: compute it anew in each call" in (
        only(report, "keeps_answers").do
    )


def test_what_is_kept_for_all_cases_shows_where_they_take_turns(report: Report) -> None:
    found = only(report, "by_last")
    assert found.about == "steadiness"
    assert found.problem == (
        "after calls on other cases it gave other bits for the inputs it had before: they differ by more "
        "than rounding explains"
    )
    assert found.do.startswith("Keep nothing from one call to the next, by shape or by address;")


def test_a_case_that_supports_let_through(report: Report) -> None:
    found = only(report, "square_only")
    assert found.problem == (
        "supports() let this case through, and preparation raised NotImplementedError: values of "
        "another width."
    )
    assert found.do.startswith(
        "These are all the cases with values of another width than keys (case.Dv != case.D); without, it is "
        "right. Make it work, or have supports() return the reason in words why it can't be run. Inputs were "
    )


def test_a_supports_that_raises(report: Report) -> None:
    found = only(report, "raising_supports")
    assert (found.problem, found.about) == (
        "supports() raised ZeroDivisionError: division by zero",
        "declarations",
    )
    assert found.do == "It is asked about any case: give the reason as a string, or None, and raise nothing."


def test_a_supports_that_gives_no_words(report: Report) -> None:
    found = only(report, "true_supports")
    assert found.problem == "supports() gave a bool, True: give None, or a reason in words"
    assert "give the reason as a string, or None" in found.do


def test_what_is_declared_and_never_taken(report: Report) -> None:
    assert only(report, "no_half").problem == (
        "it declares 'bfloat16' among its dtypes, and supports() declines every case of it: "
        "has no kernel for bfloat16"
    )


def test_the_report_has_all_of_it_in_words(report: Report) -> None:
    text = str(report)
    assert not report.ok
    assert all(finding.problem in text and finding.do in text for finding in report.findings)
    assert f"one of these cases again: attnbench check CASE --backend no_scale --plugin {HERE}" in text
