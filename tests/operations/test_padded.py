"""Padded sequences are judged by what stands in the rows of their tokens, and by nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import padded
import pytest
from batch_judge import Judge

import attnbench
from attnbench.cases.ids import parse_case
from attnbench.cases.work import bytes_of_problems, flops_of_problems
from attnbench.plugins.registry import Registry, load_wanted
from attnbench.types.errors import BadCase

pytestmark = pytest.mark.usefixtures("kept_servers")

PLUGIN = str(Path(__file__).with_name("padded.py"))
BATCH = "2q12_q9s20_q1s32_q5s3_q3s0_q0s4"
CASE = f"attention/scaled_dot/{BATCH}-H4-Hkv2-D8/causal:lower_right/{{}}/cpu/{{}}/padded"


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_wanted([PLUGIN])


@pytest.fixture(scope="module")
def judge(registry: Registry) -> Judge:
    return Judge(registry, CASE.format("float32", "forward"))


@pytest.mark.parametrize(
    ("rule", "mask", "dtype", "pass_"),
    [
        ("scaled_dot", "causal:lower_right+window:4", "float32", "both"),
        ("sinks", "causal:lower_right", "bfloat16", "forward"),
        ("alibi", "float:per_head", "float16", "forward"),
    ],
)
def test_padded_sdpa_passes(registry: Registry, rule: str, mask: str, dtype: str, pass_: str) -> None:
    case = CASE.replace("scaled_dot", rule).replace("causal:lower_right", mask).format(dtype, pass_)
    assert Judge(registry, case + "/lse").problem("padded_sdpa") == ""


def test_rows_of_padding_are_not_judged_and_those_of_tokens_are(judge: Judge) -> None:
    # The right one leaves NaN in the rows of padding.
    assert judge.problem("cut_out") == ""
    for mistake in padded.MISTAKES:
        assert "the output 'out': " in judge.problem(padded.name_of(mistake))


def test_padding_holds_zeros_or_tokens_and_never_nan(judge: Judge) -> None:
    found = set()
    for index in judge.draws:
        for change in (0, 3):
            arrays = judge.opened.arrays(index, change)
            assert arrays["k"].shape == (7, 2, 32, 8)
            assert arrays["q"].shape == (7, 4, 12, 8)
            assert arrays["seqused_q"].tolist() == [12, 12, 9, 1, 5, 3, 0]
            assert arrays["seqused_k"].tolist() == [12, 12, 20, 32, 3, 0, 4]
            assert np.isfinite(arrays["k"]).all()
            behind = arrays["k"][4, :, 3:]
            tokens = arrays["k"].swapaxes(1, 2).reshape(-1, 16)
            for row in behind.swapaxes(0, 1).reshape(-1, 16):
                assert not row.any() or (tokens == row).all(1).sum() > 1
            found.add((bool(behind.any()), behind.tobytes()))
    assert {any_number for any_number, _ in found} == {False, True}
    # Half of the draws have zeros.
    assert len(found) > len(judge.draws) // 3


def test_gradients_from_above_are_zero_in_padding(registry: Registry) -> None:
    opened = Judge(registry, CASE.format("float32", "both")).opened
    for index in range(4):
        upstream = opened.arrays(index, 0)["upstream"]
        assert upstream[0].all()
        assert not upstream[4, :, 5:].any()


def test_work_is_that_of_tokens(registry: Registry) -> None:
    case = CASE.format("float32", "forward")
    own, packed = parse_case(case), parse_case(case.replace("/padded", "/packed"))
    rule = registry.rule("scaled_dot")
    assert flops_of_problems(own, rule) == flops_of_problems(packed, rule)
    # Two lengths a sequence here, two ends a sequence and two more there.
    assert bytes_of_problems(own, rule) == bytes_of_problems(packed, rule) - 2 * 4


def test_encoded_keys_are_refused() -> None:
    with pytest.raises(BadCase, match="no encoded keys lie padded: take packed or paged"):
        parse_case(CASE.format("float32", "forward") + "/kv=int8")


@pytest.mark.slow
def test_python_words_choose_it_with_its_baseline(tmp_path: Path) -> None:
    run = attnbench.run(
        "attention/scaled_dot/H4-Hkv2-L8-D8/causal:lower_right", ["padded_sdpa", "cut_out"], plugins=PLUGIN,
        batch="2q5s12_q1s20_q3s0", storage=["padded", "packed"], repetitions=1, budget=0.2, out=tmp_path,
    )  # fmt: skip
    found = {(parse_case(record.case).storage, record.backend): record for record in run.records}
    assert found["padded", "cut_out"].status == found["padded", "padded_sdpa"].status == "ok"
    assert found["padded", "cut_out"].baseline == "padded_sdpa"
    assert found["packed", "cut_out"].reason == "takes padded inputs, not packed"
    assert {parse_case(record.case).batch for record in run.records} == {"2q5s12_q1s20_q3s0"}
