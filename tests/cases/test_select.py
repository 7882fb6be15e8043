# ruff: noqa: E501  (tables of input and sentence, one line each)
from __future__ import annotations

from pathlib import Path

import pytest
from case_rules import registry

from attnbench.cases.ids import case_id, parse_case
from attnbench.cases.select import Overrides, Selection, check_case, select
from attnbench.plugins.registry import load_registry
from attnbench.types.errors import BadCase, BadInput
from attnbench.types.extensions import Suite
from attnbench.types.mask import Mask

DOT = parse_case("attention/dot/H2-L8-D4")
SCALED = parse_case("attention/scaled_dot/H2-L8-D4/causal")
CASE = case_id(DOT)
LONG = parse_case("attention/scaled_dot/H2-L64-D4")
REGISTRY = registry(
    Suite("smoke", "", (DOT, SCALED), compiled=frozenset({1})),
    Suite("long", "", (LONG, SCALED), compiled=frozenset()),
    Suite("edges", "", (DOT, LONG), check_only=True),
)


def chosen(*words: str, timed: bool = True, **overrides: object) -> Selection:
    return select(words, REGISTRY, Overrides(**overrides), timed=timed)


def ids(selection: Selection) -> list[str]:
    return [case_id(case).removeprefix("attention/") for case in selection.cases]


