"""``--live``: commits compared from outside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attnbench_selftest.cli import command
from attnbench_selftest.live import LiveCell, LiveComparison, score_live
from attnbench_selftest.rates import exit_code
from click.testing import CliRunner


def comparison(p_values: list[float], *, identical: bool = True, **others: object) -> LiveComparison:
    cells = [LiveCell("case", f"b{place}", "unclear", 1.0, p) for place, p in enumerate(p_values)]
    planted = [] if identical else [LiveCell("case", "p", str(others["found"]), 1.05, 1e-6, 0.05)]
    return LiveComparison(identical, int(bool(others.get("failed"))), 1.0, [*cells, *planted])


def test_p_values_that_lie_too_low_are_refuted() -> None:
    uniform = [comparison([(place + 0.5) / 40 for place in range(40)]) for _ in range(10)]
    low = [comparison([0.01] * 8 + [0.5] * 32) for _ in range(10)]
    assert exit_code(score_live(uniform).findings) == 0
    findings = {one.what: one.outcome for one in score_live(low).findings}
    assert findings["identical cells with p < 0.05"] == "refuted"
    assert findings["identical cells with p < 0.001"] == "not refuted"


def test_identical_commits_that_fail_are_counted() -> None:
    found = score_live([comparison([0.5], failed=number < 3) for number in range(6)]).findings
    assert next(one for one in found if "fail" in one.what).outcome == "refuted"


def test_planted_slowdowns_that_stay_unseen_are_refuted() -> None:
    found = score_live([comparison([0.5], identical=False, found="unclear") for _ in range(20)]).findings
    assert next(one for one in found if one.what == "+5 % found").outcome == "refuted"
    found = score_live([comparison([0.5], identical=False, found="slower") for _ in range(20)]).findings
    assert next(one for one in found if one.what == "+5 % found").estimate == 1.0


def test_a_length_is_refused_with_a_sentence() -> None:
    result = CliRunner().invoke(command, ["aa", "--live", "--length", "16"])
    assert "--live takes neither --length nor --device" in str(result.exception)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "slower_by"), [("aa", {0.0}), ("power", {0.0, 0.03, 0.05, 0.1})])
def test_a_comparison_from_end_to_end(tmp_path: Path, name: str, slower_by: set[float]) -> None:
    found = tmp_path / "found.json"
    words = [name, "--live", "--budget", "0.05", "--repetitions", "9", "--json", str(found)]
    result = CliRunner().invoke(command, words, catch_exceptions=False)
    assert result.exit_code in (0, 1), result.output
    (compared,) = json.loads(found.read_text())["comparisons"]
    assert compared["identical"] == (name == "aa")
    assert len(compared["cells"]) == 16
    assert {cell["slower_by"] for cell in compared["cells"]} == slower_by
