"""What is written into a benchmark's ``extra_info``: what it was, whether it's right, how much work it is.

Until a test has come to its end and its outputs were compared, its status is not ``ok``.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

from attnbench import __version__
from attnbench.cases.ids import case_id
from attnbench.pytest_plugin.pairs import Pair
from attnbench.types.record import Accuracy, Record
from attnbench.types.status import Status


class ExtraInfo:
    """What is told of one test. benchmark: the fixture, None where nothing is timed."""

    def __init__(self, pair: Pair, benchmark: Any) -> None:
        self._benchmark = benchmark
        self._said: dict[str, Any] = {}
        self._flops = self._bytes = 0.0
        case = pair.case
        self._name = f"{pair.backend} on {case_id(case)}"
        self._say(
            case=case_id(case), rule=case.rule, backend=pair.backend, dtype=case.dtype, device=case.device,
            threads=case.threads, attnbench=__version__,
        )  # fmt: skip
        self.end("error", "the test did not come to its end")

    def judged(self, record: Record) -> None:
        """Take what the check has found, in numbers."""
        if record.accuracy is not None:
            self._say(**_numbers(record.accuracy))
        if record.notes:
            self._say(notes=list(record.notes))
        if record.kernel_of:
            self._say(kernel_of=record.kernel_of)

    def counted(self, flops: float, bytes_moved: float) -> None:
        """Take the exact counts of a call."""
        self._flops, self._bytes = flops, bytes_moved

    def end(self, status: Status, reason: str) -> str:
        """How it ended, where that isn't well; gives the sentence for the user."""
        self._say(status=status, reason=reason, verified_calls=0)
        return f"{self._name}: {status}: {reason}"

    def right(self, calls: int, verified: int) -> None:
        """It came to its end, and of so many calls these were compared: all right."""
        self._say(status="ok", reason="", calls=calls, verified_calls=verified)
        median_s = self._median_s()
        if median_s:
            self._say(tflops=self._flops / median_s / 1e12, gbps=self._bytes / median_s / 1e9)

    def _say(self, **said: Any) -> None:
        self._said |= said
        if self._benchmark is not None:
            # Anew each time: a test may have put another in its place.
            self._benchmark.extra_info.update(self._said)

    def _median_s(self) -> float:
        """Of one call, s; 0 where nothing was timed."""
        stats = getattr(self._benchmark, "stats", None)
        return float(stats["median"]) if stats else 0.0


def _numbers(accuracy: Accuracy) -> dict[str, float]:
    told = {
        "error_budget": accuracy.error_budget,
        "max_error_budget": accuracy.max_error_budget,
        "rms_error": accuracy.rms_error,
        "max_error": accuracy.max_error,
        "rms_limit": accuracy.rms_limit,
        "max_limit": accuracy.max_limit,
    }
    return {name: value for name, value in told.items() if isfinite(value)}
