"""What a run file says of the command that made it."""

from __future__ import annotations

import sys

import pytest

from attnbench.runner.forecast import command_line


@pytest.mark.parametrize(
    "program", ["/home/somebody/venv/bin/attnbench", "/home/somebody/attnbench/__main__.py"]
)
def test_the_program_has_no_folder(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(sys, "argv", [program, "run", "smoke", "--out", "mine.jsonl"])
    assert command_line() == ("attnbench", "run", "smoke", "--out", "mine.jsonl")


def test_a_script_is_called_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/home/somebody/study.py", "x"])
    assert command_line() == ("study.py", "x")
