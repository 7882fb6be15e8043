"""attnbench selftest judge: what it asks for, prints, writes and exits with."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from attnbench_selftest import judge
from attnbench_selftest.judge import Finding, Hearing
from attnbench_selftest.judge_plan import BRIEF, FULL
from attnbench_selftest.judge import Outcome
from attnbench_selftest.mutants import MUTANTS

Invoke = Callable[..., Result]
WRONG = [mutant.backend_name for mutant in MUTANTS if not mutant.right]


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[Hearing]:
    """Refuse all wrong ones but those in ``spared`` instead of running; gives what was asked."""
    asked: list[Hearing] = []

    def hear(hearing: Hearing, *rest: Any) -> Finding:
        asked.append(hearing)
        outcomes = [
            Outcome(mutant.backend_name, "a case", seed, False, *_fate(mutant.right, mutant.backend_name))
            for seed in hearing.seeds
            for mutant in MUTANTS
        ]
        facts = {
            "date": "2026-01-01", "seeds": list(hearing.seeds), "without": list(hearing.without),
            "verdicts": len(outcomes), "wall_s": 1.0, "cpu": "some®", "cores": 2, "torch": "2",
            "load_before": 0.0, "load_after": 0.0,
        }  # fmt: skip
        return Finding(tuple(outcomes), facts)

    monkeypatch.setattr(judge, "hear", hear)
    spared.clear()
    return asked


spared: set[str] = set()


def _fate(right: bool, name: str) -> tuple[str, tuple[str, ...]]:
    return ("ok", ()) if right or name in spared else ("mismatch", ("normal",))


def test_a_seed_and_few_cases_unless_told_otherwise(invoke: Invoke, heard: list[Hearing]) -> None:
    assert invoke("selftest", "judge").exit_code == 0
    assert invoke("selftest", "judge", "--full").exit_code == 0
    assert invoke("selftest", "judge", "--seeds", "2", "--first", "5", "--without", "loud").exit_code == 0
    assert [(one.extent, one.seeds, one.without) for one in heard] == [
        (BRIEF, (1,), ()),
        (FULL, (1, 2, 3), ()),
        (BRIEF, (5, 6), ("loud",)),
    ]


def test_one_that_passes_fails_it_and_is_named(invoke: Invoke, heard: list[Hearing]) -> None:
    spared.add(WRONG[0])
    result = invoke("selftest", "judge")
    assert result.exit_code == 1
    assert f"NOT REFUSED: {WRONG[0]}" in result.stdout
    assert f"FAILED: {len(WRONG) - 1} of {len(WRONG)} wrong backends refused" in result.stdout


def test_seeds_may_be_judged_one_at_a_time(
    invoke: Invoke, heard: list[Hearing], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in a locale of ASCII, which files are not to depend on.
    monkeypatch.setattr(io, "text_encoding", lambda encoding, *_: encoding or "ascii")
    first, both, text = tmp_path / "1.json", tmp_path / "2.json", tmp_path / "judged.md"
    assert invoke("selftest", "judge", "--json", str(first)).exit_code == 0
    again = ("--first", "2", "--add", str(first), "--json", str(both), "--markdown", str(text))
    assert invoke("selftest", "judge", *again).exit_code == 0
    found = json.loads(both.read_text(encoding="utf-8"))
    assert found["seeds"] == [1, 2]
    assert "refused in 2 seeds" in found["verdict"]
    assert text.read_text(encoding="utf-8").startswith("2026-01-01: seed 1, 2;")


def test_no_check_that_there_is_not(invoke: Invoke, heard: list[Hearing]) -> None:
    result = invoke("selftest", "judge", "--without", "loudness")
    assert result.exit_code == 2
    assert "loud" in result.stderr
    assert heard == []
