from __future__ import annotations

import io
import math

import msgspec
import pandas as pd
import pytest
from report_records import GQA, JUDGED, LAYER, RUN, accuracy, ok

from attnbench.reports.columns import KEYS, frame, record_row
from attnbench.reports.judged import Judged, judge

PROMISED = {
    "case", "rule", "backend", "status", "reason", "median_ms", "ratio", "rms_error", "max_error",
    "error_budget", "max_error_budget", "tflops", "gbps", "peak_extra_bytes", "prepare_ms", "first_call_ms",
    "confidence", "ratio_low", "ratio_high", "ratio_confidence", "p_value", "p_adjusted", "verdict",
    "verdict_reason", "delta", "pairs", "pairs_left_out", "best", "ratio_to_best", "limit_share",
    "faults_per_call", "sets", "timed_calls", "verified_calls", "B", "H", "Hkv", "Lq", "Lk", "D", "Dv",
    "mask", "dtype", "device", "pass",
}  # fmt: skip


def test_a_row_for_each_record_in_order_with_every_column() -> None:
    table = frame(JUDGED)
    assert list(table.columns) == list(KEYS)
    assert set(KEYS) >= PROMISED
    assert table["backend"].tolist() == [record.backend for record in RUN]
    assert table["status"].tolist() == [record.status for record in RUN]


def test_numbers_and_fields_of_the_case_arrive() -> None:
    row = frame(judge([ok("eager", 0.5, scale=2.0)])).iloc[0]
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
    assert frame(judge([ok("eager", 1.0, case=LAYER)]))["E"].tolist() == [256]


def test_kinds_do_not_depend_on_what_is_missing() -> None:
    whole, none = frame(JUDGED), frame([])
    refused = frame([one for one in JUDGED if one.record.status == "unsupported"])
    numbers = whole.select_dtypes("number").columns
    assert len(numbers) == 46
    kinds = whole.dtypes[numbers]
    assert refused.dtypes[numbers].equals(kinds)
    assert none.dtypes[numbers].equals(kinds)
    assert kinds["median_ms"] == "float64"
    assert kinds["peak_extra_bytes"] == "Int64"
    assert kinds["Lq"] == "int64"


def test_what_was_not_measured_is_missing_and_not_zero() -> None:
    table = frame(JUDGED).set_index(["case", "backend"])
    row = table.loc[(GQA, "sdpa_cudnn")]
    assert math.isnan(row["median_ms"])
    assert math.isnan(row["error_budget"])
    assert pd.isna(row["peak_extra_bytes"])
    mismatch = table.loc[(GQA, "chunked")]
    assert math.isnan(mismatch["median_ms"])
    assert mismatch["error_budget"] == pytest.approx(2e6)


def test_rows_hold_neither_nan_nor_infinity() -> None:
    exact_reference = msgspec.structs.replace(accuracy(), reference_rms=0.0, max_error=math.nan)
    odd = ok("bmm", 1.0, accuracy=exact_reference, ratio=math.inf)
    row = record_row(Judged(odd, p_adjusted=math.nan))
    assert (row["error_budget"], row["max_error"], row["ratio"], row["p_adjusted"]) == (None,) * 4
    assert row["rms_error"] == 1.5e-7


def test_what_a_verdict_rests_on_arrives_in_full() -> None:
    table = frame(JUDGED)
    table = table[table["case"] == GQA].set_index("backend")
    flex = table.loc["flex"]
    assert (flex["verdict"], flex["delta"], flex["best"]) == ("unclear", 0.02, "sdpa_flash")
    assert "--budget" in flex["verdict_reason"]
    assert (flex["ratio_low"], flex["ratio_high"]) == pytest.approx((1.026 * 0.97, 1.026 * 1.03))
    assert (flex["p_value"], flex["p_adjusted"]) == pytest.approx((0.0390625, 0.0390625 * 4 / 3))
    assert (flex["pairs"], flex["pairs_left_out"], flex["faults_per_call"]) == (180, 4, 0)
    assert table.loc["eager", "verdict"] == "baseline"
    assert table.loc["eager", ["p_value", "p_adjusted", "ratio_low"]].isna().all()
    assert pd.isna(table.loc["numpy", "verdict"])
    assert table["verdict_reason"].map(bool).sum() == 1


def test_notes_are_one_text() -> None:
    record = msgspec.structs.replace(ok("eager", 1.0), notes=["restarted 3 times", "contended"])
    assert frame(judge([record]))["notes"].tolist() == ["restarted 3 times; contended"]


def test_a_frame_survives_csv() -> None:
    table = frame(JUDGED)
    back = pd.read_csv(io.StringIO(table.to_csv(index=False)), keep_default_na=False, na_values=[""])
    pd.testing.assert_series_equal(back["median_ms"], table["median_ms"])
    assert back["backend"].tolist() == table["backend"].tolist()
