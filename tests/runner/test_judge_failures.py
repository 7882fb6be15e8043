"""The judge itself fails: it is asked again by a new process, and then nothing is said of a backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from run_parts import CAUSAL, LESS_CHECKED, PLAIN, assert_records, by_backend, run_of

from attnbench.ipc import verifier_messages as rm
from attnbench.reports.run import exit_code, without_success
from attnbench.runner.processes import VerifierFailed, VerifierLink, WorkerFailed
from attnbench.types.record import Record

pytestmark = pytest.mark.usefixtures("kept_servers")

RIGHT = ("ok", "", "")
WORDS = "the oracle failed: ValueError: a slip of the judge"


class FailingJudge:
    """Lets verifiers fail where they are asked something, so many times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, request: type, who: str = "", times: int = 1) -> None:
        self._request, self._who, self._left = request, who, times
        self.asked: list[int] = []
        """The processes that were asked, in order."""
        answered = VerifierLink.ask

        def ask(link: VerifierLink, request: Any, expects: Any, fd: int = -1) -> Any:
            if isinstance(request, self._request) and getattr(request, "who", "") == self._who:
                self.asked.append(link.pid)
                if self._left:
                    self._left -= 1
                    link.failed = True
                    raise VerifierFailed(WORDS)
            return answered(link, request, expects, fd)

        monkeypatch.setattr(VerifierLink, "ask", ask)


@pytest.mark.parametrize(
    ("request_", "who", "without"),
    [(rm.OpenCase, "", LESS_CHECKED), (rm.Judge, "bmm", LESS_CHECKED), (rm.Judge, "bmm", ())],
    ids=["the case", "a backend", "a backend on the variant case"],
)
def test_a_judge_that_fails_once_is_asked_again_by_a_new_process(
    odd_plugins: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request_: type,
    who: str,
    without: tuple[str, ...],
) -> None:
    judge = FailingJudge(monkeypatch, request_, who)
    stored = run_of(tmp_path, (PLAIN,), ("eager", "bmm"), timed=False, without=without)
    assert_records(by_backend(stored), {"eager": RIGHT, "bmm": RIGHT})
    assert judge.asked[1] != judge.asked[0]


@pytest.mark.parametrize("timed", [False, True])
def test_a_judge_that_fails_twice_leaves_one_backend_unjudged(
    odd_plugins: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timed: bool
) -> None:
    """In the check, and where outputs of timed calls are compared, which are of nobody by name."""
    if timed:
        FailingJudge(monkeypatch, rm.ScoreTimed, times=99)
    else:
        FailingJudge(monkeypatch, rm.Judge, "bmm", times=99)
    stored = run_of(tmp_path, (PLAIN, CAUSAL), ("eager", "bmm"), timed=timed)
    unjudged = ("unjudged", "", WORDS)
    for case in (PLAIN, CAUSAL):
        assert_records(by_backend(stored, case), {"eager": unjudged if timed else RIGHT, "bmm": unjudged})
    assert exit_code(stored.records, {"bmm"}) == 4
    assert without_success(stored.records, {"bmm"}) == []


def test_a_plain_reference_that_fails_is_no_verdict_on_a_backend(
    odd_plugins: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_memory(*words: Any, **more: Any) -> None:
        raise WorkerFailed("out_of_memory", "the call ran out of memory")

    monkeypatch.setattr("attnbench.runner.case.check_reference", out_of_memory)
    stored = run_of(tmp_path, (PLAIN,), ("eager",), timed=False)
    words = "the plain reference failed: the call ran out of memory"
    assert_records(by_backend(stored), {"eager": ("unjudged", "reference", words)})


def test_what_is_known_of_others_decides_the_exit_status() -> None:
    unjudged = Record(PLAIN, "dot", "eager", "unjudged", WORDS)
    for status, code in (("mismatch", 1), ("crashed", 3), ("ok", 4), ("unsupported", 4)):
        assert exit_code([unjudged, Record(PLAIN, "dot", "bmm", status)]) == code
