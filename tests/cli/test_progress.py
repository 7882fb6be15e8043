"""Where a run stands, on stderr: lines, a bar, --quiet and --verbose."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from click.testing import Result

from attnbench.cli import attnbench
from attnbench.cli.check import telling_early
from attnbench.cli.output import colourful
from attnbench.cli.progress import left_words, progress, steps
from attnbench.plugins import calling as tracing
from attnbench.runner.progress import Moment
from attnbench.testing.findings import Finding
from attnbench.types.record import Record
from attnbench.types.status import Status

Invoke = Callable[..., Result]


def moment(number: int, left_s: float = 40.0) -> Moment:
    return Moment(number, 3, f"case{number}", "set 1 of 8", 1.0, left_s, done=number)


@pytest.mark.parametrize(
    ("left_s", "words"),
    [
        (0.2, "about 1 s left"), (25.4, "about 25 s left"), (89.4, "about 89 s left"),
        (90, "about 2 min left"), (600, "about 10 min left"), (7200, "about 2 h left"),
    ],
)  # fmt: skip
def test_time_left_in_words(left_s: float, words: str) -> None:
    assert left_words(moment(1, left_s)) == words


def done(number: int, left_s: float = 40.0, status: Status = "ok") -> Moment:
    case = f"attention/dot/B1-H2-Lq{2**number}-Lk{2**number}-D8/none/float32/cpu/forward"
    records = (
        Record(case, "dot", "quick", status, median_ms=0.1, best="quick"),
        Record(case, "dot", "slow", "unsupported", "not this"),
    )
    return Moment(number, 3, case, "done", 1.0, left_s, records, done=number)


def test_without_a_terminal_each_case_that_is_done_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with progress() as tell:
        for told in (moment(1), done(1), moment(2, 30.0), done(2, 20.0), done(3, 0.0, "mismatch")):
            tell(told)
    assert capsys.readouterr().err.splitlines() == [
        "#1 dot/H2-L2-D8: use quick: 100 µs; no other backend has a time (about 40 s left)",
        "#2 dot/H2-L4-D8: use quick: 100 µs; no other backend has a time (about 20 s left)",
        "#3 dot/H2-L8-D8: 1 wrong, 1 unsupported",
    ]


def test_advice_follows_the_line_of_its_case(capsys: pytest.CaptureFixture[str]) -> None:
    with progress() as tell:
        tell(replace(done(3, 0.0), advice=("declare it",)))
    assert capsys.readouterr().err.splitlines() == [
        "#3 dot/H2-L8-D8: use quick: 100 µs; no other backend has a time",
        "advice: declare it",
    ]


def test_cases_that_are_done_have_the_number_and_name_of_tables(capsys: pytest.CaptureFixture[str]) -> None:
    """They need not be run in their order; the time left is told where it is news."""
    told = [replace(done(number, 20.0), done=count) for count, number in enumerate((3, 1, 2), 1)]
    with progress(cases=[moment.case for moment in told]) as tell:
        for each in told:
            tell(each)
    answer = "use quick: 100 µs; no other backend has a time"
    assert capsys.readouterr().err.splitlines() == [
        f"#3 L8: {answer} (about 20 s left)", f"#1 L2: {answer}", f"#2 L4: {answer}",
    ]  # fmt: skip


def test_a_long_check_has_lines_of_what_is_wrong_and_a_tally(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(wrong_only=True) as tell:
        for told in (replace(moment(1), done=0), done(1), done(2, status="mismatch"), done(3, 0.0)):
            tell(replace(told, cases=6))
    assert capsys.readouterr().err.splitlines() == [
        "checking 6 cases (about 40 s left)",
        "1 of 6 cases checked, none wrong (about 40 s left)",
        "#2 dot/H2-L4-D8: 1 wrong, 1 unsupported",
        "2 of 6 cases checked, 1 of them not right (about 40 s left)",
        "3 of 6 cases checked, 1 of them not right (about 1 s left)",
    ]


def test_each_known_mistake_of_a_check_is_told_once_when_it_is_found(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A case with all properties of one before is not asked: it shows the same fault."""
    masks = ("causal", "causal+padding", "padding", "window:2", "bool")
    asked: list[str] = []

    def mistake(record: Record) -> Finding | None:
        asked.append(record.case)
        name = "window" if "window" in record.case else "mask"
        return None if "bool" in record.case else Finding("mine", "x", f"Mend the {name}.", mistake=name)

    with progress(wrong_only=True) as shown:
        tell = telling_early(shown, mistake)
        for number, mask in enumerate(masks, 1):
            case = done(number).case.replace("/none/", f"/{mask}/")
            record = Record(case, "dot", "mine", "mismatch", f"off by {number}", failed_check="values")
            tell(replace(done(number, 0.0), cases=9, done=1, records=(record,)))
    assert len(asked) == 4
    assert capsys.readouterr().err.splitlines() == [
        "checking 8 cases (about 1 s left)",
        "#1 dot/H2-L2-D8: wrong",
        "problem: mine on attention/dot/H2-L2-D8/causal: off by 1",
        "  Mend the mask.",
        "  (checking goes on; Ctrl-C ends it with the diagnosis so far)",
        "#2 dot/H2-L4-D8: wrong",
        "#3 dot/H2-L8-D8: wrong (further ones are counted)",
        "problem: mine on attention/dot/H2-L16-D8/window:2: off by 4",
        "  Mend the window.",
    ]