def test_words_are_suites_ids_and_files_each_case_once_in_order(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[[cases]]\nrule = 'additive'\nH = 1\nL = 2\nD = 3\n")
    selection = chosen("attention/scaled_dot/H2-L8-D4/causal", "smoke", str(file), "long")
    assert selection.cases == (SCALED, DOT, parse_case("attention/additive/H1-L2-D3"), LONG)


def test_a_case_compiles_where_any_word_for_it_says_so() -> None:
    assert chosen("smoke").compiled_on == {SCALED}
    assert chosen("long").compiled_on == frozenset()
    assert chosen("long", "smoke").compiled_on == {SCALED}
    assert chosen("attention/dot/H2-L8-D4").compiled_on is None
    assert chosen("attention/dot/H2-L8-D4", "smoke").compiled_on is None


def test_a_changed_case_compiles_where_the_case_did() -> None:
    (compiled,) = chosen("smoke", seed=3).compiled_on
    assert case_id(compiled) == case_id(SCALED) + "/seed3"


def test_rules_filter_what_is_selected() -> None:
    assert chosen("smoke", rules=("dot",)).cases == (DOT,)
    assert chosen("smoke", rules=("scaled_dot", "dot")).cases == (DOT, SCALED)


def test_the_other_options_change_every_case_and_may_multiply_it() -> None:
    assert ids(chosen("smoke", dtypes=("bfloat16",), device="cuda", threads=2, seed=1)) == [
        "dot/B1-H2-Lq8-Lk8-D4/none/bfloat16/cuda/forward/threads2/seed1",
        "scaled_dot/B1-H2-Lq8-Lk8-D4/causal/bfloat16/cuda/forward/threads2/seed1",
    ]
    assert ids(
        chosen("attention/dot/H2-L8-D4", dtypes=("float64", "float32"), masks=(Mask(), Mask(window=3)))
    ) == [
        "dot/B1-H2-Lq8-Lk8-D4/none/float64/cpu/forward",
        "dot/B1-H2-Lq8-Lk8-D4/window:3/float64/cpu/forward",
        "dot/B1-H2-Lq8-Lk8-D4/none/float32/cpu/forward",
        "dot/B1-H2-Lq8-Lk8-D4/window:3/float32/cpu/forward",
    ]


def test_the_cache_mode_of_every_case_can_be_set_and_set_back() -> None:
    rotating = chosen("smoke", cache="rotating").cases
    assert [case_id(case) for case in rotating] == [f"{case_id(case)}/rotating" for case in (DOT, SCALED)]
    assert chosen(case_id(rotating[0]), cache="hot").cases == (DOT,)
    assert chosen(case_id(rotating[0])).cases == rotating[:1]


def test_each_way_to_hold_a_cache_has_the_counts_of_the_step(tmp_path: Path) -> None:
    """A step has one of them, so the counts of several are not added."""
    file = tmp_path / "mine.toml"
    shape = "rule = 'scaled_dot'\nH = 2\nLq = 1\nLk = 64\nD = 32\ncount = 12\nstage = 'decode'\n"
    file.write_text(f"[[cases]]\n{shape}kv = ['dtype', 'q8_0']\n[[cases]]\n{shape}seed = 1\n")
    given = chosen(str(file))
    assert [given.counts[case] for case in given.cases] == [12, 12, 12]
    changed = chosen(str(file), encodings=("int8", "dtype"))
    assert [(case.kv, case.seed) for case in changed.cases] == [
        ("int8:head", 0), ("dtype", 0), ("int8:head", 1), ("dtype", 1)
    ]  # fmt: skip
    assert set(changed.counts.values()) == {12}
    assert set(changed.stages.values()) == {"decode"}
    # Other options that make several cases of one make several steps.
    assert chosen(str(file), dtypes=("float32", "float64")).counts == {}


def test_the_share_of_a_program_is_that_of_the_calls_that_were_recorded(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('share = 0.2\n[[cases]]\nid = "attention/scaled_dot/H2-Lq1-Lk64-D8"\ncount = 3\n')
    assert chosen(str(file)).share == 0.2
    assert chosen(str(file), cache="rotating").share == 0.2
    assert chosen(str(file), dtypes=("bfloat16",)).share is None
    assert chosen(str(file), "attention/dot/H2-L8-D8").share is None


def test_the_cases_of_a_stage_stand_together(tmp_path: Path) -> None:
    """A suite of a config has both stages of one kind of layer, then both of the next."""
    file = tmp_path / "mine.toml"
    head = "[[cases]]\nrule = 'scaled_dot'\nD = 32\ncount = 6\n"
    prompt, decode = "L = 512\nstage = 'prefill'\n", "Lq = 1\nLk = [32, 64]\nstage = 'decode'\n"
    file.write_text("".join(f"{head}H = {H}\n{stage}" for H in (2, 4) for stage in (prompt, decode)))
    found = [(case.H, case.Lq, case.Lk) for case in chosen(str(file)).cases]
    assert found == [(2, 512, 512), (4, 512, 512), (2, 1, 32), (2, 1, 64), (4, 1, 32), (4, 1, 64)]


def test_cases_that_an_option_makes_equal_stand_once() -> None:
    assert len(chosen("attention/dot/H2-L8-D4", "attention/dot/H2-L8-D4/causal", masks=(Mask(),)).cases) == 1


def test_a_suite_for_checking_is_not_timed() -> None:
    assert chosen("edges", timed=False).cases == (DOT, LONG)
    with pytest.raises(BadInput, match="for checking, not for timing"):
        chosen("edges")


def test_batches_and_storages_are_set_in_every_case() -> None:
    dense = "attention/dot/B3-H4-Hkv2-Lq5-Lk7-D8/causal:lower_right"
    words = {"batches": ("2q1s9", "q4_q0s2"), "storages": ("packed", "paged:4")}
    found = [case_id(case) for case in chosen(dense, **words).cases]
    assert found == [
        f"attention/dot/{batch}-H4-Hkv2-D8/causal:lower_right/float32/cpu/forward/{storage}"
        for batch in words["batches"]
        for storage in words["storages"]
    ]
    # A batch keeps its storage, and the other way round.
    (case,) = chosen(found[1], batches=("3q8",)).cases
    assert (case.batch, case.storage, case.sizes, case.B) == ("3q8", "paged", (("page", 4),), 3)
    (case,) = chosen(found[1], storages=("paged",)).cases
    assert (case.batch, case.storage, case.sizes) == ("2q1s9", "paged", ())


@pytest.mark.parametrize(
    ("words", "overrides", "sentence"),
    [
        ([CASE], {"batches": ("q8_x",), "storages": ("packed",)}, f"case {CASE!r} with the options applied: batch 'q8_x': 'x' at character 4 is not a segment; write [count]q<queries>[s<keys>], as in 2q2k_32q1s1k"),
        ([CASE], {"batches": ("q8",)}, f"case {CASE!r} with the options applied: batch = 'q8': name the storage of its sequences; dense holds equal ones"),
        ([CASE], {"storages": ("pagd",)}, "no storage 'pagd'; did you mean 'paged'?"),
        ([CASE], {"batches": ("q8",), "storages": ("paged:0",)}, f"case {CASE!r} with the options applied: page = 0: give 1 to 1048576"),
        (["/usr/bin"], {}, "'/usr/bin' is not a suite, an id of a case or a .toml file"),
        (["attention/concat_linear/H1-Lq2-Lk3-D4"], {}, "case 'attention/concat_linear/B1-H1-Lq2-Lk3-D4/none/float32/cpu/forward': the rule concat_linear does not support it: it pairs each query with a key"),
    ],
)  # fmt: skip
def test_a_wrong_word_is_explained_in_one_sentence(
    words: list[str], overrides: dict[str, object], sentence: str
) -> None:
    with pytest.raises(BadInput) as caught:
        chosen(*words, **overrides)
    assert str(caught.value) == sentence
    assert isinstance(caught.value, BadCase) == ("case '" in sentence or "no storage" in sentence)


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("softcap@cap=50", "the rule softcap has no constant 'cap'; it has c and scale"),
        ("cosine@scale=2", "the rule cosine has no constant 'scale'; it has none"),
        ("softcap@c=20000", "c = 20000: give 0.5 to 10000"),
        ("sinks@sink=-101", "sink = -101: give -100 to 100"),
    ],
)
def test_a_constant_that_the_rule_lacks_or_that_is_out_of_range_is_refused(rule: str, told: str) -> None:
    case = parse_case(f"attention/{rule}/H1-L8-D4")
    with pytest.raises(BadCase) as caught:
        check_case(case, load_registry())
    assert str(caught.value) == f"case {case_id(case)!r}: {told}"


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("dot/H2-Lq8-Lk9-D4/causal", "did you mean 'attention/dot/H2-Lq8-Lk9-D4/causal'"),
        ("dot H2-L8-D4 causal", "did you mean 'attention/dot/H2-L8-D4/causal'"),
        ("dot H2-L8 causal", "--details prints whole ids"),
    ],
)
def test_a_name_of_a_table_is_told_what_id_it_means(word: str, hint: str) -> None:
    with pytest.raises((BadCase, BadInput)) as failure:
        chosen(word)
    assert hint in str(failure.value)
