"""Streams that can't be written, and Ctrl-C before a command has begun."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import Result

Invoke = Callable[..., Result]
PLAN = ("run", "attention/dot/H1-L16-D8", "--backend", "eager", "--plan", "--format", "csv")


def started(*words: str, **streams: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "attnbench", *words], timeout=60, check=False, text=True, **streams
    )  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["run", "--help"]])
def test_help_on_a_full_disk(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = started(*words, stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (3, "attnbench: No space left on device\n")


@pytest.mark.parametrize(("words", "status", "lines"), [(PLAN, 0, 2), (["doctr"], 2, 0)])
def test_what_is_told_on_a_full_disk_loses_no_data(words: list[str], status: int, lines: int) -> None:
    with Path("/dev/full").open("w") as full:
        done = started(*words, stdout=subprocess.PIPE, stderr=full)
    assert (done.returncode, len(done.stdout.splitlines())) == (status, lines)


def test_nor_does_a_reader_of_it_that_goes_away() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = started(*PLAN, stdout=subprocess.PIPE, stderr=writing)
    finally:
        os.close(writing)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 2)


@pytest.mark.parametrize("words", [["list", "rules"], ["--help"]])
def test_a_reader_of_data_that_goes_away_is_no_failed_check(words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = started(*words, stdout=writing, stderr=subprocess.PIPE)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("where", ["make_context", "invoke"])
def test_ctrl_c_before_a_command_is_130(where: str, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(click.Group, where, stopped)
    result = invoke("list", "suites")
    assert (result.exit_code, result.stderr) == (130, "attnbench: interrupted\n")


def test_ctrl_c_while_the_command_line_is_imported(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt\n")
    done = subprocess.run(
        [sys.executable, "-c", "from attnbench.__main__ import main; main()"],
        env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (130, "attnbench: interrupted\n")
