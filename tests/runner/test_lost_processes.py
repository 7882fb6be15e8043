"""A process of attnbench is killed or stopped during a run: nothing is lost, and no backend is blamed."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from run_parts import CAUSAL, PLAIN, assert_records, by_backend, run_of

import attnbench
from attnbench.results.format import read_run
from attnbench.runner.progress import Moment

VERIFIER, SERVER = "attnbench.verifier.process", "attnbench.worker.server"
RIGHT = ("ok", "", "")
CASES = (PLAIN, CAUSAL)
EXPECTED = {"eager": RIGHT, "bmm": RIGHT, "raise_error": ("error", "", "first line")}


pytestmark = pytest.mark.slow


class Struck:
    """Sends a signal to all processes of a kind when the run of one case reaches a step, so many times."""

    def __init__(self, kind: str, when: str, sent: signal.Signals = signal.SIGKILL, times: int = 1) -> None:
        self._kind, self._when, self._sent, self._left = kind, when, sent, times
        self._others = {process.pid for process in psutil.Process().children()}
        self.case = ""

    def __call__(self, moment: Moment) -> None:
        if moment.doing == self._when and self._left and self.case in ("", moment.case):
            self.case, self._left = moment.case, self._left - 1
            for process in psutil.Process().children():
                # One that was killed before has no command line any more.
                with suppress(psutil.ZombieProcess):
                    if process.pid not in self._others and self._kind in process.cmdline():
                        os.kill(process.pid, self._sent)


@pytest.mark.parametrize("kind", [VERIFIER, SERVER])
@pytest.mark.parametrize("when", ["check bmm", "repetition 2 of 3"])
def test_a_process_that_is_killed_once_costs_nothing(
    odd_plugins: None, tmp_path: Path, kind: str, when: str
) -> None:
    struck = Struck(kind, when)
    names = ("fused_multihead", "raise_error", "eager", "bmm")
    stored = run_of(tmp_path, CASES, names, progress=struck, repetitions=3, launches=2)
    assert struck.case
    for case in CASES:
        expected = EXPECTED | {"fused_multihead": ("unsupported", "", "computes")}
        assert_records(by_backend(stored, case), expected)
    measured = sorted((line.case, line.index) for line in stored.repetitions)
    assert measured == sorted((case, n) for case in CASES for n in range(3)), "each repetition once"


@pytest.mark.parametrize("kind", [VERIFIER, SERVER])
def test_what_was_lost_twice_is_interrupted_and_measured_on_resuming(
    odd_plugins: None, tmp_path: Path, kind: str
) -> None:
    struck = Struck(kind, "repetition 2 of 2", times=2)
    names = ("raise_error", "eager", "bmm")
    stored = run_of(tmp_path, CASES, names, progress=struck, repetitions=2, launches=1, complete=False)
    other = CAUSAL if struck.case == PLAIN else PLAIN
    assert_records(by_backend(stored, other), {"eager": RIGHT, "bmm": RIGHT})
    lost = by_backend(stored, struck.case)
    assert {lost[name].status for name in ("eager", "bmm")} == {"interrupted"}
    if kind == VERIFIER:
        assert {lost[name].reason for name in ("eager", "bmm")} == {"the oracle's process died of SIGKILL"}
    kept = {(line.case, line.index): line for line in stored.repetitions}
    with pytest.warns(
        UserWarning, match="the run was cut off, [23] of its records are missing; continue with"
    ):
        assert attnbench.load(stored.path).exit_code == 3
    attnbench.resume(stored.path)
    again = read_run(stored.path)
    for case in CASES:
        assert_records(by_backend(again, case), EXPECTED)
    assert kept.items() <= {(line.case, line.index): line for line in again.repetitions}.items()
    assert again.finished is not None


def test_a_worker_that_somebody_kills_gets_a_second_try(
    odd_plugins: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One in its check, one in a timed call. A backend that always dies so has crashed."""
    monkeypatch.setenv("ODD_NOTES", str(tmp_path))
    names = ("eager", "dies_once", "third_die_once", "third_die")
    stored = run_of(tmp_path / "run", (PLAIN,), names, repetitions=2)
    assert_records(by_backend(stored), dict.fromkeys(names[:3], RIGHT))
    died = "died of SIGKILL during timed calls"
    assert_records(by_backend(stored), {"third_die": ("crashed", "", died)})
    assert len(stored.repetitions) == 2
    said = capsys.readouterr().err
    assert "attnbench: dies_once: its process died of SIGKILL during a checked call; it is asked" in said
    for name in ("third_die_once", "third_die"):
        assert said.count(f"attnbench: {name}: its process {died}; it is asked again\n") == 1


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [SERVER, VERIFIER])
def test_a_stopped_process_is_found_within_the_timeout(odd_plugins: None, tmp_path: Path, kind: str) -> None:
    struck = Struck(kind, "repetition 2 of 3", signal.SIGSTOP)
    # The verifier has five times as long as a backend.
    timeout_s = 10 if kind == SERVER else 4
    stored = run_of(
        tmp_path, CASES, ("eager", "bmm"), progress=struck, repetitions=3, launches=2, timeout_s=timeout_s
    )
    assert struck.case
    assert [record.reason for record in stored.records if record.status != "ok"] == []
    assert stored.finished.wall_s < 200


@pytest.mark.parametrize("name", ["kills_its_server", "third_kill_its_server"])
def test_a_backend_that_kills_its_server_harms_its_own_row(
    odd_plugins: None, tmp_path: Path, name: str
) -> None:
    stored = run_of(tmp_path, (PLAIN,), ("eager", name, "bmm"), repetitions=2)
    expected = {"eager": RIGHT, "bmm": RIGHT, name: ("crashed", "", "")}
    assert_records(by_backend(stored), expected)


@pytest.mark.parametrize(
    ("name", "timeout_s"),
    [
        ("checked_stop_its_server", 600),
        ("checked_stop_the_verifiers", 600),
        ("every_stop_its_siblings", 600),
        *(
            pytest.param(name, 600, marks=pytest.mark.nightly)
            for name in (
                "every_stop_its_server",
                "every_stop_the_verifiers",
                "checked_stop_itself",
                "every_stop_itself",
            )
        ),
    ],
)
def test_a_backend_that_stops_a_process_is_named_and_the_others_go_on(
    odd_plugins: None, tmp_path: Path, name: str, timeout_s: float
) -> None:
    """A stopped process costs no limit, waited for or not: ten minutes would be seen here."""
    stored = run_of(tmp_path, (PLAIN,), ("eager", name, "bmm"), repetitions=2, timeout_s=timeout_s)
    words = "was stopped (SIGSTOP)"
    assert_records(by_backend(stored), {"eager": RIGHT, "bmm": RIGHT, name: ("crashed", "", words)})
    assert by_backend(stored)[name].reason.endswith(", and no other backend ran then")
    assert stored.finished.wall_s < 600
