"""Every command that writes a file replaces only what attnbench wrote as that kind; all files or none."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from click.testing import Result
from torch.nn import functional

import attnbench

sys.path.insert(0, str(Path(__file__).parents[1] / "stored"))
from made_sides import write_run
from run_files import write_records

from attnbench.types.record import Record

Invoke = Callable[..., Result]
REPORT = ("report", "run.jsonl")
WRITERS = {
    "html": (*REPORT, "--html"),
    "csv": (*REPORT, "--csv"),
    "markdown": (*REPORT, "--markdown"),
    "benchmark": (*REPORT, "--benchmark-json"),
    "choose": ("choose", "eager.jsonl", "--default", "eager", "--out"),
    "heatmap": ("explain", "dot", "--heatmap"),
    "picture": ("explain", "dot", "--picture"),
    "plot": ("compare-rules", "dot", "--width", "4", "--gain", "1", "--plot"),
}
ENDINGS = {"heatmap": ".svg", "picture": ".png", "plot": ".svg"}
SUITE = "# mine\nsummary = 'of years'\n"
REFUSED = "that attnbench wrote: name another file, or replace it with --force"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run.jsonl")
    eager = Record("attention/scaled_dot/H1-L8-D8", "scaled_dot", "eager", "ok", median_ms=1.0)
    write_records(tmp_path / "eager.jsonl", eager)
    return tmp_path


@pytest.mark.parametrize("writer", WRITERS)
def test_a_file_of_another_kind_is_replaced_only_with_force(
    invoke: Invoke, folder: Path, writer: str
) -> None:
    target = folder / f"target{ENDINGS.get(writer, '')}"
    target.write_text(SUITE)
    words = (*WRITERS[writer], str(target))
    refused = invoke(*words)
    assert refused.exit_code == 2
    assert REFUSED in refused.stderr
    assert refused.stdout == ""
    assert target.read_text() == SUITE
    assert invoke(*words, "--force").exit_code == 0
    assert target.read_bytes() != SUITE.encode()
    assert invoke(*words).exit_code == 0, "its own file is replaced"
    target.write_bytes(b"")
    assert invoke(*words).exit_code == 0, "nothing is lost in an empty file"


@pytest.mark.parametrize("writer", WRITERS)
def test_a_stored_run_is_of_no_other_kind(invoke: Invoke, folder: Path, writer: str) -> None:
    target = write_run(folder / f"other{ENDINGS.get(writer, '.jsonl')}", started="2026-02-01T00:00:00+00:00")
    data = target.read_bytes()
    assert REFUSED in invoke(*WRITERS[writer], str(target)).stderr
    assert target.read_bytes() == data


def test_run_replaces_no_file_before_it_measures(invoke: Invoke, folder: Path) -> None:
    (folder / "mine.toml").write_text(SUITE)
    done = invoke("run", "smoke", "--benchmark-json", "mine.toml")
    assert done.exit_code == 2
    assert "is not a file of pytest-benchmark's format that attnbench wrote: name another" in done.stderr
    assert (folder / "mine.toml").read_text() == SUITE


def test_captured_calls_replace_only_captured_suites(folder: Path) -> None:
    with attnbench.capture() as calls:
        functional.scaled_dot_product_attention(*torch.randn(3, 1, 2, 4, 8))
    data = (folder / "run.jsonl").read_bytes()
    with pytest.raises(attnbench.BadInput, match="name another file, or replace it with force=True"):
        calls.write("run.jsonl")
    assert (folder / "run.jsonl").read_bytes() == data
    calls.write(folder / "suite.toml")
    calls.write("suite.toml")
    calls.write("run.jsonl", force=True)
    assert (folder / "run.jsonl").read_bytes() == (folder / "suite.toml").read_bytes()


@pytest.mark.parametrize("others", [("--csv", "a.csv"), ("--csv", "a.csv", "--markdown", "a.md")])
def test_of_files_of_which_one_cannot_be_written_none_is(folder: Path, others: tuple[str, ...]) -> None:
    """The page is large: it alone meets a limit that stands for a full disk."""
    words = [sys.executable, "-m", "attnbench", *REPORT, *others, "--html", "page.html"]
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)),
    )  # fmt: skip
    assert done.returncode == 2
    assert "can't write 'page.html': File too large" in done.stderr
    assert "written to" not in done.stderr
    assert {path.name for path in folder.iterdir()} == {"run.jsonl", "eager.jsonl"}


def test_a_report_whose_second_file_is_refused_writes_no_first(invoke: Invoke, folder: Path) -> None:
    (folder / "mine.toml").write_text(SUITE)
    done = invoke(*REPORT, "--csv", "new.csv", "--markdown", "mine.toml")
    assert "'mine.toml' exists and is not a Markdown report that attnbench wrote" in done.stderr
    assert not (folder / "new.csv").exists()


def test_a_report_that_is_written_prints_sentences_and_no_table_unless_asked(
    invoke: Invoke, folder: Path
) -> None:
    done = invoke(*REPORT, "--csv", "all.csv")
    assert done.stderr == "written to all.csv\n"
    assert "checked, all correct" in done.stdout
    assert "backend" not in done.stdout
    for asked in (("--details",), ("--format", "table")):
        whole = invoke(*REPORT, "--csv", "all.csv", *asked)
        assert "  backend " in whole.stdout, asked
    assert invoke(*REPORT, "--csv", "all.csv", "--format", "json").stdout.startswith("[")


def test_a_written_report_of_a_live_comparison_prints_its_statuses(invoke: Invoke, folder: Path) -> None:
    sides = {"base": {}, "head": {}}
    records = [
        Record("attention/scaled_dot/H1-L8-D8", "scaled_dot", f"eager@{side}", "ok", median_ms=1.0)
        for side in sides
    ]
    write_records(folder / "live.jsonl", *records, sides=sides)
    assert "1 case: 2 ok" in invoke("report", "live.jsonl", "--csv", "live.csv").stdout
