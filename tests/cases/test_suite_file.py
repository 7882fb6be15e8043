# ruff: noqa: E501  (tables of input and sentence, one line each)
from __future__ import annotations

from pathlib import Path

import pytest

from attnbench.cases.ids import case_id
from attnbench.cases.suites import parse_suite, read_suite
from attnbench.types.errors import BadFile

FIELDS = 'rule = "dot"\nH = 2\nL = 8\nD = 4\n'


def ids(text: str) -> list[str]:
    return [case_id(case) for case in parse_suite(text, "mine").cases]


def test_a_whole_file() -> None:
    suite = parse_suite(
        """
        name = "other"
        summary = "two ways to say a case"
        check_only = true
        [defaults]
        dtype = "bfloat16"
        D = 64
        [[cases]]
        id = "attention/dot/H1-L3-D4"
        [[cases]]
        rule = "scaled_dot"
        H = 12
        Hkv = 4
        L = [512, 1024]
        mask = ["none", "causal"]
        compiled = true
        """,
        "mine",
    )
    assert (suite.name, suite.summary, suite.check_only) == ("other", "two ways to say a case", True)
    assert suite.compiled == {1, 2, 3, 4}
    assert [case_id(case) for case in suite.cases] == [
        "attention/dot/B1-H1-Lq3-Lk3-D4/none/float32/cpu/forward",
        "attention/scaled_dot/B1-H12-Hkv4-Lq512-Lk512-D64/none/bfloat16/cpu/forward",
        "attention/scaled_dot/B1-H12-Hkv4-Lq512-Lk512-D64/causal/bfloat16/cpu/forward",
        "attention/scaled_dot/B1-H12-Hkv4-Lq1024-Lk1024-D64/none/bfloat16/cpu/forward",
        "attention/scaled_dot/B1-H12-Hkv4-Lq1024-Lk1024-D64/causal/bfloat16/cpu/forward",
    ]


def test_a_file_has_its_own_name_and_compiles_everywhere_unless_it_says_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[[cases]]\n" + FIELDS)
    suite = read_suite(path)
    assert (suite.name, suite.summary, suite.check_only, suite.compiled) == ("mine", "", False, None)


def test_every_field_arrives() -> None:
    fields = (
        "operation='multihead' rule='additive' B=2 H=4 Hkv=2 Lq=5 Lk=7 D=3 Dv=6 E=11 bias=true cross=true "
        "out=false mask='causal:lower_right+padding:3,4' dtype='float16' device='cuda' pass='both' "
        "cache='rotating' threads=2 seed=7"
    )
    assert ids("[[cases]]\n" + "\n".join(fields.split())) == [
        "multihead/additive/B2-H4-Hkv2-Lq5-Lk7-D3-Dv6-E11-bias-cross-noout"
        "/causal:lower_right+padding:3,4/float16/cuda/both/rotating/threads2/seed7"
    ]


def test_a_width_makes_it_a_layer_and_own_lengths_replace_default_ones() -> None:
    text = "[defaults]\nL = 9\n[[cases]]\nrule='dot'\nH=1\nD=2\nE=3\n[[cases]]\nrule='dot'\nH=1\nD=2\nLq=4\ndropout=0.1"
    assert ids(text) == [
        "multihead/dot/B1-H1-Lq9-Lk9-D2-E3/none/float32/cpu/forward",
        "attention/dot/B1-H1-Lq4-Lk4-D2/none/float32/cpu/forward/dropout0.1",
    ]


def test_a_case_that_comes_twice_stands_once_and_compiles_if_one_of_them_does() -> None:
    text = f"[[cases]]\n{FIELDS}[[cases]]\nid = 'attention/dot/H2-L8-D4'\ncompiled = true\n"
    suite = parse_suite(text, "mine")
    assert (len(suite.cases), suite.compiled) == (1, {0})


BAD = [
    ("check_only = 1", "check_only = 1: give true or false"),
    ("cases = [3]", "case 1: 3 is not a table: write [[cases]] above an id or fields"),
    ("sumary = 'x'", "no key 'sumary'; did you mean 'summary'?"),
    ("[default]\nH = 1", "no key 'default'; did you mean 'defaults'?"),
    ("[defaults]\nHvk = 1", "defaults: no key 'Hvk'; did you mean 'Hkv'?"),
    (
        f"[[cases]]\n{FIELDS}B = {list(range(1, 401))}\nseed = {list(range(400))}",
        "case 1: its lists make 160000 cases; 100000 at most",
    ),
    (f"[[cases]]\n{FIELDS}bias = 'yes'", "case 1: bias = 'yes': give true or false"),
    (f"[[cases]]\n{FIELDS}mask = 3", "case 1: mask = 3: give a text"),
    (f"[[cases]]\n{FIELDS}dropout = 'much'", "case 1: dropout = 'much': give a probability from 0 to less than 1"),
    ("[[cases]]\nid = 3", "case 1: id = 3: give a text"),
    (f"[[cases]]\n{FIELDS}stage = 3\ncount = 1", "case 1: stage = 3: give a word, as decode"),
    (
        f"[[cases]]\n{FIELDS}stage = 'decode'",
        "case 1: stage = 'decode' without a count: it says which counts are summed together",
    ),
    (
        f"[[cases]]\n{FIELDS}count = 1\nstage = 'a'\n[[cases]]\n{FIELDS}count = 1\nstage = 'b'",
        "case 2: its stage is 'b', before it was 'a': give one",
    ),
    (f"without = ['']\n[[cases]]\n{FIELDS}count = 1", "without has '': give a text, as '10 short convolutions'"),
    (f"share = 1\n[[cases]]\n{FIELDS}count = 1", "share = 1: give a fraction, as 0.05"),
    (f"share = 1.5\n[[cases]]\n{FIELDS}count = 1", "share = 1.5: give a fraction between 0 and 1, as 0.05"),
    (f"share = nan\n[[cases]]\n{FIELDS}count = 1", "share = nan: give a fraction between 0 and 1, as 0.05"),
    (f"share = 0.1\n[[cases]]\n{FIELDS}", "share = ... needs counts: it says which part of the program's time these calls take"),
    (f"without = ['2 scans']\n[[cases]]\n{FIELDS}", "without = ... needs counts: it says what their total leaves out"),
    (
        f"[[cases]]\n{FIELDS}[[cases]]\nid = 'attention/dot/H8-Hkv3-L1-D1'",
        "case 2: case 'attention/dot/H8-Hkv3-L1-D1': H = 8 is not a multiple of Hkv = 3: "
        "each key/value head serves the same number of query heads",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "sentence"), BAD)
def test_a_mistake_is_explained_in_one_sentence_that_names_the_file(
    tmp_path: Path, text: str, sentence: str
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(BadFile) as caught:
        read_suite(path)
    assert str(caught.value) == f"the suite {str(path)!r}: {sentence}"


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"name = '\xff'")
    with pytest.raises(BadFile, match=r"binary\.toml' is not text: byte 8 isn't UTF-8$"):
        read_suite(binary)
