"""Properties of the variant of a case: what it keeps, and what it changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from case_rules import refuses_unpaired, rule
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbench.cases.classes import KEYS
from attnbench.cases.ids import case_id, parse_case
from attnbench.cases.variant import MOST_ELEMENTS, MOST_WORK, SMALL, variant_cases
from attnbench.masks import keep_rows, kept_pairs
from attnbench.plugins.registry import load_registry
from attnbench.types.batch import parse_batch
from attnbench.types.case import DTYPES, Case
from attnbench.types.mask import mask_of
from attnbench.types.problem import problems_of

SCALED = rule("scaled_dot")
REGISTRY = load_registry()
BUILT_IN = [case for name in REGISTRY.suites for case in REGISTRY.suite(name).cases]
DENSE, BATCHES = ([case for case in BUILT_IN if bool(case.batch) is batch] for batch in (False, True))


def variant(text: str, seed: int = 0, dtypes: tuple[str, ...] = DTYPES) -> Case:
    (found,) = variant_cases(parse_case(text), SCALED, dtypes, np.random.default_rng(seed), 1)
    return found


@given(case=st.sampled_from(BATCHES), seed=st.integers(0, 2**32))
@settings(max_examples=50, deadline=None)
def test_every_batch_of_the_built_in_suites_has_three_with_as_many_neighbours(case: Case, seed: int) -> None:
    its_rule = REGISTRY.rule(case.rule)
    variants = variant_cases(case, its_rule, DTYPES, np.random.default_rng(seed), 3)
    assert len(variants) == 3
    for found in variants:
        assert its_rule.supports(found) is None
        for name in ("constants", "rule", "D", "Dv", "group", "device", "storage", "sizes", "returns"):
            assert getattr(found, name) == getattr(case, name), name
        assert min(case.B, 3) <= found.B <= 4
        assert found.batch != case.batch
        lengths, own = parse_batch(found.batch), parse_batch(case.batch)
        assert found.H * found.D * sum(queries * keys for queries, keys in lengths) <= MOST_WORK
        assert {queries == 1 for queries, _ in lengths} <= {queries == 1 for queries, _ in own}
        assert found.dtype == "float32"
        assert [word.part for word in found.mask.words] == [word.part for word in case.mask.words]


@given(case=st.sampled_from(DENSE), seed=st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_every_case_of_the_built_in_suites_has_some(case: Case, seed: int) -> None:
    its_rule = REGISTRY.rule(case.rule)
    variants = variant_cases(case, its_rule, DTYPES, np.random.default_rng(seed), 3)
    assert variants
    for found in variants:
        assert its_rule.supports(found) is None
        same = ("operation", "rule", "D", "Dv", "group", "device", "threads", "pass_", "is_self_attention")
        for name in ("constants", *same):
            assert getattr(found, name) == getattr(case, name), name
        assert (found.Lq, found.Lk) != (case.Lq, case.Lk)
        assert found.Lq == found.Lk or not case.is_self_attention
        # One query is decoding, with a path of its own. A recurrence of one step has no smaller relative.
        assert (found.Lq == 1) == (case.Lq == 1) or case.operation == "recurrent"
        if case.Lq != case.Lk:
            assert (found.Lq < found.Lk) == (case.Lq < case.Lk)
        assert (found.B, found.Hkv) == (min(case.B, 3), min(case.Hkv, 2))
        pairs = found.B * found.H * found.Lq * found.Lk
        assert pairs * found.D <= MOST_WORK
        assert pairs * its_rule.score_elements(found) <= MOST_ELEMENTS
        assert found.dtype == ("float64" if case.dtype == "float64" else "float32")
        assert found.cache == "hot"
        assert [word.part for word in found.mask.words] == [word.part for word in case.mask.words]
        keep = keep_rows(found, np.arange(found.Lq))
        seen = np.full(1, found.Lk) if keep is None else keep.sum(-1).ravel()
        assert 2 * (seen > 1).sum() >= (seen > 0).sum() > 0
        assert parse_case(case_id(found)) == found
    classes = [next(word for word in SMALL if found.Lk in KEYS[word]) for found in variants]
    assert len(set(classes)) == len(classes)


def test_lengths_vary_and_stand_at_the_edges_of_blocks() -> None:
    pairs = {(n.Lq, n.Lk) for n in (variant("attention/scaled_dot/H2-L4096-D8", seed) for seed in range(90))}
    assert len(pairs) > 50
    assert {15, 16, 17, 63, 64, 65, 127, 128, 129} <= {length for pair in pairs for length in pair}
    assert {(Lq > Lk) - (Lq < Lk) for Lq, Lk in pairs} == {-1, 0, 1}


def test_lengths_of_padding_are_some_all_some_few_and_none_where_the_case_has_such() -> None:
    for seed in range(20):
        found = variant("attention/scaled_dot/B3-H2-L64-D8/padding:0,64,9", seed)
        assert {0, found.Lk} <= set(found.mask.padding)
        found = variant("attention/scaled_dot/B3-H2-L64-D8/padding:7,64,9", seed)
        assert 1 <= min(found.mask.padding) <= max(found.mask.padding) == found.Lk


def test_drawn_lengths_of_padding_are_listed_in_any_order_and_at_times_one() -> None:
    found = [variant("attention/scaled_dot/B4-H2-L64-D8/padding", seed).mask.padding for seed in range(40)]
    longest = {lengths.index(max(lengths)) for lengths in found}
    assert longest == {0, 1, 2}
    assert {1 in lengths for lengths in found} == {True, False}
    assert not any(0 in lengths for lengths in found)


def test_a_window_is_shorter_than_the_keys() -> None:
    for seed in range(20):
        found = variant("attention/scaled_dot/H2-L8192-D8/causal+window:4096", seed)
        assert 2 <= found.mask.window < found.Lk
    assert variant("attention/scaled_dot/H2-L8192-D8/window:9").mask.window == 9


def test_a_backend_without_float32_keeps_the_dtype_of_the_case() -> None:
    text = "attention/scaled_dot/H2-L64-D8/none/bfloat16"
    assert variant(text, dtypes=("bfloat16", "float16")).dtype == "bfloat16"
    assert variant(text, dtypes=("bfloat16", "float32")).dtype == "float32"


def test_a_rule_that_pairs_lengths_gets_the_same_lengths() -> None:
    pairing = rule("pairing", supports=refuses_unpaired)
    case = replace(parse_case("attention/scaled_dot/H2-L64-D8"), rule="pairing")
    for found in variant_cases(case, pairing, DTYPES, np.random.default_rng(0), 3):
        assert found.Lq == found.Lk != 64


def test_a_layer_as_wide_as_its_heads_stays_so() -> None:
    found = variant("multihead/scaled_dot/H12-L64-D64-E768")
    assert (found.H, found.layer and found.layer.E) == (2, 128)
    found = variant("multihead/scaled_dot/H12-L64-D64-E100")
    assert found.layer.E == 100


def test_there_is_none_where_none_could_tell_anything() -> None:
    case = parse_case("attention/scaled_dot/H2-Lq1-Lk64-D4/causal")
    assert variant_cases(case, SCALED, DTYPES, np.random.default_rng(0), 3) == [], (
        "its one query sees one key"
    )
    assert variant("attention/scaled_dot/H2-Lq1-Lk1-D4").Lk > 1


STRUCTURED = (
    "causal+left_padding", "causal:lower_right+left_padding:0,400",
    "causal+document", "causal+document:100,200,212", "causal:lower_right+chunked:64", "causal+prefix:100",
    "causal+window:64+first:4", "window:64+global:2", "causal+dilated:3", "reach:31,7", "reach:*,9",
    "blocks:64", "causal:lower_right+tree:0,0,1,1", "causal+image:10,200,300,100",
    "causal+window:100+document:100,200,212", "causal+window:64+image:10,200", "causal+document+prefix:30",
    "causal+chunked:100+first:4", "window:40+dilated:2+global:3",
)  # fmt: skip


def test_each_word_of_a_structure_alone_decides_about_a_pair_of_a_variant() -> None:
    dense = "B2-H4-L512-D64/{}/bfloat16", "B2-H4-Lq128-Lk512-D64/{}/bfloat16"
    for mask in STRUCTURED:
        # In a batch no word lists documents, and none pads.
        unpacked = "document:" in mask or "left" in mask
        packed = () if unpacked else ("2q564_q512_q3s460-H4-D64/{}/bfloat16/packed",)
        for shape in (*dense, *packed):
            case = parse_case(f"attention/scaled_dot/{shape.format(mask)}")
            for seed in range(4):
                (found,) = variant_cases(case, SCALED, ("float32",), np.random.default_rng(seed), 1)
                for word in found.mask.words:
                    if word.family or word.part == "window":
                        without = found.mask.without(mask_of([word]))
                        pairs = [
                            sum(map(kept_pairs, problems_of(replace(found, mask=one))))
                            for one in (found.mask, without)
                        ]
                        assert pairs[0] != pairs[1], (case_id(found), word)


def test_a_word_that_can_decide_nothing_keeps_its_variants() -> None:
    for mask in ("reach:*,9", "causal:lower_right+image:10,20"):
        assert variant(f"attention/scaled_dot/H2-Lq1-Lk64-D8/{mask}").Lq == 1
