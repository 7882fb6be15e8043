from __future__ import annotations

import re
import sys
from collections.abc import Callable

import pytest

from attnbench.cli.output import colourful
from attnbench.cli.progress import left_words, progress, show_step
from attnbench.runner.progress import Moment


def moment(number: int, left_s: float = 40.0) -> Moment:
    return Moment(number, 3, f"case{number}", "set 1 of 8", 1.0, left_s)


@pytest.mark.parametrize(
    ("left_s", "words"),
    [
        (0.2, "about 1 s left"), (25.4, "about 25 s left"), (89.4, "about 89 s left"),
        (90, "about 2 min left"), (600, "about 10 min left"), (7200, "about 2 h left"),
    ],
)  # fmt: skip
def test_time_left_in_words(left_s: float, words: str) -> None:
    assert left_words(moment(1, left_s)) == words


def test_without_a_terminal_each_case_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with progress() as tell:
        for told in (moment(1), moment(1), moment(2, 30.0), moment(2, 20.0), moment(3, 10.0)):
            tell(told)
    assert capsys.readouterr().err == "".join(
        f"{number}/3 case{number}, about {left_s} s left\n" for number, left_s in ((1, 40), (2, 30), (3, 10))
    )


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Make stderr a terminal of so many columns."""

    def make(columns: int) -> None:
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setenv("COLUMNS", str(columns))

    return make


LONG = Moment(
    12, 24, "attention/scaled_dot/B1-H8-Lq1024-Lk1024-D64/causal", "check sdpa_efficient", 9.0, 30.0
)


def shown(text: str) -> list[str]:
    """The lines as a terminal shows them: without what moves and colours."""
    return [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in re.split(r"[\r\n]", text)]


@pytest.mark.parametrize("columns", [20, 60, 100])
def test_one_line_however_narrow(
    columns: int, terminal: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    terminal(columns)
    with progress() as tell:
        tell(LONG)
    lines = [line.rstrip() for line in shown(capsys.readouterr().err)]
    told = [line for line in lines if line.startswith("12/24")]
    assert told
    assert max(map(len, lines)) <= columns
    assert lines[-1] == ""
    assert all(line in (told[0], "") or "starting" in line for line in lines)
    assert ("about 30 s left" in told[0]) == (columns >= 60)
    assert ("attention/scaled_dot" in told[0]) == (columns >= 100)


def test_what_is_being_done_is_cut_where_it_would_wrap(
    terminal: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    terminal(20)
    show_step("looking at all the libraries")
    assert shown(capsys.readouterr().err) == ["", "looking at all the "]


def test_a_terminal_that_rewrites_nothing_has_lines(
    terminal: Callable[[int], None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal(90)
    monkeypatch.setenv("TERM", "dumb")
    show_step("looking at libraries")
    with progress() as tell:
        tell(moment(2, 30.0))
    assert capsys.readouterr().err == "2/3 case2, about 30 s left\n"


def test_progress_without_colour(
    terminal: Callable[[int], None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    colours = re.compile(r"\x1b\[[0-9;]*3[0-9][0-9;]*m|\x1b\[9[0-9]m")
    for wanted in (True, False):
        terminal(90)
        monkeypatch.setenv("NO_COLOR", "" if wanted else "1")
        with progress() as tell:
            tell(LONG)
        assert bool(colours.search(capsys.readouterr().err)) == wanted


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
