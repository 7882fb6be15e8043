# ruff: noqa: E501  (tables of input and sentence, one line each)
from __future__ import annotations

from dataclasses import replace

import pytest
from case_strategies import cases
from hypothesis import given
from hypothesis import strategies as st

from attnbench.cases.ids import case_id, parse_case, short_id
from attnbench.types.case import Case, Layer
from attnbench.types.errors import BadCase
from attnbench.types.mask import Mask

GQA = Case("attention", "scaled_dot", 2, 8, 2, 128, 128, 64, 64, mask=Mask(causal="upper_left"))
LAYER = Case(
    "multihead", "additive", 1, 4, 4, 32, 48, 16, 8, layer=Layer(64, bias=True, out=False, cross=True),
    dtype="float64", pass_="both", cache="rotating", threads=2, seed=7,
)  # fmt: skip

PLAIN = "attention/scaled_dot/B2-H8-Hkv2-Lq128-Lk128-D64/causal/float32/cpu/forward"
KNOWN = {
    PLAIN: GQA,
    f"{PLAIN}/dropout1e-07": replace(GQA, dropout=1e-7),
    f"{PLAIN}/dropout0.25/rotating/seed7": replace(GQA, dropout=0.25, cache="rotating", seed=7),
    "multihead/additive/B1-H4-Lq32-Lk48-D16-Dv8-E64-bias-cross-noout/none/float64/cpu/both"
    "/rotating/threads2/seed7": LAYER,
}


@pytest.mark.parametrize(("text", "case"), KNOWN.items())
def test_golden_ids(text: str, case: Case) -> None:
    assert case_id(case) == text
    assert parse_case(text) == case


@given(cases(), st.randoms())
def test_every_case_has_an_id_that_parses_back_in_any_order_of_its_tail(
    case: Case, random: st.DataObject
) -> None:
    operation, rule, sizes, *tail = case_id(case).split("/")
    assert parse_case(case_id(case)) == case
    random.shuffle(tail)
    assert parse_case("/".join([operation, rule, sizes, *tail])) == case
    short = short_id(case)
    assert parse_case(short if short.split("/")[0] == operation else f"attention/{short}") == case


@pytest.mark.parametrize(
    "text",
    [
        "attention/scaled_dot/B2-H8-Hkv2-L128-D64/causal",
        "attention/scaled_dot/H8-D64-Hkv2-Lq128-B2/causal/cpu",
        " attention/scaled_dot/B2-H8-Hkv2-Lq128-Lk128-D64-Dv64/hot/forward/causal:upper_left/threads1/seed0\n",
        "attention/scaled_dot/B2-H8-Hkv2-L128-D64/causal/f32",
    ],
)
def test_ids_are_read_generously(text: str) -> None:
    assert parse_case(text) == GQA


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("softcap@c=50", "softcap@c=50"),
        ("softcap@scale=0.0833,c=50.0", "softcap@c=50,scale=0.0833"),
        ("sinks@sink=-0", "sinks@sink=0"),
        ("sinks@sink=-2.50", "sinks@sink=-2.5"),
        ("scaled_dot@scale=1e-3", "scaled_dot@scale=0.001"),
    ],
)
def test_constants_stand_behind_the_rule_in_one_form(text: str, word: str) -> None:
    case = parse_case(f"attention/{text}/H1-L3-D4")
    assert case.rule == word.split("@")[0]
    assert case_id(case).split("/")[1] == word
    assert parse_case(case_id(case)) == case


def test_only_sizes_and_rule_are_needed() -> None:
    assert parse_case("attention/dot/H1-L3-D4") == Case("attention", "dot", 1, 1, 1, 3, 3, 4, 4)


BAD = [
    ("attention/dot@/H1-L3-D4", "rule 'dot@': write constants as in 'softcap@c=50', not ''"),
    ("attention/dot@c=nan/H1-L3-D4", "rule 'dot@c=nan': write constants as in 'softcap@c=50', not 'c=nan'"),
    ("attention/dot@c=1,c=2/H1-L3-D4", "rule 'dot@c=1,c=2': 'c=2' gives c a second time"),
    ("attention/dot@c=1e999/H1-L3-D4", "c = inf: give a finite number"),
    ("attention/dot/L3-D4", "the size H is missing (query heads): add it, as H8, or H = 8 in a file"),
    (
        "attention/dot/H1-Lk3-D4",
        "the size Lq is missing (queries): add it, as Lq128, or L128 for queries and keys alike; L = 128 in a file",
    ),
    ("attention/dot/H8x-L3-D4", "sizes 'H8x-L3-D4': '8x' is not a whole number for H; write it as in 'H8'"),
    ("attention/dot/H1-L3-D4-X2", "sizes 'H1-L3-D4-X2': no size 'X'; there are B, H, Hkv, L, Lq, Lk, D, Dv, E, bias, cross, noout."),
    ("multihead/dot/H1-L3-D4-bias", "bias belongs to multihead, which needs a model width E"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "sentence"), BAD)
def test_a_wrong_id_is_explained_in_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(BadCase) as caught:
        parse_case(text)
    assert str(caught.value) == f"case {text!r}: {sentence}"


@given(
    st.text(max_size=60)
    | st.from_regex(r"attention/dot/[BHLDkvq0-9-]{0,20}(/[a-z0-9:+]{0,9}){0,3}", fullmatch=True)
)
def test_any_text_is_a_case_or_a_bad_case(text: str) -> None:
    try:
        case = parse_case(text)
    except BadCase:
        pass
    else:
        assert parse_case(case_id(case)) == case


def test_the_longest_share_that_is_written_parses_back() -> None:
    """17 digits, behind three zeros: what is smaller is written with an exponent."""
    case = parse_case("attention/dot/H1-L3-D4/dropout0.00011438885873249482")
    assert parse_case(case_id(case)) == case


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
