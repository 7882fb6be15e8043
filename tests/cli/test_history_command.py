"""``attnbench history`` on backends that were checked only; its tables are transcripts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from attnbench.results.pytest_benchmark import write_pytest_benchmark
from attnbench.types.compared import Cell, Measured

CASE = "attention/dot/B1-H2-Lq8-Lk8-D4/none/float32/cpu/forward"
TIMED = Cell(CASE, "dot", "eager", "ok", processes_ns=(1e6,) * 9)


def write(path: str, *cells: Cell) -> None:
    """Write a run with these cells; the folder results is read unless another is named."""
    run = Measured(
        path=Path("x"), origin="attnbench", version="1", started="2026-01-01T12:00:00+00:00", commit="1" * 12,
        environment={"cpu": "Zen"}, protocol={"baseline": "eager"}, cells=cells, run_id=path,
    )  # fmt: skip
    Path("results").mkdir(exist_ok=True)
    write_pytest_benchmark(run, Path("results", path))


def test_what_was_never_timed_is_left_out(
    invoke: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write("timed.json", TIMED)
    before = invoke("history").stdout
    write(
        "checked.json",
        Cell(CASE, "dot", "checked", "ok"),
        Cell(CASE, "dot", "wrong", "mismatch", reason="far off"),
        Cell(CASE, "dot", "elsewhere", "unavailable", reason="runs on cuda only"),
    )
    shown = invoke("history").stdout
    assert before != shown
    assert "wrong" in shown
    assert "checked" not in shown
    assert "elsewhere" not in shown
