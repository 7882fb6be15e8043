"""Other tools' rules may do anything: what they do wrong is named, and the rest goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from attnbench.selftest.peers import Peers
from attnbench.types.verdict import SampleSets, VerdictRule


def rule(name: str, decide: Callable[[SampleSets, SampleSets], Any]) -> VerdictRule:
    return VerdictRule(name, "a test", decide)


def raising(failure: BaseException) -> Callable[[SampleSets, SampleSets], Any]:
    def decide(contender: SampleSets, baseline: SampleSets) -> Any:
        raise failure

    return decide


FINE = rule("fine", lambda contender, baseline: "slower")


def test_every_rule_is_asked_with_the_samples() -> None:
    asked: list[tuple[SampleSets, SampleSets]] = []

    def decide(contender: SampleSets, baseline: SampleSets) -> Any:
        asked.append((contender, baseline))
        return "unclear"

    peers = Peers([rule("asks", decide), FINE])
    assert peers.words([[2.0]], [[1.0]]) == {"asks": "unclear", "fine": "slower"}
    assert asked == [([[2.0]], [[1.0]])]
    assert peers.faults == {}


@pytest.mark.parametrize(
    ("decide", "fault"),
    [
        (raising(ValueError("no\nsense")), "raised ValueError: no sense"),
        (raising(SystemExit(3)), "raised SystemExit: 3"),
        (raising(RecursionError()), "raised RecursionError"),
        (lambda contender, baseline: "worse", "said worse, which is none of faster, slower, same, unclear"),
        (lambda contender, baseline: None, "said None, which is none of faster, slower, same, unclear"),
        (lambda contender, baseline: ["slower"], "said ['slower'], which is none of"),
        (lambda contender: "slower", "raised TypeError: "),
    ],
)
def test_a_rule_that_fails_is_named_and_asked_no_more(decide: Any, fault: str) -> None:
    peers = Peers([rule("bad", decide), FINE])
    for _ in range(2):
        assert peers.words([[1.0]], [[1.0]]) == {"fine": "slower"}
    assert list(peers.faults) == ["bad"]
    assert peers.faults["bad"].startswith(fault)
    assert peers.names == ("fine",)


def test_ctrl_c_is_the_users() -> None:
    with pytest.raises(KeyboardInterrupt):
        Peers([rule("slow", raising(KeyboardInterrupt()))]).words([[1.0]], [[1.0]])
