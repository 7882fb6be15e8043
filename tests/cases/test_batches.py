"""Batches: their words, their problems, and what follows from the lengths of their sequences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from case_rules import rule
from hypothesis import given
from hypothesis import strategies as st

from attnbench.cases.ids import case_id, parse_case, short_id
from attnbench.cases.suites import parse_suite
from attnbench.cases.variant import variant_cases
from attnbench.cases.work import (
    all_pairs,
    bytes_of_problems,
    flops_of_problems,
    held_bytes,
    parameter_elements,
)
from attnbench.inputs.draw import draw_inputs
from attnbench.masks import keep_rows, kept_pairs
from attnbench.plugins.registry import load_registry
from attnbench.types.batch import batch_text, parse_batch
from attnbench.types.case import DTYPES
from attnbench.types.errors import BadCase
from attnbench.types.problem import problems_of

CASE = (
    "attention/scaled_dot/2q5_q3s7_q0s4_q4s0-H4-Hkv2-D8-Dv6/causal:lower_right/bfloat16/cpu/forward/apart/lse"
)
LENGTHS = st.lists(
    st.tuples(*[st.one_of(st.integers(0, 5), st.just(1024), st.integers(0, 10**6))] * 2), min_size=1
)


@pytest.mark.parametrize(
    ("text", "lengths", "canonical"),
    [
        ("2q2k_3q1s1k", [(2048, 2048)] * 2 + [(1, 1024)] * 3, "2q2k_3q1s1k"),
        ("q2048_1q2ks2048", [(2048, 2048)] * 2, "2q2k"),
        ("q5s0_q0s5_q1", [(5, 0), (0, 5), (1, 1)], "q5s0_q0s5_q1"),
        ("q1500s3k", [(1500, 3072)], "q1500s3k"),
        ("q1_q2_q1", [(1, 1), (2, 2), (1, 1)], "q1_q2_q1"),
    ],
)
def test_words_of_batches(text: str, lengths: list[tuple[int, int]], canonical: str) -> None:
    assert parse_batch(text) == tuple(lengths)
    assert batch_text(tuple(lengths)) == canonical


@given(LENGTHS)
def test_every_batch_has_a_word_that_parses_back(lengths: list[tuple[int, int]]) -> None:
    if any(queries and keys for queries, keys in lengths):
        assert parse_batch(batch_text(tuple(lengths))) == tuple(lengths)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("2q2k_x3", "'x3' at character 6 is not a segment"),
        ("q8_", "'' at character 4 is not a segment"),
        ("q8_q-3", "'q-3' at character 4"),
        ("q8_0q4", "'0q4' at character 4 counts none"),
        ("q8m", "'q8m' at character 1"),
        ("q0_q4s0", "no sequence has both queries and keys"),
        ("2000q1", "1024 sequences are the most"),
    ],
)
def test_bad_words_are_refused_at_their_place(text: str, words: str) -> None:
    with pytest.raises(BadCase, match=words):
        parse_batch(text)


def test_ids_with_a_batch_parse_back() -> None:
    case = parse_case(CASE)
    assert case_id(case) == CASE
    assert parse_case("attention/" + short_id(case)) == case
    assert (case.B, case.Lq, case.Lk, case.returns) == (5, 5, 7, ("lse",))
    assert case_id(parse_case(CASE.replace("2q5", "q5_q5s5"))) == CASE


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("scaled_dot/B2-q4-H2-D8/apart", "sets B, Lq and Lk: leave out B"),
        ("scaled_dot/q4-q5-H2-D8/apart", "'q5' is a second batch"),
        ("scaled_dot/q4-H2-D8", "name the storage of its sequences"),
        ("scaled_dot/H2-L4-D8/apart", "the storage apart needs a batch"),
        ("scaled_dot/q4-H2-D8/apart:16", "'16' is not a size: apart has no sizes"),
        ("scaled_dot/q4-H2-D8/paged:", "'' is not a size: write it as paged:16"),
        ("scaled_dot/q4-H2-D8/apart/lse/lse", "'lse' asks for this output a second time"),
        ("scaled_dot/q4-H2-D8/apart/padding", "leave out padding"),
        ("scaled_dot/q4-H2-D8/apart/dropout0.5", "a batch has no dropout"),
        ("scaled_dot/q4-H2-D8/apart/BLHD", "no layout BLHD"),
        ("scaled_dot/H2-L4-D8/lse/backward", "lse is an output"),
        ("scaled_dot/H2-L4-D8/lse/dropout0.5", "lse can't be checked with dropout"),
    ],
)
def test_what_does_not_go_together_is_refused(case: str, words: str) -> None:
    with pytest.raises(BadCase, match=words):
        parse_case(f"attention/{case}")


def test_layers_have_no_batch_and_no_lse() -> None:
    with pytest.raises(BadCase, match="multihead has no batches"):
        parse_case("multihead/scaled_dot/q4-H2-D8-E16/apart")
    with pytest.raises(BadCase, match="lse"):
        parse_case("multihead/scaled_dot/H2-L4-D8-E16/lse")


def test_suites_give_batches_by_fields() -> None:
    text = """
        [defaults]
        H = 4
        D = 8
        L = 16
        [[cases]]
        rule = "scaled_dot"
        batch = ["2q4", "q4_q4s9"]
        storage = "apart"
        returns = "lse"
    """
    first, second = parse_suite(text, "mine").cases
    assert case_id(first) == "attention/scaled_dot/2q4-H4-D8/none/float32/cpu/forward/apart/lse"
    assert second.batch == "q4_q4s9"


def test_a_case_without_a_batch_is_its_own_problem() -> None:
    case = parse_case("attention/scaled_dot/B2-H4-L8-D8/causal")
    assert problems_of(case) == (case,)
    assert problems_of(case)[0] is case


def test_problems_are_dense_and_draw_unlike_numbers() -> None:
    case = parse_case(CASE)
    problems = problems_of(case)
    assert [(p.B, p.Lq, p.Lk) for p in problems] == [(1, 5, 5), (1, 5, 5), (1, 3, 7), (1, 0, 4), (1, 4, 0)]
    registry = load_registry()
    first, second = (draw_inputs(p, registry.rule("scaled_dot"), p.seed, 0) for p in problems[:2])
    assert not np.array_equal(first["q"], second["q"])
    # A batch of one sequence has the bits of the dense case.
    alone = draw_inputs(
        parse_case("attention/scaled_dot/H4-Hkv2-L5-D8-Dv6/bfloat16"), registry.rule("scaled_dot"), 0, 0
    )
    for name, array in alone.items():
        assert np.array_equal(array, first[name])


def test_masks_stand_at_the_lower_right_of_each_sequence() -> None:
    keep = keep_rows(problems_of(parse_case(CASE))[2], np.arange(3))
    assert keep is not None
    assert keep[0, 0].sum(-1).tolist() == [5, 6, 7]


def test_counts_are_sums_over_sequences() -> None:
    case, scaled = parse_case(CASE), rule()
    pairs = 4 * (15 + 15 + (5 + 6 + 7))
    assert sum(map(kept_pairs, problems_of(case))) == pairs
    assert flops_of_problems(case, scaled) == pairs * 2 * (8 + 6)
    assert all_pairs(case) == 4 * (25 + 25 + 21)
    queries, keys = 5 + 5 + 3, 5 + 5 + 7
    read = queries * 4 * 8 + keys * 2 * (8 + 6)
    rows = (queries + 4) * 4
    assert bytes_of_problems(case, scaled) == 2 * (read + rows * 6) + 4 * rows


def test_parameters_count_once_in_a_batch() -> None:
    case = parse_case("attention/scaled_dot/3q4-H4-D8/apart")
    dense = parse_case("attention/scaled_dot/B3-H4-L4-D8")
    with_parameters = load_registry().rule("general")
    assert parameter_elements(case, with_parameters) == parameter_elements(dense, with_parameters)
    assert bytes_of_problems(case, with_parameters) == bytes_of_problems(dense, with_parameters)
    assert held_bytes(case, with_parameters) == held_bytes(dense, with_parameters)


@given(seed=st.integers(0, 2**32))
def test_the_variant_of_a_batch_varies_its_lengths(seed: int) -> None:
    case = replace(parse_case(CASE), dtype="bfloat16")
    variants = variant_cases(case, rule(), DTYPES, np.random.default_rng(seed), 3)
    assert len({found.batch for found in variants} - {case.batch}) == 3
    for found in variants:
        assert (found.storage, found.returns, found.dtype) == ("apart", ("lse",), "float32")
        assert parse_case(case_id(found)) == found
        for queries, keys in parse_batch(found.batch):
            assert (queries, keys) == (0, keys) or keys == 0 or queries <= keys
