from __future__ import annotations

import pytest
from case_strategies import cases
from hypothesis import given

from attnbench.cases.ids import parse_case, short_id
from attnbench.types.case import Case


@given(cases())
def test_a_short_id_is_one_of_the_same_case(case: Case) -> None:
    short = short_id(case)
    whole = short if short.split("/")[0] in ("attention", "multihead") else f"attention/{short}"
    assert parse_case(whole) == case


@pytest.mark.parametrize(
    ("id_", "short"),
    [
        ("attention/scaled_dot/H4-L64-D32", "scaled_dot/H4-L64-D32"),
        ("attention/dot/B2-H4-Hkv2-Lq1-Lk8-D4/causal/bfloat16", "dot/B2-H4-Hkv2-Lq1-Lk8-D4/causal/bfloat16"),
        ("multihead/dot/B1-H2-L8-D4-E8-bias/backward", "multihead/dot/H2-L8-D4-E8-bias/backward"),
        ("attention/softcap@c=50.0/H2-L8-D4", "softcap@c=50/H2-L8-D4"),
        ("attention/dot/H2-L8-D4/threads2/padding:3", "dot/H2-L8-D4/padding:3/threads2"),
        ("attention/dot/B11-H2-L8-D4/float64/cuda/seed3", "dot/B11-H2-L8-D4/float64/cuda/seed3"),
    ],
)  # fmt: skip
def test_what_is_the_default_is_left_out(id_: str, short: str) -> None:
    assert short_id(parse_case(id_)) == short


@pytest.mark.parametrize(
    ("nickname", "dtype"), [("bf16", "bfloat16"), ("fp16", "float16"), ("f32", "float32")]
)
def test_a_dtype_has_nicknames(nickname: str, dtype: str) -> None:
    assert parse_case(f"attention/dot/H1-L8-D4/{nickname}") == parse_case(f"attention/dot/H1-L8-D4/{dtype}")
