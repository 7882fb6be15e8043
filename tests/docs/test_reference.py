"""The reference runs, and what documents show of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from attnbench.api import load
from attnbench.cli import attnbench

sys.path.insert(0, str(Path(__file__).parents[2] / "results"))
import make_reference as reference


@pytest.mark.parametrize("suite", reference.SUITES)
def test_every_reference_run_is_whole_and_its_numbers_are_checked(suite: str) -> None:
    run = load(reference.file_of(suite))
    assert run.unfinished == ()
    assert run.exit_code == 0
    timed = [record for record in run.records if record.median_ms is not None]
    assert timed
    assert all(record.accuracy is not None for record in timed)
    assert {record.status for record in run.records} <= {"ok", "suspect", "unsupported", "unavailable"}


def test_the_table_of_the_readme_is_that_of_the_files() -> None:
    """Where it isn't: python results/make_reference.py --only-documents."""
    text = reference.README.read_text()
    assert reference.with_table(text) == text


def test_the_picture_is_of_these_runs() -> None:
    """Where it isn't: python results/make_reference.py --only-documents."""
    assert reference.PICTURE.read_bytes().startswith(b"\x89PNG")
    assert json.loads(reference.MADE_OF.read_text()) == {"runs": reference.run_ids()}


def test_the_run_of_serving_beside_vllm_is_decided_within_its_time() -> None:
    """What docs/serving.md says of it."""
    file = Path(__file__).parents[2] / "docs" / "measured" / "serving.jsonl"
    ran = CliRunner().invoke(attnbench, ["report", str(file), "--format", "json"])
    rows = [row for row in json.loads(ran.stdout) if row["status"] == "ok"]
    assert {"vllm", "gather", "nested", "padded_sdpa"} <= {row["backend"] for row in rows}
    far = [row for row in rows if max(row["ratio"], 1 / row["ratio"]) > 1.3]
    assert len(far) >= 10
    assert {row["verdict"] for row in far} == {"slower", "faster"}
    end = json.loads(file.read_text().splitlines()[-1])
    assert end["wall_s"] < 240
    one_query = [row for row in rows if row["Lq"] == 1]
    assert {row["limit_share"] > 0.12 for row in one_query if row["backend"] == "vllm"} == {True}
    assert {row["limit_share"] < 0.015 for row in one_query if row["backend"] != "vllm"} == {True}
