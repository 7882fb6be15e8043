"""The status of a timed backend: what its check found, and what makes its time doubtful."""

from __future__ import annotations

import pytest
from made_repetitions import block, repetition_line, simple_repetitions
from msgspec.structs import replace

from attnbench.stats.answer import is_failure
from attnbench.stats.records import not_derived, timed_records
from attnbench.types.record import CandidatePlan, CaseLine, Failure, Record
from attnbench.types.status import STATUSES

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


def test_what_failed_has_no_right_output_and_no_reason_not_to_run() -> None:
    records = {status: Record(CASE, "dot", "mine", status) for status in STATUSES}
    right = {status for status, record in records.items() if not is_failure(record)}
    assert right == {"ok", "unsupported", "unavailable"}


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


def test_a_record_has_its_ratio_of_pairs_and_is_doubted_where_its_numbers_are_others() -> None:
    plan = CandidatePlan(None, 1.0, 1.0, [1.0], fresh=True, calls=1, samples=1, warm_calls=0, repetitions=9)
    line = CaseLine(CASE, 1, 5, 16, 2e6, 3e6, {"base": plan, "mine": plan})
    times = {"base": [1000 + n for n in range(9)], "mine": [2000 + 2 * n for n in range(9)]}
    repetitions = [replace(one, case=CASE) for one in simple_repetitions(**times)]
    base, mine = timed_records(line, repetitions, dict.fromkeys(times), "base", 0.02)
    assert (mine.ratio, mine.ratio_low, mine.ratio_high) == pytest.approx((2, 2, 2))
    assert (mine.ratio_confidence, mine.p_value, mine.pairs) == pytest.approx((1 - 2**-8, 2**-8, 9))
    assert (mine.baseline, mine.best, mine.ratio_to_best) == ("base", "base", pytest.approx(2))
    assert (base.ratio, base.ratio_low, base.p_value) == (1, None, None)
    # 2e6 operations and 3e6 bytes in 1,004 ns.
    assert (base.tflops, base.gbps) == pytest.approx((2e6 / 1004e-9 / 1e12, 3e6 / 1004e-9 / 1e9))
    wrong = {"none": {}, "another": {"ratio": 1.9}, "lost": {"ratio_low": None}, "made up": {"gbps": None}}
    said = {
        name: list(not_derived({"baseline": "base", "delta": 0.02}, [line], repetitions,
            [base, replace(mine, **changes)]))
        for name, changes in wrong.items()
    }  # fmt: skip
    assert said["none"] == []
    words = f"the record of mine in {CASE!r} does not follow from its samples: "
    assert said["another"] == [f"{words}ratio is 1.9, and its repetitions give {mine.ratio}"]
    assert said["lost"] == [f"{words}ratio_low is None, and its repetitions give {mine.ratio_low}"]
    assert said["made up"] == [f"{words}gbps is None, and its repetitions give {mine.gbps}"]
