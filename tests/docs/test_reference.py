"""The reference runs, and what documents show of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from attnbench.api import load

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
