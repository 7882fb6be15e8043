"""All backends through attnbench's own check, on a handful of cases that show what they can do."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

import attnbench

pytestmark = pytest.mark.skipif(find_spec("libggml") is None, reason="not installed: libggml-python")

DELTA, LINEAR, WKV7 = "ggml_gated_delta_net", "ggml_gated_linear_attn", "ggml_rwkv_wkv7"
SCAN, WRITER = "ggml_ssm_scan", "ggml_quantise_row"

RIGHT = {
    "recurrent/linear/B2-H4-Hkv2-Lq37-Lk37-D32/none/float32/cpu/forward": (LINEAR, WKV7, SCAN),
    "recurrent/gated/B3-H4-Hkv1-Lq1-Lk1-D64/none/float32/cpu/forward": (LINEAR, WKV7, SCAN),
    "recurrent/gated/B1-H2-Lq65-Lk65-D13/none/float32/cpu/forward": (LINEAR,),
    "recurrent/gated/B2-H6-Hkv2-Lq65-Lk65-D13-Dv24/none/float32/cpu/forward/threads2": (SCAN,),
    "recurrent/delta/B2-H4-Hkv2-Lq37-Lk37-D32/none/float32/cpu/forward": (DELTA, WKV7),
    "recurrent/gated_delta/B2-H6-Hkv2-Lq65-Lk65-D13/none/float32/cpu/forward": (DELTA,),
    "recurrent/gated_delta/B2-H6-Hkv2-Lq65-Lk65-D64/none/float32/cpu/forward/threads2": (DELTA, WKV7),
    "recurrent/rwkv7/B2-H4-Hkv2-Lq37-Lk37-D32/none/float32/cpu/forward": (WKV7,),
    "recurrent/gated_delta_channels/B2-H4-Hkv2-Lq37-Lk37-D32/none/float32/cpu/forward": (DELTA, WKV7),
    "quantise/nearest/B2-H2-Lq10-Lk10-D64-Dv32/none/float32/cpu/forward/kv=q8_0": (WRITER,),
    "quantise/nearest/B2-H2-Lq10-Lk10-D64-Dv32/none/bfloat16/cpu/forward/kv=q4_0": (WRITER,),
    "quantise/nearest/B2-H2-Lq10-Lk10-D64-Dv32/none/float32/cpu/forward/kv=q5_1": (WRITER,),
}
"""Each update; one step; fewer heads of q and k than of v; odd sizes; two threads; writers of blocks."""

REFUSED = {
    (DELTA, "recurrent/gated_delta/B1-H2-Lq9-Lk9-D16-Dv8/none/float32/cpu/forward"): "as many features of v",
    (DELTA, "recurrent/gated/B1-H2-Lq9-Lk9-D16/none/float32/cpu/forward"): "not gated",
    (WKV7, "recurrent/gated/B1-H2-Lq9-Lk9-D48/none/float32/cpu/forward"): "not a multiple of 32",
    (LINEAR, "recurrent/gated/B1-H2-Lq9-Lk9-D16/none/bfloat16/cpu/forward"): "computes in float32",
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], tuple[str, str]]:
    """Status and reason by backend and case."""
    run = attnbench.run(
        [*RIGHT, *(case for _, case in REFUSED)],
        [DELTA, LINEAR, WKV7, SCAN, WRITER],
        timed=False,
        out=tmp_path_factory.mktemp("runs"),
    )
    return {(record.backend, record.case): (record.status, record.reason) for record in run.records}


@pytest.mark.parametrize("case", RIGHT)
def test_the_recurrence_and_its_state_are_right(
    found: dict[tuple[str, str], tuple[str, str]], case: str
) -> None:
    assert {name: found[name, case] for name in RIGHT[case]} == dict.fromkeys(RIGHT[case], ("ok", ""))


@pytest.mark.parametrize(("backend", "case"), REFUSED)
def test_what_an_operator_lacks_is_declined(
    found: dict[tuple[str, str], tuple[str, str]], backend: str, case: str
) -> None:
    status, reason = found[backend, case]
    assert status == "unsupported"
    assert REFUSED[backend, case] in reason
