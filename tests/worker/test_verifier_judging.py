"""A verifier's words on outputs: right ones pass, wrong ones are named to the element."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest
from asked import BUILT_IN_RULES, OUTSPOKEN, SPECIAL_FAMILIES, attend
from msgspec import structs

from attnbench.inputs.draw import store, widen
from attnbench.ipc import verifier_messages as rm
from attnbench.ipc.shared_memory import pack, unpack
from attnbench.runner.link import VerifierLink
from attnbench.types.extensions import Source

Change = Callable[[np.ndarray], None]

TWO_DRAWS = "attention/dot/B2-H4-Hkv2-L64-D8/none/float32"


class Opened:
    """A case that is open at a verifier, and outputs computed for it by loops in float64."""

    def __init__(
        self,
        verifier: VerifierLink,
        case: str,
        oracle_flops: float = 1e9,
        source: Source = BUILT_IN_RULES,
    ) -> None:
        self.verifier = verifier
        self.dtype = case.rsplit("/", 1)[1]
        # Families are another module's: here every draw of the check is of ordinary inputs.
        opening = rm.OpenCase(case, source, 5, 2, oracle_flops, without=SPECIAL_FAMILIES)
        answer, fd = verifier.ask(opening, rm.CaseOpened)
        os.close(fd)
        self.check_draws = len(answer.families)

    def right(self, index: int, change: int = 0) -> np.ndarray:
        answer, fd = self.verifier.ask(rm.GetDraw(index, change), rm.Arrays)
        arrays = unpack(fd, answer.arrays)
        os.close(fd)
        return store(attend(*(widen(arrays[name], self.dtype) for name in "qkv")), self.dtype)

    def score(self, who: str, index: int, output: np.ndarray) -> str:
        fd, (spec,) = pack({"out": output}, self.dtype)
        try:
            return self.verifier.ask(rm.Score(who, index, ((spec,),)), rm.Scored, fd)[0].problem
        finally:
            os.close(fd)

    def timed(self, *outputs: tuple[int, int, np.ndarray]) -> rm.Scored:
        """What is said of outputs of timed calls: on which draw, after which change."""
        fd, specs = pack({str(i): output for i, (_, _, output) in enumerate(outputs)}, self.dtype)
        asked = tuple(
            rm.TimedOutput(index, change, (structs.replace(spec, name="out"),))
            for (index, change, _), spec in zip(outputs, specs, strict=True)
        )
        try:
            return self.verifier.ask(rm.ScoreTimed(asked), rm.Scored, fd)[0]
        finally:
            os.close(fd)

    def judge(self, who: str) -> rm.Judged:
        return self.verifier.ask(rm.Judge(who), rm.Judged)[0]

    def score_all(self, who: str, change: Change = lambda output: None, timed: bool = False) -> list[str]:
        words = []
        for index in range(self.check_draws + (2 if timed else 0)):
            output = self.right(index)
            if index == 1:
                change(output)
            words.append(self.score(who, index, output))
        return words


def test_right_outputs_pass_with_their_errors_in_numbers(verifier: VerifierLink) -> None:
    opened = Opened(verifier, TWO_DRAWS)
    assert opened.score_all("") == opened.score_all("mine") == ["", ""]
    judged = opened.judge("mine")
    accuracy = judged.accuracy
    assert judged.problem == ""
    assert (accuracy.rows, accuracy.rows_of, accuracy.draws) == (64, 64, 2)
    # Rounded once to float32: off by less than half a unit in the last place, and not by nothing.
    assert 0 < accuracy.rms_error < 2.0**-24 * 2
    assert (accuracy.rms_error, accuracy.max_error) == (accuracy.reference_rms, accuracy.reference_max)
    assert accuracy.error_budget == accuracy.max_error_budget == 1


def test_one_wrong_element_is_named_with_what_was_expected(verifier: VerifierLink) -> None:
    opened = Opened(verifier, TWO_DRAWS)
    opened.score_all("")
    seen: list[float] = []

    def nudge(output: np.ndarray) -> None:
        seen.append(float(output[1, 0, 2, 3]))
        output[1, 0, 2, 3] += 0.5

    # Of a draw of the check nothing is said by itself: the draws are judged together.
    assert opened.score_all("mine", nudge) == ["", ""]
    problem = opened.judge("mine").problem
    assert f"worst at (b=1, h=0, i=2, d=3): got {seen[0] + 0.5:.6g}, expected {seen[0]:.6g}" in problem
    assert "largest error 0.5 is above" in problem
    assert opened.score_all("yours") == ["", ""]
    assert opened.judge("yours").problem == ""


@pytest.mark.parametrize(("value", "word"), [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "-inf")])
def test_what_is_not_finite_is_named(verifier: VerifierLink, value: float, word: str) -> None:
    opened = Opened(verifier, TWO_DRAWS)
    opened.score_all("")

    def spoil(output: np.ndarray) -> None:
        output[1, 3, 60:62, 7] = value

    opened.score_all("mine", spoil)
    problem = opened.judge("mine").problem
    assert problem.startswith(
        f"element (b=1, h=3, i=60, d=7) and 1 more are not finite: got {word}, expected "
    )


def test_a_timed_output_is_judged_at_once(verifier: VerifierLink) -> None:
    opened = Opened(verifier, TWO_DRAWS)
    opened.score_all("", timed=True)
    opened.score_all("mine")
    late = opened.right(3)
    assert opened.timed((2, 0, opened.right(2)), (3, 0, late)).problem == ""
    stale = opened.timed((2, 0, opened.right(2)), (3, 0, opened.right(2)))
    assert "RMS error" in stale.problem
    assert (stale.place, stale.transform) == (1, "")
    late[0, 1, 2, 3] = np.nan
    assert opened.timed((3, 0, late)).problem.startswith("element (b=0, h=1, i=2, d=3) is not finite")
    # It counts in no verdict on the check.
    assert opened.judge("mine").problem == ""
    assert opened.judge("mine").accuracy.draws == 2


def test_a_timed_output_is_judged_after_its_law(verifier: VerifierLink) -> None:
    """The inputs of a change have the answer that attention gives; that to others is told with the law."""
    opened = Opened(verifier, TWO_DRAWS)
    opened.score_all("", timed=True)
    right = opened.right(3, change=77)
    assert opened.timed((3, 77, right)).problem == ""
    stale = opened.timed((3, 78, right))
    assert "RMS error" in stale.problem
    assert stale.transform.startswith("batches permuted, ") or "queries permuted" in stale.transform
    assert "RMS error" in opened.timed((2, 77, right)).problem
    right[1, 2, 60, 7] += 8
    # Named where it is in the output, not where it was before the change.
    assert "worst at (b=1, h=2, i=60, d=7)" in opened.timed((3, 77, right)).problem


def test_where_the_oracle_costs_too_much_rows_are_compared(verifier: VerifierLink) -> None:
    opened = Opened(verifier, "attention/dot/B1-H2-Lq256-Lk32-D16/none/float32", oracle_flops=1)
    edges = [0, 63, 64, 127, 128, 255]
    opened.score_all("")

    def spoil_others(output: np.ndarray) -> None:
        output[:, :, 1:] += 1

    opened.score_all("mine", spoil_others)
    judged = opened.judge("mine")
    assert (judged.accuracy.rows, judged.accuracy.rows_of) == (16, 256)
    assert "(i counts the 16 rows compared)" in judged.problem
    for row in edges:

        def spoil(output: np.ndarray, row: int = row) -> None:
            output[0, 1, row, 5] = np.nan

        opened.score_all("mine", spoil)
        assert "is not finite" in opened.judge("mine").problem
    # Of the others ten are compared: 240 can be wrong unseen, and no more.
    unseen = 0
    for row in range(1, 256):

        def spoil(output: np.ndarray, row: int = row) -> None:
            output[0, 1, row, 5] = np.nan

        output = opened.right(1)
        spoil(output)
        opened.score("mine", 1, output)
        unseen += opened.judge("mine").problem == ""
    assert unseen == 240


def test_half_precision_is_compared_by_its_numbers(verifier: VerifierLink) -> None:
    opened = Opened(verifier, "attention/dot/B2-H4-L64-D8/none/bfloat16")
    opened.score_all("")
    opened.score_all("mine")
    assert opened.judge("mine").problem == ""

    def flip_sign(output: np.ndarray) -> None:
        output[0, 0, 0, 0] ^= 0x8000

    opened.score_all("mine", flip_sign)
    assert "worst at (b=0, h=0, i=0, d=0)" in opened.judge("mine").problem


def test_an_oracle_of_nan_lets_nobody_pass(verifier: VerifierLink) -> None:
    opened = Opened(verifier, "attention/nan/B2-H4-L64-D8/none/float32", source=OUTSPOKEN)
    opened.score_all("", lambda output: None)
    opened.score_all("mine", lambda output: output.fill(np.nan))
    assert "not finite" in opened.judge("mine").problem
