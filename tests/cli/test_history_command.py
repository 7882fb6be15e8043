"""``attnbench history``: a line for each run, in four formats; what isn't there is named."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from attnbench.reports.history import COLUMNS
from attnbench.results.pytest_benchmark import write_pytest_benchmark
from attnbench.types.compared import Cell, Measured

CASE = "attention/dot/B1-H2-Lq8-Lk8-D4/none/float32/cpu/forward"
OTHER = "attention/dot/B1-H2-Lq16-Lk16-D4/none/float32/cpu/forward"


def cell(backend: str, ms: float, ratio: float | None, case: str = CASE) -> Cell:
    """Nine processes about ``ms``, half a percent off at most."""
    times = tuple(1e6 * ms * (1 + (n - 4) / 800) for n in range(9))
    steady = {"empty": (100.0,) * 9}
    return Cell(case, "dot", backend, "ok", processes_ns=times, ratio=ratio, reference_ns=steady)


def run(day: int, *cells: Cell, cpu: str = "Zen", commit: str = "") -> Measured:
    return Measured(
        path=Path("x"), origin="attnbench", version="1", started=f"2026-01-{day:02}T12:00:00+00:00",
        commit=commit or f"{day}" * 12, environment={"cpu": cpu, "python": "3.12.1"},
        protocol={"baseline": "eager"}, cells=cells, run_id=f"r{day}",
    )  # fmt: skip


RUNS = [
    run(1, cell("eager", 1.0, 1.0), cell("bmm", 2.0, 2.0)),
    run(2, cell("eager", 1.0, 1.0), cell("bmm", 3.0, 3.0), commit="abcdefabcdefabc-dirty"),
    run(3, cell("eager", 1.0, 1.0), Cell(CASE, "dot", "bmm", "mismatch", reason="rms error 3.2e-01")),
    run(4, cell("eager", 0.5, 1.0), cell("bmm", 1.0, 2.0), cpu="Xeon"),
    run(5, cell("eager", 1.0, 1.0, OTHER)),
]


@pytest.fixture(autouse=True)
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The runs as files in the folder that is looked at unless another is named, the newest first by name."""
    monkeypatch.chdir(tmp_path)
    Path("results").mkdir()
    for number, one in enumerate(RUNS):
        write_pytest_benchmark(one, Path("results") / f"{9 - number}.json")
    return tmp_path


def test_what_was_never_timed_is_left_out(invoke: Callable[..., Result], results: Path) -> None:
    before = invoke("history").stdout
    checked = run(
        6,
        Cell(OTHER, "dot", "checked", "ok"),
        Cell(OTHER, "dot", "wrong", "mismatch", reason="far off"),
        Cell(OTHER, "dot", "elsewhere", "unavailable", reason="runs on cuda only"),
    )
    write_pytest_benchmark(checked, Path("results/checked.json"))
    shown = invoke("history").stdout
    assert before != shown
    assert "wrong" in shown
    assert "checked" not in shown
    assert "elsewhere" not in shown


def test_each_machine_has_a_table_of_its_own(invoke: Callable[..., Result]) -> None:
    blocks = invoke("history", "--backend", "bmm").stdout.split("\n\n")
    by_machine = {block.splitlines()[0].rsplit("on ", 1)[-1]: block for block in blocks[:2]}
    assert "2026-01-04" in by_machine["Xeon"]
    assert "2026-01-04" not in by_machine["Zen"]
    assert by_machine["Zen"].count("2026-01-0") >= 3


def test_json_and_csv_have_every_column_in_full(invoke: Callable[..., Result]) -> None:
    rows = json.loads(invoke("history", "--format", "json").stdout)
    assert [tuple(row) for row in rows] == [COLUMNS] * 9
    second = next(row for row in rows if row["backend"] == "bmm" and row["started"].startswith("2026-01-02"))
    assert second["commit"] == "abcdefabcdefabc-dirty"
    assert (second["median_ms"], second["ratio"], second["baseline"]) == (3.0, 3.0, "eager")
    assert second["change"] == pytest.approx(1.5)
    assert (second["verdict"], second["before"]) == ("slower", "2026-01-01T12:00:00+00:00")
    assert second["low_ms"] < 3.0 < second["high_ms"]
    table = list(csv.DictReader(io.StringIO(invoke("history", "--format", "csv").stdout)))
    assert tuple(table[0]) == COLUMNS
    assert [row["commit"] for row in table] == [row["commit"] for row in rows]
