"""The kit on backends that are wrong, each in one way: the findings that its author gets."""

from __future__ import annotations

from pathlib import Path

import pytest
import wrong_first_tries as tries

from attnbench.plugins.registry import load_wanted
from attnbench.runner.options import make_options
from attnbench.testing.findings import Finding, Report
from attnbench.testing.judge import plan, records_of, reported

FILE = Path(tries.__file__)
HERE = FILE.relative_to(Path.cwd()) if FILE.is_relative_to(Path.cwd()) else FILE


@pytest.fixture(scope="module")
def report() -> Report:
    """All of them in one run, since they share inputs and exact answers."""
    registry = load_wanted([str(FILE)])
    planned = plan(registry, tries.JUDGED)
    records = records_of(planned.cases(large=False), registry, make_options(timed=False))
    return reported(planned, records, registry)


def only(report: Report, backend: str) -> Finding:
    (finding,) = [finding for finding in report.problems if finding.backend == backend]
    return finding


def test_a_right_one_passes(report: Report) -> None:
    assert not [finding for finding in report.problems if finding.backend == "right_one"]
    counts = next(counts for counts in report.counts if counts.backend == "right_one")
    assert counts.right == counts.judged > 1
    assert counts.declined == counts.asked - counts.judged > 100
    assert counts.command == f"attnbench check CASE --backend right_one --plugin {HERE}"


@pytest.mark.parametrize(
    ("backend", "about", "check", "mistake", "words"),
    [
        (
            "no_scale",
            "answers",
            "values",
            "scale_omitted",
            "multiply the products by setup.scoring.dot.scale",
        ),
        ("in_place", "answers", "inputs_changed", "", "no operation in place (add_, masked_fill_, out=)"),
        ("keeps_answers", "answers", "values", "", "compute it anew in each call"),
        ("by_last", "steadiness", "repeatability", "", "nothing for all cases in a global"),
        ("square_only", "answers", "", "", "another width than keys (case.Dv != case.D)"),
        ("raising_supports", "declarations", "supports", "", "return None, or the reason as a string"),
        ("true_supports", "declarations", "supports", "", "return None, or the reason as a string"),
        ("no_half", "declarations", "supports", "", "Remove 'bfloat16' from dtypes"),
    ],
)
def test_a_wrong_one_has_one_finding(
    report: Report, backend: str, about: str, check: str, mistake: str, words: str
) -> None:
    found = only(report, backend)
    assert (found.about, found.check, found.mistake) == (about, check, mistake), str(found)
    assert words in found.do


def test_a_case_that_supports_let_through(report: Report) -> None:
    found = only(report, "square_only")
    assert found.problem.startswith("supports() let this case through, and preparation raised NotImplemented")
    assert "Inputs were q (2, " in found.do


def test_the_report_contains_every_finding(report: Report) -> None:
    text = str(report)
    assert not report.ok
    assert all(finding.problem in text and finding.do in text for finding in report.findings)
    assert f"one of these cases again: attnbench check CASE --backend no_scale --plugin {HERE}" in text
