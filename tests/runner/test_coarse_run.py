"""Backends that compute in a coarser arithmetic than the dtype: their status, their time, and their rank."""

from __future__ import annotations

import pytest
from run_parts import LESS_CHECKED, assert_records, by_backend, run_of

from attnbench.plugins.registry import Registry, load_registry
from attnbench.plugins.sources import installed
from attnbench.reports.run import exit_code
from attnbench.results.format import StoredRun
from attnbench.types.extensions import Source

SIZES = "attention/scaled_dot/B1-H2-Lq24-Lk40-D16"
CASE = f"{SIZES}/causal:lower_right/float32/cpu/forward"
HALF = CASE.replace("float32", "bfloat16")
BOTH = CASE.replace("forward", "both")
COARSE = ("bfloat16_inside", "bfloat16_declared", "int8_declared")
RIGHT = ("ok", "", "")


@pytest.fixture(scope="module")
def registry(odd_plugins: None) -> Registry:
    return load_registry([*installed(), Source("coarse", "coarse_backends", "attnbench-odd", "1.0")])


@pytest.fixture(scope="module")
def checked(registry: Registry, tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    others = ("int8_inside", "declared_and_wrong", "scale_off", "reads_between_rows", "uses_between_rows")
    asked = {CASE: ("eager", *COARSE, *others), HALF: COARSE, BOTH: COARSE[:2]}
    out = tmp_path_factory.mktemp("checked")
    return run_of(out, asked, registry=registry, timed=False, without=())


@pytest.fixture(scope="module")
def timed(registry: Registry, tmp_path_factory: pytest.TempPathFactory) -> dict[str, StoredRun]:
    """By what is accepted."""
    return {
        accuracy: run_of(
            tmp_path_factory.mktemp("timed"), (CASE,), ("eager", "bfloat16_inside", "int8_declared"),
            registry=registry, accuracy=accuracy, baseline="eager", without=LESS_CHECKED,
        )
        for accuracy in ("", "bfloat16")
    }  # fmt: skip


def test_rounding_in_a_coarser_arithmetic_is_inaccurate(checked: StoredRun) -> None:
    records = by_backend(checked, CASE)
    expected = {
        "eager": RIGHT,
        "bfloat16_inside": ("inaccurate", "values", "as exact as bfloat16 arithmetic: "),
        "bfloat16_declared": ("inaccurate", "", "in bfloat16 arithmetic, as the backend declares"),
        "int8_declared": ("inaccurate", "", "in int8 arithmetic, as the backend declares"),
    }
    assert_records(records, expected)
    assert [records[name].arithmetic for name in COARSE] == ["bfloat16", "bfloat16", "int8"]
    exact, coarse = records["eager"].accuracy, records["bfloat16_inside"].accuracy
    assert exact is not None
    assert coarse is not None
    assert coarse.rms_error > 1000 * exact.rms_error
    assert coarse.rms_error < coarse.rms_limit


def test_wrong_maths_and_arithmetics_that_are_not_assumed_are_mismatches(checked: StoredRun) -> None:
    records = by_backend(checked, CASE)
    words = "these errors stay as they are on nearly equal inputs"
    assert_records(
        records,
        {
            "scale_off": ("mismatch", "values", words),
            "int8_inside": ("mismatch", "values", "RMS error"),
            "declared_and_wrong": ("mismatch", "values", "RMS error"),
        },
    )


def test_an_arithmetic_as_exact_as_the_dtype_is_right(checked: StoredRun) -> None:
    records = by_backend(checked, HALF)
    assert_records(records, dict.fromkeys(COARSE[:2], RIGHT))
    assert_records(records, {"int8_declared": ("inaccurate", "", "in int8 arithmetic")})


def test_gradients_are_held_to_a_declared_arithmetic_and_none_is_assumed(checked: StoredRun) -> None:
    records = by_backend(checked, BOTH)
    assert_records(
        records,
        {"bfloat16_declared": ("inaccurate", "", "bfloat16"), "bfloat16_inside": ("mismatch", "values", "")},
    )


def test_only_what_a_backend_does_not_declare_fails_a_run(checked: StoredRun) -> None:
    records = by_backend(checked, CASE)
    assert exit_code([records["eager"], records["int8_declared"]], {"int8_declared"}) == 0
    assert exit_code([records["eager"], records["bfloat16_inside"]]) == 1


def test_an_inaccurate_backend_keeps_its_time_and_is_not_ranked(timed: dict[str, StoredRun]) -> None:
    records = by_backend(timed[""], CASE)
    for name in ("bfloat16_inside", "int8_declared"):
        assert records[name].status == "inaccurate", records[name].reason
        assert records[name].median_ms
        assert records[name].ratio
        assert records[name].verified_calls > 0
    # On a busy machine no time may be credible.
    assert {record.best for record in records.values()} <= {"eager", None}


def test_what_a_user_accepts_is_ranked_and_still_named(timed: dict[str, StoredRun]) -> None:
    records = by_backend(timed["bfloat16"], CASE)
    assert records["bfloat16_inside"].status in ("ok", "suspect")
    assert records["bfloat16_inside"].arithmetic == "bfloat16"
    assert records["int8_declared"].status == "inaccurate"


def test_nan_between_rows_is_a_note_where_only_reading_it_harms(checked: StoredRun) -> None:
    records = by_backend(checked, CASE)
    assert_records(records, {"reads_between_rows": RIGHT})
    assert any("contiguous inputs mend it" in note for note in records["reads_between_rows"].notes)
    words = "on inputs of the family strided: "
    assert_records(records, {"uses_between_rows": ("mismatch", "values", words)})
    assert "Contiguous inputs pass" in records["uses_between_rows"].reason
