"""--quiet says errors and warnings alone; --verbose says each step and where a failure came from."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from click.testing import Result

from attnbench.cli import attnbench
from attnbench.cli.progress import progress, steps
from attnbench.plugins import calling as tracing
from attnbench.runner.progress import Moment

Invoke = Callable[..., Result]
PLAN = ("run", "attention/dot/H1-L16-D8", "--backend", "eager", "--plan", "--format", "csv")


@contextmanager
def said(*options: str) -> Iterator[None]:
    """Within a command line that begins so."""
    with attnbench.make_context("attnbench", [*options, "list"]) as ctx, ctx.scope():
        yield


def moment(doing: str) -> Moment:
    return Moment(1, 3, "attention/dot/x", doing, 2.5, 30.0)


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
            tell(moment("oracle"))
        with steps() as show:
            show("looking")
    assert capsys.readouterr().err == ""


def test_verbose_tells_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    with said("--verbose"), progress() as tell:
        tell(moment("oracle"))
        tell(moment("check eager"))
    assert capsys.readouterr().err.splitlines() == [
        "    2.5 s  1/3 attention/dot/x: oracle, about 30 s left",
        "    2.5 s  1/3 attention/dot/x: check eager, about 30 s left",
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
    assert verbose.stderr.endswith(plain.stderr)
