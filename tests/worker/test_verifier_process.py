"""The verifier as a process: what it answers to each request, and whom it names where foreign code raises."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from asked import BUILT_IN_RULES, ENOUGH_S

from attnbench.inputs.draw import Stored
from attnbench.ipc import verifier_messages as rm
from attnbench.ipc.names import PLAIN
from attnbench.ipc.shared_memory import pack, unpack
from attnbench.runner.processes import VerifierFailed, VerifierLink
from attnbench.types.extensions import Source

ONE_KEY = "attention/scaled_dot/H2-Lq3-Lk1-D4/none/float32"
RAISES = "attention/odd_raises/H2-Lq3-Lk2-D4/none/float32"
ODD = Source("odd", "odd_rules", "attnbench-odd", "1.0")


@pytest.fixture
def verifier(monkeypatch: pytest.MonkeyPatch) -> Iterator[VerifierLink]:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "runner" / "odd")
    link = VerifierLink(ENOUGH_S)
    yield link
    link.close()


def drawn(verifier: VerifierLink, index: int) -> dict[str, Stored]:
    found, fd = verifier.ask(rm.GetDraw(index), rm.Arrays)
    arrays = unpack(fd, found.arrays)
    os.close(fd)
    return arrays


def scored(verifier: VerifierLink, who: str, index: int, out: Stored, *, timed: bool = False) -> rm.Scored:
    fd, specs = pack({"out": out}, "float32")
    asked = rm.ScoreTimed((rm.TimedOutput(index, 0, specs),)) if timed else rm.Score(who, index, (specs,))
    found = verifier.ask(asked, rm.Scored, fd)[0]
    os.close(fd)
    return found


def test_it_draws_compares_and_judges_and_names_a_rule_that_raises(verifier: VerifierLink) -> None:
    opened, fd = verifier.ask(rm.OpenCase(ONE_KEY, BUILT_IN_RULES, 5, 1, 1e9), rm.CaseOpened)
    os.close(fd)
    assert opened.pairs == 6
    draws = range(len(opened.stress_inputs) + 1)
    # With one key the answer is its value.
    right = [np.repeat(drawn(verifier, index)["v"], 3, axis=2) for index in draws]
    for who in (PLAIN, "mine", "wrong"):
        for index in draws[:-1]:
            out = -right[index] if who == "wrong" else right[index]
            assert scored(verifier, who, index, out) == rm.Scored("")
    assert scored(verifier, "mine", 0, np.full_like(right[0], np.nan)).check == "not_finite"
    assert scored(verifier, "mine", 0, right[0]) == rm.Scored("")
    assert verifier.ask(rm.Judge("mine"), rm.Judged)[0].problem == ""
    judged = verifier.ask(rm.Judge("wrong"), rm.Judged)[0]
    assert "RMS error" in judged.problem
    assert judged.check == "values"
    assert verifier.ask(rm.TryTrivialAnswers(), rm.Tried)[0].passed == "first_value"
    assert scored(verifier, "mine", draws[-1], right[-1], timed=True) == rm.Scored("")
    assert scored(verifier, "mine", draws[-1], right[0], timed=True).check == "timed_values"

    with pytest.raises(VerifierFailed, match=r"^the oracle failed: ValueError: no outputs of draws"):
        verifier.ask(rm.Judge("nobody"), rm.Judged)
    with pytest.raises(VerifierFailed, match=r"^the oracle failed in the rule 'odd_raises': Zero") as failed:
        verifier.ask(rm.OpenCase(RAISES, ODD, 5, 1, 1e9), rm.CaseOpened)
    assert failed.value.check == "reference"
    with pytest.raises(VerifierFailed, match="brings no rule 'scaled_dot' here"):
        verifier.ask(rm.OpenCase(ONE_KEY, ODD, 5, 1, 1e9), rm.CaseOpened)
