"""Gradients in real runs: checked part by part, timed, and verified while they are timed."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_parts import PLAIN, by_backend, run_of

from attnbench.types.record import Record

PARTS = {"both": {"out", "q", "k", "v"}, "backward": {"q", "k", "v"}}
SETS = 2


def case(pass_: str) -> str:
    return PLAIN.replace("forward", pass_)


@pytest.fixture(scope="module", params=["both", "backward"])
def timed(
    request: pytest.FixtureRequest, odd_plugins: None, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, dict[str, Record]]:
    backends = ("eager", "bmm", "sdpa_math", "wrong_dk", "wrong_dv_when_timed", "forgets_k", "numpy")
    stored = run_of(tmp_path_factory.mktemp(request.param), (case(request.param),), backends, sets=SETS)
    return request.param, by_backend(stored, case(request.param))


@pytest.mark.parametrize("backend", ["eager", "bmm", "sdpa_math"])
def test_right_gradients_are_timed_and_verified(timed: tuple[str, dict[str, Record]], backend: str) -> None:
    pass_, records = timed
    record = records[backend]
    assert record.status in ("ok", "suspect"), record.reason
    assert record.median_ms is not None
    assert record.median_ms > 0
    assert record.timed_calls > 0
    # In each of two stretches of a set that on renewed inputs, and the last one: they may be the same.
    assert record.verified_calls >= 2 * SETS
    assert set(record.parts) == PARTS[pass_]
    for accuracy in record.parts.values():
        assert 0 <= accuracy.rms_error <= accuracy.rms_limit
    assert record.accuracy in record.parts.values()


def test_a_wrong_gradient_of_k_is_named(timed: tuple[str, dict[str, Record]]) -> None:
    _, records = timed
    record = records["wrong_dk"]
    assert record.status == "mismatch"
    assert record.reason.startswith("the gradient of k: RMS error")
    assert (record.failed_on, record.failed_check) == (["normal"], "gradients")
    assert record.median_ms is None


def test_a_gradient_that_is_wrong_when_timed_is_found(timed: tuple[str, dict[str, Record]]) -> None:
    pass_, records = timed
    record = records["wrong_dv_when_timed"]
    if pass_ == "backward":
        # The forward is made between turns then, and right.
        assert record.status in ("ok", "suspect", "mismatch")
        return
    assert record.status == "mismatch"
    assert record.reason.startswith("in the output of a timed call, call ")
    assert "the gradient of v: RMS error" in record.reason


def test_a_gradient_that_is_missing_is_named(timed: tuple[str, dict[str, Record]]) -> None:
    _, records = timed
    record = records["forgets_k"]
    assert record.status == "error"
    assert "no gradient reaches k" in record.reason


def test_who_has_no_backward_says_so(timed: tuple[str, dict[str, Record]]) -> None:
    pass_, records = timed
    record = records["numpy"]
    assert (record.status, record.reason) == ("unsupported", f"computes the forward pass, not {pass_}")


def test_a_layer_has_gradients_of_its_projections_and_of_the_rules_parameters(tmp_path: Path) -> None:
    layer = "multihead/general/B1-H2-L6-D4-E8-bias/causal/float32/cpu/both"
    stored = run_of(tmp_path, (layer,), ("eager", "bmm"), sets=1)
    for record in stored.records:
        assert record.status in ("ok", "suspect"), record.reason
        assert set(record.parts) == {
            "out", "x", "rule.w", "w_q", "w_k", "w_v", "w_o", "b_q", "b_k", "b_v", "b_o",
        }  # fmt: skip
        assert record.verified_calls >= 2


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_other_dtypes_have_limits_that_right_gradients_keep(tmp_path: Path, dtype: str) -> None:
    text = case("both").replace("float32", dtype)
    stored = run_of(tmp_path, (text,), ("eager", "bmm", "sdpa_math"), timed=False)
    assert {record.backend: record.status for record in stored.records} == {
        "eager": "ok", "bmm": "ok", "sdpa_math": "ok",
    }, stored.records  # fmt: skip