def test_sides_of_a_comparison_have_no_winner(capsys: pytest.CaptureFixture[str]) -> None:
    sides = tuple(Record("case", "dot", f"a@{side}", "ok", median_ms=1.0) for side in ("base", "head"))
    with progress() as tell:
        tell(replace(done(1), records=sides))
    assert capsys.readouterr().err == ""


def test_on_a_terminal_the_lines_of_cases_give_way_to_the_answer(
    terminal: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    terminal(100)
    with progress("3 cases: about 40 s") as tell:
        for told in (moment(1), done(1), moment(2, 30.0)):
            tell(told)
    written = capsys.readouterr().err
    last = [line.rstrip() for line in shown(written[written.rindex("3 cases") :])]
    assert "#1 dot/H2-L2-D8: use quick: 100 µs; no other backend has a time" in last
    # The plan, the case and the bar are erased: three lines, and the cursor stands where the first began.
    assert written.endswith("\r" + 3 * "\x1b[1A\x1b[2K")


def test_the_plan_stays_where_nothing_is_rewritten(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("3 cases: about 40 s"):
        pass
    assert capsys.readouterr().err == "3 cases: about 40 s\n"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Make stderr a terminal of so many columns."""

    def make(columns: int) -> None:
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setenv("COLUMNS", str(columns))

    return make


LONG = Moment(
    13, 24, "attention/scaled_dot/B1-H8-Lq1024-Lk1024-D64/causal", "check sdpa_efficient", 9.0, 30.0, done=12
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


def test_steps_of_the_doctor_are_taken_away_again(
    terminal: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    terminal(60)
    with steps() as show:
        show("watching cores")
    told = capsys.readouterr().err
    assert "watching cores" in told
    assert told.rindex("\x1b[2K") > told.rindex("watching cores")


def test_a_terminal_that_rewrites_nothing_has_lines(
    terminal: Callable[[int], None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal(90)
    monkeypatch.setenv("TERM", "dumb")
    with steps() as show:
        show("looking at libraries")
    with progress() as tell:
        tell(done(2, 30.0))
    assert (
        capsys.readouterr().err
        == "#2 dot/H2-L4-D8: use quick: 100 µs; no other backend has a time (about 30 s left)\n"
    )


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


@contextmanager
def said(*options: str) -> Iterator[None]:
    """Within a command line that begins so."""
    with attnbench.make_context("attnbench", [*options, "list"]) as ctx, ctx.scope():
        yield


def test_quiet_still_says_errors_and_faults_of_plugins(
    invoke: Invoke, add_distribution: Callable[..., None]
) -> None:
    add_distribution("attnbench-mini-bad", {"mini_bad.py": "1 / 0\n"}, plugins={"mini_bad": "mini_bad"})
    assert "no command 'lst'" in invoke("--quiet", "lst").stderr
    assert "attnbench-mini-bad" in invoke("--quiet", "list", "suites").stderr


def test_quiet_tells_no_progress(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with said("--quiet"):
        with progress() as tell:
            tell(replace(moment(1), doing="oracle"))
        with steps() as show:
            show("looking")
    assert capsys.readouterr().err == ""


def test_verbose_tells_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    with said("--verbose"), progress() as tell:
        tell(replace(moment(1), doing="oracle"))
        tell(replace(moment(1), doing="check eager"))
    assert capsys.readouterr().err.splitlines() == [
        "    1.0 s  1/3 case1: oracle, about 40 s left",
        "    1.0 s  1/3 case1: check eager, about 40 s left",
    ]


def test_verbose_tells_how_long_plugins_take_and_no_longer_than_the_command(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(tracing.TRACE, raising=False)
    result = invoke("-v", "list", "suites")
    assert "attnbench: trace: importing attnbench" in result.stderr
    assert tracing.TRACE not in os.environ
    assert "trace" not in invoke("list", "suites").stderr
    monkeypatch.setenv(tracing.TRACE, "1")
    invoke("-v", "list", "suites")
    assert os.environ[tracing.TRACE] == "1"


def test_verbose_shows_where_a_failure_came_from_and_the_status_stays(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*rest: object, **named: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("attnbench.cli.list.load_plugins", fail)
    plain, verbose = invoke("list", "suites"), invoke("--verbose", "list", "suites")
    assert plain.exit_code == verbose.exit_code == 3
    assert "Traceback" not in plain.stderr
    assert "in fail" in verbose.stderr
    assert verbose.stderr.endswith("attnbench: unexpected ZeroDivisionError: planted (see above where)\n")
