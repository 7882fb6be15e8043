"""A record as one flat row of plain values: the columns of every frame, JSON list and CSV file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from attnbench.cases.ids import mask_text, parse_case
from attnbench.reports.judged import Judged
from attnbench.types.columns import COLUMNS, MEASURED
from attnbench.types.record import Accuracy, DropoutNumbers, Record

if TYPE_CHECKING:
    import pandas as pd


Row = dict[str, Any]

_OF_ACCURACY = (
    "rms_error", "max_error", "error_budget", "max_error_budget", "rows", "rows_of", "draws",
)  # fmt: skip
_OF_DROPOUT = {
    "dropout_p": "p", "dropout_p_least": "p_least", "dropout_p_most": "p_most", "dropout_calls": "calls",
}  # fmt: skip
"""Of a case with dropout: that of which its spread would be, the least and most allowed, calls compared."""
_OF_THE_VERDICT = ("p_adjusted", "verdict", "verdict_reason")


def record_row(judged: Judged) -> Row:
    """A record as a row: every column of :data:`COLUMNS`, then those that plugins add.

    None where there is nothing; never NaN or inf.
    """
    record = judged.record
    found = _of_record(record) | _of_verdict(judged) | _of_accuracy(record.accuracy)
    found |= _of_dropout(record.dropout)
    found |= case_fields(record.case) | {"run": judged.run}
    row = {name: _finite(found[name]) for name in COLUMNS}
    return row | {cell.entry.record.name: cell.value for cell in judged.added}


def case_fields(text: str) -> Row:
    """The fields of a case by its id, as columns."""
    case = parse_case(text)
    return {
        "operation": case.operation,
        "B": case.B,
        "H": case.H,
        "Hkv": case.Hkv,
        "Lq": case.Lq,
        "Lk": case.Lk,
        "D": case.D,
        "Dv": case.Dv,
        "E": None if case.layer is None else case.layer.E,
        "mask": mask_text(case.mask),
        "dtype": case.dtype,
        "device": case.device,
        "pass": case.pass_,
        "dropout": case.dropout,
        "cache": case.cache,
        "threads": case.threads,
        "seed": case.seed,
    }


def _of_record(record: Record) -> Row:
    names = [name for name in MEASURED if name not in (*_OF_ACCURACY, *_OF_THE_VERDICT, *_OF_DROPOUT)]
    return {name: getattr(record, name) for name in names} | {
        "notes": "; ".join(record.notes),
        "ran": "; ".join(record.ran),
    }


def _of_verdict(judged: Judged) -> Row:
    return {"p_adjusted": judged.p_adjusted, "verdict": judged.verdict, "verdict_reason": judged.why}


def _of_accuracy(accuracy: Accuracy | None) -> Row:
    return {name: None if accuracy is None else getattr(accuracy, name) for name in _OF_ACCURACY}


def _of_dropout(numbers: DropoutNumbers | None) -> Row:
    return {
        column: None if numbers is None else getattr(numbers, name) for column, name in _OF_DROPOUT.items()
    }


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


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
