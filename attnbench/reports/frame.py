"""Records as a tidy pandas frame."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from attnbench.reports.judged import Judged
from attnbench.reports.rows import record_row
from attnbench.types.columns import COLUMNS

if TYPE_CHECKING:
    import pandas as pd

_FLOATS = (
    "median_ms", "low_ms", "high_ms", "confidence", "ratio", "ratio_low", "ratio_high", "ratio_confidence",
    "p_value", "p_adjusted", "delta", "ratio_to_best", "rms_error", "max_error", "error_budget",
    "max_error_budget", "tflops", "gbps", "limit_share", "faults_per_call", "prepare_ms", "first_call_ms",
    "dropout_p", "dropout_p_least", "dropout_p_most", "dropout",
)  # fmt: skip
_COUNTS = (
    "sets", "pairs", "pairs_left_out", "timed_calls", "verified_calls", "B", "H", "Hkv", "Lq", "Lk", "D",
    "Dv", "threads", "seed",
)  # fmt: skip
_COUNTS_OR_NONE = ("peak_extra_bytes", "rows", "rows_of", "draws", "dropout_calls", "E")


def frame(judged: Iterable[Judged], metrics: Sequence[str] = ()) -> pd.DataFrame:
    """A row for each record, in their order, with the columns of :data:`attnbench.types.columns.COLUMNS`.

    metrics: columns that plugins add, which come last.

    Times are in ms, ``ratio`` is time over the baseline's, ``error_budget`` and ``max_error_budget`` are
    errors over those of the plain reference. What there isn't is NaN in a float column and NA in a whole one.
    """
    import pandas as pd

    rows = [record_row(one) for one in judged]
    kinds = dict.fromkeys((*_FLOATS, *metrics), "float64") | dict.fromkeys(_COUNTS, "int64")
    return pd.DataFrame(rows, columns=[*COLUMNS, *metrics]).astype(
        kinds | dict.fromkeys(_COUNTS_OR_NONE, "Int64")
    )
