from __future__ import annotations

import sys

import pytest

from attnbench.cli.output import colourful
from attnbench.cli.progress import left_words, progress
from attnbench.runner.moment import Moment


def moment(number: int, left_s: float | None = None) -> Moment:
    return Moment(number, 3, f"case{number}", "set 1 of 8", 1.0, left_s)


@pytest.mark.parametrize(
    ("left_s", "words"),
    [
        (None, ""), (0.2, "about 1 s left"), (25.4, "about 25 s left"), (89.4, "about 89 s left"),
        (90, "about 2 min left"), (600, "about 10 min left"), (7200, "about 2 h left"),
    ],
)  # fmt: skip
def test_time_left_in_words(left_s: float | None, words: str) -> None:
    assert left_words(moment(1, left_s)) == words


def test_without_a_terminal_each_case_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with progress() as tell:
        for told in (moment(1), moment(1), moment(2, 30.0), moment(2, 20.0), moment(3, 10.0)):
            tell(told)
    assert capsys.readouterr().err == "1/3 case1\n2/3 case2, about 30 s left\n3/3 case3, about 10 s left\n"


def test_on_a_terminal_a_line_is_rewritten_and_taken_away(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "90")
    with progress() as tell:
        tell(moment(2, 30.0))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "2/3 set 1 of 8" in captured.err
    assert "about 30 s left" in captured.err
    assert captured.err.rstrip().endswith("\x1b[2K")


@pytest.mark.parametrize(
    ("environment", "colour"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colour_is_for_terminals_that_want_it(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], colour: bool
) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert not colourful()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert colourful() == colour
