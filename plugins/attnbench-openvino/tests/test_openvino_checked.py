"""All backends through attnbench's own check, each in its precision."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from attnbench_openvino.backends import no_bfloat16

import attnbench

pytestmark = pytest.mark.skipif(find_spec("openvino") is None, reason="not installed: openvino")

CASES = (
    "attention/scaled_dot/B2-H2-Lq33-Lk70-D80-Dv24/none/{}/cpu/forward",
    "attention/scaled_dot/B1-H2-Lq33-Lk70-D16/causal/{}/cpu/forward",
    "attention/general/B2-H2-Lq33-Lk33-D16/bool/{}/cpu/forward",
    "attention/alibi/B2-H4-Lq20-Lk50-D16/causal:lower_right+padding/{}/cpu/forward",
    "multihead/sinks/B2-H4-Lq40-Lk40-D16-E48-bias/float/{}/cpu/forward",
)
"""A scale that OpenVINO rounds wrongly; causal with Lq other than Lk; rows without a key; bias; a layer."""

REFUSED = {
    "attention/softcap/B1-H2-Lq70-Lk33-D16/causal/float32/cpu/forward": "the operation has no soft cap",
    "attention/scaled_dot/B2-H4-Hkv1-Lq40-Lk40-D16/none/float32/cpu/forward": "the operation has no GQA",
}

PRECISIONS = {"openvino": "float32", "openvino_bf16": "bfloat16"}

Found = dict[tuple[str, str], tuple[str, str]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """Status and reason by backend and case."""
    run = attnbench.run(
        [*(case.format(dtype) for dtype in PRECISIONS.values() for case in CASES), *REFUSED],
        [*PRECISIONS, "openvino_bf16_hint"],
        timed=False,
        out=tmp_path_factory.mktemp("runs"),
    )
    return {(record.backend, record.case): (record.status, record.reason) for record in run.records}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("backend", PRECISIONS)
def test_right_by_the_oracle(found: Found, backend: str, case: str) -> None:
    assert found[backend, case.format(PRECISIONS[backend])] == ("ok", "")


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_operation_cannot_do_is_refused_in_words(found: Found, case: str) -> None:
    status, reason = found["openvino", case]
    assert status == "unsupported"
    assert REFUSED[case] in reason


@pytest.mark.parametrize("case", CASES)
def test_the_hint_on_float32_is_as_exact_as_it_declares_or_not_here(found: Found, case: str) -> None:
    absent = no_bfloat16("cpu")
    declared = ("inaccurate", "in bfloat16 arithmetic, as the backend declares")
    assert found["openvino_bf16_hint", case.format("float32")] == (
        declared if absent is None else ("unavailable", absent)
    )


def test_what_computes_in_bfloat16_takes_no_float32_for_it(found: Found) -> None:
    status, reason = found["openvino_bf16", CASES[0].format("float32")]
    assert (status, reason) == ("unsupported", "computes in bfloat16, not float32")
