"""``attnbench history`` on backends that were checked only; its tables are transcripts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

sys.path.insert(0, str(Path(__file__).parents[1] / "stored"))
from made_sides import CASES, ok, side

from attnbench.results.pytest_benchmark import write_pytest_benchmark
from attnbench.types.compared import Cell


def test_what_was_never_timed_is_left_out(
    invoke: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("results").mkdir()
    write_pytest_benchmark(side(ok("eager", 1.0), run_id="timed"), Path("results/timed.json"))
    before = invoke("history").stdout
    checked = (
        Cell(CASES[0], "dot", "checked", "ok"),
        Cell(CASES[0], "dot", "wrong", "mismatch", reason="far off"),
        Cell(CASES[0], "dot", "elsewhere", "unavailable", reason="runs on cuda only"),
    )
    write_pytest_benchmark(side(*checked, run_id="checked"), Path("results/checked.json"))
    shown = invoke("history").stdout
    assert before != shown
    assert "wrong" in shown
    assert "checked" not in shown
    assert "elsewhere" not in shown
