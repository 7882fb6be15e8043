"""Every row of the five tutorials in docs/learning.md: the command prints the digits beside it.

The digits are those of the tutorials, or worked out by hand from the integers of the example.
"""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from attnbench.cli import attnbench

PAGE = Path(__file__).parents[2] / "docs" / "learning.md"
ROW = re.compile(r"^\| ([^|]+) \| `attnbench ([^|]+)` \| (`.+`) \|$", re.M)
"""A bar in a cell is written with a backslash before it."""
ROWS = ROW.findall(PAGE.read_text().partition("## The five tutorials")[2].partition("\n## ")[0])


@cache
def printed(words: str) -> str:
    result = CliRunner(env={"COLUMNS": "120"}).invoke(attnbench, shlex.split(words))
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.split())


def test_there_are_rows() -> None:
    assert len(ROWS) > 35


@pytest.mark.parametrize(("step", "words", "digits"), ROWS, ids=[f"{row[0]}-{row[1]}" for row in ROWS])
def test_a_row_of_a_tutorial(step: str, words: str, digits: str) -> None:
    text = printed(words)
    for fragment in re.findall(r"`([^`]+)`", digits):
        assert fragment.replace("\\|", "|") in text, step
