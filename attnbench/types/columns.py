"""The columns and formats that attnbench itself has; a plugin must call its own otherwise."""

from __future__ import annotations

from typing import Literal, get_args

MEASURED = (
    "case", "rule", "backend", "status", "failed_check", "reason", "median_ms", "low_ms", "high_ms",
    "confidence", "ratio", "ratio_low", "ratio_high", "ratio_confidence", "p_value", "p_adjusted", "verdict",
    "verdict_reason", "baseline", "delta", "best", "ratio_to_best", "rms_error", "max_error", "error_budget",
    "max_error_budget", "tflops", "gbps", "limit_share", "peak_extra_bytes", "faults_per_call", "prepare_ms",
    "first_call_ms", "sets", "pairs", "pairs_left_out", "timed_calls", "verified_calls", "rows", "rows_of",
    "draws", "dropout_p", "dropout_p_least", "dropout_p_most", "dropout_calls", "kernel_of", "ran", "notes",
)  # fmt: skip
OF_THE_CASE = (
    "operation", "B", "H", "Hkv", "Lq", "Lk", "D", "Dv", "E", "mask", "dtype", "device", "pass", "dropout",
    "cache", "threads", "seed",
)  # fmt: skip
COLUMNS = (*MEASURED, *OF_THE_CASE, "run")
"""Of JSON, CSV and frames."""

HEADS = (
    "case", "backend", "status", "time", "±", "ratio", "interval", "verdict", "×best", "limit", "rms error",
    "max error", "rms/ref", "max/ref", "TFLOP/s", "GB/s", "extra", "prepare", "first call", "reason", "ran",
)  # fmt: skip
"""Of tables. Besides these there is ``×`` with the name of the baseline."""


Format = Literal["table", "json", "csv", "markdown"]
FORMATS: tuple[Format, ...] = get_args(Format)
