"""The interpreted kernels of recurrences, by attnbench's check."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import attnbench

NAME = "triton_recurrent_interpreted"
README = Path(__file__).parents[1] / "README.md"
TABLE = re.findall(r"\| `(recurrent/\S+)` \|", README.read_text())


def statuses(cases: tuple[str, ...], folder: Path) -> list[tuple[str, str]]:
    run = attnbench.run(cases, [NAME], timed=False, out=folder)
    return [(record.status, record.reason) for record in run.records if record.backend == NAME]


def test_the_rule_that_needs_both_kernels_is_right(tmp_path: Path) -> None:
    assert statuses(("recurrent/gated_delta/H2-Hkv1-L17-D13-Dv8",), tmp_path) == [("ok", "")]


@pytest.mark.slow
def test_every_case_of_the_readme_is_right(tmp_path: Path) -> None:
    assert len(TABLE) == 5
    assert statuses((*TABLE,), tmp_path) == [("ok", "")] * 5
