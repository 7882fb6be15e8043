"""``attnbench report --html, --csv, --markdown``: files beside what is printed, whole or refused."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from attnbench.reports.html import page as page_module
from attnbench.results.format import RunWriter
from attnbench.types.record import EndLine, Manifest, Record

CASE = "attention/dot/B1-H2-Lq8-Lk8-D4/none/float32/cpu/forward"
BENCHMARKS = Path(__file__).parents[1] / "stored" / "golden"


@pytest.fixture(autouse=True)
def run_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run in ``run.jsonl`` of the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(page_module, "vega", lambda: "window.vegaEmbed = null;")
    manifest = Manifest(
        format=1, run_id="r", started="2026-01-01T00:00:00+00:00", attnbench="0.1.0", command=[],
        cases=[CASE], backends=["eager", "bmm"], named=[], compiled_on=None, protocol={}, plugins=[],
        environment={"cpu": "Zen"},
    )  # fmt: skip
    path = Path("run.jsonl")
    with RunWriter.create(path, manifest) as writer:
        writer.append(Record(CASE, "dot", "eager", "ok", ratio=1.0, baseline="eager", median_ms=0.25))
        writer.append(Record(CASE, "dot", "bmm", "unsupported", reason="no masks yet"))
        writer.append(EndLine("2026-01-01T00:01:00+00:00", 60.0, {}))
    return path


def test_each_file_is_written_beside_what_is_printed(invoke: Callable[..., Result]) -> None:
    words = ["--html", "run.html", "--csv", "run.csv", "--markdown", "run.md", "--format", "json"]
    result = invoke("report", "run.jsonl", *words)
    assert result.exit_code == 0, result.stderr
    assert [row["backend"] for row in json.loads(result.stdout)] == ["eager", "bmm"]
    assert [f"written to {name}" in result.stderr for name in ("run.csv", "run.md", "run.html")] == [True] * 3
    rows = list(csv.DictReader(Path("run.csv").read_text().splitlines()))
    assert [row["median_ms"] for row in rows] == ["0.25", ""]
    assert Path("run.md").read_text().startswith("| case | backend | status |")
    assert "no masks yet" in Path("run.html").read_text()


def test_several_runs_stand_in_one_page_and_each_under_its_line(
    invoke: Callable[..., Result], run_here: Path
) -> None:
    text = run_here.read_text().replace('"run_id":"r"', '"run_id":"other"').replace("Zen", "Another")
    Path("other.jsonl").write_text(text)
    printed = invoke("report", ".", "--format", "markdown", "--html", "both.html", "--markdown", "both.md")
    assert printed.exit_code == 0
    assert Path("both.md").read_text().strip() == printed.stdout.strip()
    page = Path("both.html").read_text()
    assert "Run 1: other.jsonl on Another" in page
    assert "Run 2: run.jsonl on Zen" in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--html", "nowhere/run.html"], "there is no folder 'nowhere'"),
        (["--csv", "."], "is a folder: name a file to write"),
        (["--csv", "same", "--html", "same"], "'same' is named for two formats"),
    ],
)
def test_what_can_not_be_written_is_refused_before_anything_is_printed(
    invoke: Callable[..., Result], words: list[str], said: str
) -> None:
    result = invoke("report", "run.jsonl", *words)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stdout == ""


def test_a_run_is_never_overwritten_by_its_report(invoke: Callable[..., Result], run_here: Path) -> None:
    before = run_here.read_bytes()
    result = invoke("report", "run.jsonl", "--csv", "run.jsonl")
    assert result.exit_code == 2
    assert "'run.jsonl' is one of the runs" in result.stderr
    assert run_here.read_bytes() == before


def test_without_the_packages_of_a_page_one_sentence_says_what_to_install(
    invoke: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    result = invoke("report", "run.jsonl", "--html", "run.html")
    assert result.exit_code == 2
    assert "needs jinja2 and vl-convert-python: pip install 'attnbench[html]'" in result.stderr
    assert result.stdout == ""
    assert not Path("run.html").exists()


def test_files_of_pytest_benchmark_have_no_page(invoke: Callable[..., Result]) -> None:
    theirs = next(BENCHMARKS.glob("*.json"))
    result = invoke("report", str(theirs), "--html", "run.html")
    assert result.exit_code == 2
    assert "holds no records" in result.stderr
