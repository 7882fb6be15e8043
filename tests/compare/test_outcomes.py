"""The status of a timed backend: what its check found, and what makes its time doubtful."""

from __future__ import annotations

import pytest
from made_repetitions import block, repetition_line

from attnbench.stats.records import timed_records
from attnbench.types.record import CandidatePlan, CaseLine, Failure

CASE = "attention/dot/B1-H1-Lq4-Lk4-D4/none/float32/cpu/forward"
DECLARED = "in bfloat16 arithmetic, as the backend declares"
FOUND = "as exact as bfloat16 arithmetic: RMS error 0.01"


def outcome(
    arithmetic: str = "", inexact: str = "", *, clock: bool = True, accuracy: str = ""
) -> tuple[str, str, str]:
    """Return status, reason and failed check of a backend. clock: whether its clock is right."""
    plan = CandidatePlan(
        None, 1.0, 1.0, [1.0], fresh=True, arithmetic=arithmetic, inexact=inexact,
        calls=1, samples=6, warm_calls=0, repetitions=3, segments=1,
    )  # fmt: skip
    line = CaseLine(CASE, 1, 5, 16, 1.0, 1.0, {"mine": plan})
    taken = block([1_000_000] * 6, cpu_ns=[1_000_000 if clock else 9_000_000] * 6)
    repetitions = [repetition_line(index, mine=[taken]) for index in range(3)]
    (record,) = timed_records(line, repetitions, {"mine": None}, "", 0.02, accuracy)
    assert record.median_ms == 1.0
    return record.status, record.reason.replace("\n", " "), record.failed_check


def test_right_outputs_and_a_right_clock_are_ok() -> None:
    assert outcome() == ("ok", "", "")


def test_a_wrong_clock_makes_a_time_suspect() -> None:
    status, reason, check = outcome(clock=False)
    assert (status, check) == ("suspect", "clock")
    assert "9 ms of CPU time by the system's" in reason


@pytest.mark.parametrize(
    ("inexact", "said", "check"), [("", DECLARED, ""), ("RMS error 0.01", FOUND, "values")]
)
def test_a_coarser_arithmetic_stays_inaccurate_and_names_a_wrong_clock_too(
    inexact: str, said: str, check: str
) -> None:
    assert outcome("bfloat16", inexact) == ("inaccurate", said, check)
    status, reason, failed = outcome("bfloat16", inexact, clock=False)
    assert (status, failed) == ("inaccurate", check or "clock")
    assert reason.startswith(f"{said}; its samples take 1 ms by its own clock")


def test_an_arithmetic_that_the_user_accepts_is_ok() -> None:
    assert outcome("bfloat16", "RMS error 0.01", accuracy="bfloat16") == ("ok", "", "")
    assert outcome("bfloat16", "RMS error 0.01", accuracy="tf32")[0] == "inaccurate"


def test_a_backend_that_failed_or_has_no_samples_has_no_time() -> None:
    plan = CandidatePlan(None, 1.0, 1.0, [1.0], fresh=True, calls=1, samples=6, warm_calls=0, repetitions=3)
    line = CaseLine(CASE, 1, 5, 16, 1.0, 1.0, {"mine": plan})
    (failed,) = timed_records(line, [], {"mine": Failure("timeout", "too slow", "timeout")}, "", 0.02)
    assert (failed.status, failed.reason, failed.failed_check) == ("timeout", "too slow", "timeout")
    (lost,) = timed_records(line, [], {"mine": None}, "", 0.02)
    assert (lost.status, lost.reason) == ("error", "the run file has no repetition with its samples")
