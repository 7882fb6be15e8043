from __future__ import annotations

import io
import math

import msgspec
import pandas as pd
import pytest
from report_records import GQA, LAYER, RUN, accuracy, ok

from attnbench.reports.frame import frame
from attnbench.reports.rows import COLUMNS, record_row

PROMISED = {
    "case", "rule", "backend", "status", "reason", "median_ms", "ratio", "rms_error", "max_error",
    "error_budget", "max_error_budget", "tflops", "gbps", "peak_extra_bytes", "prepare_ms", "first_call_ms",
    "sets", "timed_calls", "verified_calls", "B", "H", "Hkv", "Lq", "Lk", "D", "Dv", "mask", "dtype",
    "device", "pass",
}  # fmt: skip


def test_a_row_for_each_record_in_order_with_every_column() -> None:
    table = frame(RUN)
    assert list(table.columns) == list(COLUMNS)
    assert set(COLUMNS) >= PROMISED
    assert table["backend"].tolist() == [record.backend for record in RUN]
    assert table["status"].tolist() == [record.status for record in RUN]


def test_numbers_and_fields_of_the_case_arrive() -> None:
    row = frame([ok("eager", 0.5, scale=2.0)]).iloc[0]
    assert row["median_ms"] == 0.5
    assert row["rms_error"] == pytest.approx(3e-7)
    assert row["error_budget"] == pytest.approx(2.0)
    assert row["max_error_budget"] == pytest.approx(2.2)
    assert row["peak_extra_bytes"] == 4 * 2**20
    assert row["case"] == GQA
    assert row[["B", "H", "Hkv", "Lq", "Lk", "D", "Dv"]].tolist() == [2, 8, 2, 128, 128, 64, 64]
    assert row[["mask", "dtype", "device", "pass", "cache"]].tolist() == [
        "causal", "float32", "cpu", "forward", "hot",
    ]  # fmt: skip
    assert pd.isna(row["E"])
    assert frame([ok("eager", 1.0, case=LAYER)])["E"].tolist() == [256]


def test_kinds_do_not_depend_on_what_is_missing() -> None:
    whole, none = frame(RUN), frame([])
    refused = frame([record for record in RUN if record.status == "unsupported"])
    numbers = whole.select_dtypes("number").columns
    assert len(numbers) == 29
    kinds = whole.dtypes[numbers]
    assert refused.dtypes[numbers].equals(kinds)
    assert none.dtypes[numbers].equals(kinds)
    assert kinds["median_ms"] == "float64"
    assert kinds["peak_extra_bytes"] == "Int64"
    assert kinds["Lq"] == "int64"


def test_what_was_not_measured_is_missing_and_not_zero() -> None:
    table = frame(RUN).set_index(["case", "backend"])
    row = table.loc[(GQA, "sdpa_cudnn")]
    assert math.isnan(row["median_ms"])
    assert math.isnan(row["error_budget"])
    assert pd.isna(row["peak_extra_bytes"])
    mismatch = table.loc[(GQA, "chunked")]
    assert math.isnan(mismatch["median_ms"])
    assert mismatch["error_budget"] == pytest.approx(2e6)


def test_rows_hold_neither_nan_nor_infinity() -> None:
    exact_reference = msgspec.structs.replace(accuracy(), reference_rms=0.0, max_error=math.nan)
    row = record_row(msgspec.structs.replace(ok("eager", 1.0), accuracy=exact_reference, ratio=math.inf))
    assert (row["error_budget"], row["max_error"], row["ratio"]) == (None, None, None)
    assert row["rms_error"] == 1.5e-7


def test_notes_are_one_text() -> None:
    record = msgspec.structs.replace(ok("eager", 1.0), notes=["restarted 3 times", "contended"])
    assert frame([record])["notes"].tolist() == ["restarted 3 times; contended"]


def test_a_frame_survives_csv() -> None:
    table = frame(RUN)
    back = pd.read_csv(io.StringIO(table.to_csv(index=False)), keep_default_na=False, na_values=[""])
    pd.testing.assert_series_equal(back["median_ms"], table["median_ms"])
    assert back["backend"].tolist() == table["backend"].tolist()
