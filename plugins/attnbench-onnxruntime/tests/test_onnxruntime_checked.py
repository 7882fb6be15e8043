"""All backends through attnbench's own check, on a handful of cases that show what they can do."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

import attnbench

MISSING = [name for name in ("onnxruntime", "onnx") if find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")

BOTH = (
    "attention/scaled_dot/B2-H2-Lq33-Lk70-D40-Dv24/none/float32/cpu/forward",
    "attention/scaled_dot/B1-H2-Lq33-Lk70-D16/causal/float32/cpu/forward",
    "attention/scaled_dot/B1-H2-Lq70-Lk70-D16/causal/float32/cpu/forward",
    "attention/general/B2-H2-Lq33-Lk33-D16/bool/float32/cpu/forward",
    "attention/alibi/B2-H4-Lq20-Lk50-D16/causal:lower_right+padding/float32/cpu/forward",
    "multihead/scaled_dot/B2-H4-Lq40-Lk40-D16-E48-bias/float/float32/cpu/forward",
)
"""No mask, which is tiled; causal with Lq other than Lk; rows without a key; bias; a layer, a float mask."""

REFUSED_BY_MHA = {
    "attention/softcap/B1-H2-Lq70-Lk33-D16/causal/float32/cpu/forward": "the operator has no soft cap",
    "multihead/sinks/B2-H4-Hkv1-Lq40-Lk40-D16-E48/causal/float32/cpu/forward": "the operator has no GQA",
    "attention/scaled_dot/B1-H2-Lq33-Lk70-D16/bool/float16/cpu/forward": "computes in float32, not float16",
}

RECURRENT = (
    "recurrent/linear/B2-H4-Hkv2-Lq37-Lk37-D16-Dv8/none/float32/cpu/forward",
    "recurrent/gated/B1-H4-Hkv1-Lq37-Lk37-D16-Dv8/none/float32/cpu/forward",
    "recurrent/delta/B2-H4-Lq37-Lk37-D16/none/float32/cpu/forward",
    "recurrent/gated_delta/B2-H4-Hkv2-Lq37-Lk37-D16-Dv8/none/float32/cpu/forward",
    "recurrent/gated_delta_channels/B2-H4-Hkv2-Lq37-Lk37-D16-Dv8/none/float32/cpu/forward",
    "recurrent/gated_delta/B3-H4-Hkv2-Lq1-Lk1-D16/none/float32/cpu/forward",
)
"""Each update; one step; fewer heads of q and k than of v."""

HALF = (
    "attention/alibi/B1-H2-Lq561-Lk2-D2/none/float16/cpu/forward",
    "attention/alibi@scale=0.3,slope=0.25/B1-H1-Lq149-Lk149-D1/padding:8/float16/cpu/forward",
)
"""All biases of a row are far below zero, where float16 has few bits left."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], tuple[str, str]]:
    """Status and reason by backend and case."""
    run = attnbench.run(
        [*BOTH, *REFUSED_BY_MHA, *HALF, *RECURRENT],
        ["onnxruntime_mha", "onnxruntime_attention", "onnxruntime_linear"],
        timed=False,
        out=tmp_path_factory.mktemp("runs"),
    )
    return {(record.backend, record.case): (record.status, record.reason) for record in run.records}


@pytest.mark.parametrize("case", BOTH)
@pytest.mark.parametrize("backend", ["onnxruntime_mha", "onnxruntime_attention"])
def test_right_by_the_oracle(found: dict[tuple[str, str], tuple[str, str]], backend: str, case: str) -> None:
    assert found[backend, case] == ("ok", "")


@pytest.mark.parametrize("case", RECURRENT)
def test_the_recurrence_and_its_state_are_right(
    found: dict[tuple[str, str], tuple[str, str]], case: str
) -> None:
    assert found["onnxruntime_linear", case] == ("ok", "")


@pytest.mark.parametrize("case", HALF)
def test_large_distances_cost_no_bits_in_half_precision(
    found: dict[tuple[str, str], tuple[str, str]], case: str
) -> None:
    assert found["onnxruntime_attention", case] == ("ok", "")


@pytest.mark.parametrize("case", REFUSED_BY_MHA)
def test_what_the_contrib_operator_refuses_the_other_computes(
    found: dict[tuple[str, str], tuple[str, str]], case: str
) -> None:
    status, reason = found["onnxruntime_mha", case]
    assert status == "unsupported"
    assert REFUSED_BY_MHA[case] in reason
    assert found["onnxruntime_attention", case] == ("ok", "")
