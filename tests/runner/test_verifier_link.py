"""The line to the verifier: what it can't do, its death and its silence are one sentence each."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from attnbench.ipc import verifier_messages as rm
from attnbench.plugins.registry import load_registry
from attnbench.runner.context import open_context
from attnbench.runner.link import HelperLost, VerifierFailed, VerifierLink
from attnbench.runner.pool import WorkerPool

CASE = "attention/dot/B1-H2-Lq16-Lk16-D8/none/float32/cpu/forward"


def opening(case: str = CASE, timed_draws: int = 2) -> rm.OpenCase:
    rule = case.split("/")[1]
    source = load_registry().rules[rule].source
    return rm.OpenCase(case, source, timed_entropy=7, timed_draws=timed_draws, oracle_flops=1e9)


@pytest.fixture
def verifier() -> Iterator[VerifierLink]:
    link = VerifierLink(60)
    yield link
    link.close()


def pid(link: VerifierLink) -> int:
    return link._started.process.pid


def sentence(link: VerifierLink) -> str:
    with pytest.raises(HelperLost) as caught:
        link.ask(opening(), rm.CaseOpened)
    return str(caught.value)


def test_nothing_is_judged_before_a_case_is_open(verifier: VerifierLink) -> None:
    with pytest.raises(VerifierFailed, match=r"^the oracle failed: GetDraw before a case is open$"):
        verifier.ask(rm.GetDraw(0), rm.Arrays)
    assert verifier.alive


def test_a_verifier_that_dies_says_so_ever_after(verifier: VerifierLink) -> None:
    os.kill(pid(verifier), signal.SIGKILL)
    assert sentence(verifier) == "the oracle's process ended: "
    assert not verifier.alive
    assert sentence(verifier) == "the oracle's process ended: "
    assert verifier.close() == verifier.close() == ""


def test_a_verifier_that_is_stopped_is_killed() -> None:
    link = VerifierLink(0.2)
    os.kill(pid(link), signal.SIGSTOP)
    # Stopped, it can't even end by itself when its line closes.
    assert sentence(link) == "the oracle took more than 0.2 s"
    assert not link.alive
    assert link._started.process.returncode == -signal.SIGKILL


def test_a_case_that_can_not_be_is_the_oracles_failure(verifier: VerifierLink) -> None:
    with pytest.raises(
        VerifierFailed, match=r"^the oracle failed: ValueError: .* brings no rule 'dto' here$"
    ):
        verifier.ask(replace_case(opening(), CASE.replace("dot", "dto")), rm.CaseOpened)
    assert verifier.ask(opening(timed_draws=0), rm.CaseOpened)[0].pairs == 2 * 16 * 16


def replace_case(request: rm.OpenCase, case: str) -> rm.OpenCase:
    return rm.OpenCase(
        case, request.rule_source, request.timed_entropy, request.timed_draws, request.oracle_flops
    )


def test_each_case_has_a_verifier_of_its_own_and_a_dead_one_is_replaced(pool: WorkerPool) -> None:
    with pool.lent_verifier() as first, pool.lent_verifier() as second:
        assert first is not second
        os.kill(pid(first), signal.SIGKILL)
        os.kill(pid(second), signal.SIGKILL)
        assert "process ended" in sentence(first)
        assert "process ended" in sentence(second)
    with pool.lent_verifier() as third:
        assert third not in (first, second)
        assert third.ask(opening(timed_draws=0), rm.CaseOpened)[0].families


def test_draws_depend_on_the_entropy_only_where_they_are_timed(verifier: VerifierLink) -> None:
    """The check is the same on every machine; what is timed is drawn anew for each run."""

    def draws(entropy: int) -> list[bytes]:
        request = rm.OpenCase(CASE, opening().rule_source, entropy, 2, 1e9)
        with open_context(verifier, request, 1, 2**30) as context:
            assert context.check_draws > 0
            return [os.pread(draw.fd, 2**20, 0) for draw in context.draws]

    first, second = draws(1), draws(2)
    check = len(first) - 2
    assert first[:check] == second[:check]
    assert set(first[check:]).isdisjoint(second[check:])
    assert draws(1) == first
