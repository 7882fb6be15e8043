"""The choice of keys: judged by what it scores, whichever of equal keys it takes."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import choices
import numpy as np
import pytest
from batch_judge import Judge

from attnbench.cases.ids import parse_case
from attnbench.cases.select import check_case
from attnbench.inputs.draw import draw_inputs, draw_parameters, widen_inputs, widened
from attnbench.oracle.solve import solve_outputs
from attnbench.plugins.registry import Registry, load_wanted
from attnbench.types.errors import BadCase
from attnbench.verifier.case import passing_trivial_answer

PLUGIN = str(Path(choices.__file__))
CASE = "select/scaled_dot/B3-H6-Hkv2-L37-D8-top6/causal/{}"
BLOCKS = {
    "select_mean": "B2-H4-L52-D8-block8-top3",
    "select_largest": "H4-Hkv1-L52-D8-block8-top3",
    "select_compressed": "H4-Hkv2-L60-D8-block8-length8-stride4-top5",
}
PACKED = "select/scaled_dot/q9s37_q0s5_2q5s20_q4s0-H4-Hkv2-D8-top6/causal:lower_right/float32/{}"


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_wanted([PLUGIN])


@pytest.fixture(scope="module")
def judges(registry: Registry) -> Callable[[str], Judge]:
    """Open each case once."""
    return cache(lambda case: Judge(registry, case))


@pytest.mark.parametrize("rule", ["scaled_dot", "concat_linear"])
def test_of_a_large_case_the_sampled_rows_are_those_of_all(registry: Registry, rule: str) -> None:
    """The rule concat_linear pairs keys with queries, so rows of both are taken."""
    judge = Judge(registry, f"select/{rule}/H3-L94-D8/none/float64", flops=1)
    opened = judge.opened
    whole = widen_inputs(opened.case, opened.rule, opened.draw(0).inputs)
    every = solve_outputs(opened.case, opened.rule, opened.wide, whole)["indices"]
    np.testing.assert_array_equal(opened.draw(0).expected["indices"], every[:, :, opened.rows])
    assert judge.problem("select_topk") == ""


def test_the_exact_answer_has_the_largest_scores(registry: Registry) -> None:
    """Written down for one query at a time, from DeepSeek-V3.2's formula."""
    case = parse_case("select/scaled_dot/H4-Hkv2-Lq5-Lk9-D4-top7/causal:lower_right/float64")
    record = registry.rule("scaled_dot")
    stored = draw_inputs(case, record, 3, 0)
    exact = solve_outputs(
        case, record, widened(draw_parameters(case, record), case), widen_inputs(case, record, stored)
    )["indices"]
    for g, i in np.ndindex(2, 5):
        seen = i + 5
        scores = np.zeros(seen)
        for h in (2 * g, 2 * g + 1):
            dots = stored["k"][0, g, :seen] @ stored["q"][0, h, i] / 2
            scores += stored["weights"][0, h, i] * np.maximum(dots, 0)
        expected = np.zeros(7)
        expected[: min(7, seen)] = np.sort(scores)[::-1][:7]
        np.testing.assert_allclose(exact[0, g, i].astype(float), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_right_choices_are_kept_in_any_order_and_with_any_tie(
    judges: Callable[[str], Judge], dtype: str
) -> None:
    judge = judges(CASE.format(dtype))
    names = (*choices.RIGHT, "select_topk")
    assert {name: found for name in names if (found := judge.problem(name))} == {}
    assert passing_trivial_answer(judge.opened) == ""


@pytest.mark.parametrize("mistake", choices.MISTAKES)
def test_a_wrong_choice_is_refused_and_its_fault_named(judges: Callable[[str], Judge], mistake: str) -> None:
    problem = judges(CASE.format("float32")).problem(mistake)
    assert problem != ""
    assert choices.MISTAKES[mistake] in problem


def test_a_block_scores_as_its_mean_key_or_its_best_and_the_own_block_is_chosen(registry: Registry) -> None:
    """Written down for one query at a time, from the formulas of MoBA and of MiniMax."""
    record = registry.rule("scaled_dot")
    for operation in ("select_mean", "select_largest"):
        sizes = "H4-Hkv2-Lq5-Lk11-D4-block4-top2"
        case = parse_case(f"{operation}/scaled_dot/{sizes}/causal:lower_right/float64")
        stored = draw_inputs(case, record, 3, 0)
        assert list(stored) == ["q", "k"]
        whole = widen_inputs(case, record, stored)
        exact = solve_outputs(case, record, widened(draw_parameters(case, record), case), whole)["indices"]
        for h, i in np.ndindex(4, 5):
            own = (i + 6) // 4
            dots = stored["k"][0, h // 2, : 4 * own] @ stored["q"][0, h, i] / 2
            blocks = dots.reshape(own, 4)
            scores = blocks.mean(1) if operation == "select_mean" else blocks.max(1)
            # The own block comes first, and counts more than any other.
            assert exact[0, h, i, 0] > abs(scores).max()
            np.testing.assert_allclose(float(exact[0, h, i, 1]), scores.max(), rtol=1e-12)


def test_a_block_scores_as_the_weights_of_its_compressed_keys(registry: Registry) -> None:
    """Written down from eq. 9 of Native Sparse Attention, with its two sums and places from 1."""
    sizes = "H4-Hkv2-L30-D4-block4-length4-stride2-top5"
    case, record = (
        parse_case(f"select_compressed/scaled_dot/{sizes}/causal/float64"),
        registry.rule("scaled_dot"),
    )
    stored = draw_inputs(case, record, 3, 0)
    assert stored["k"].shape == (1, 2, 14, 4)
    whole = widen_inputs(case, record, stored)
    exact = solve_outputs(case, record, widened(draw_parameters(case, record), case), whole)["indices"]
    for g, i in np.ndindex(2, 30):
        seen, own = max(0, (i + 1 - 4) // 2 + 1), i // 4
        powers = np.exp(stored["q"][0, 2 * g : 2 * g + 2, i] @ stored["k"][0, g, :seen].T / 2)
        weights = (powers / powers.sum(1, keepdims=True)).sum(0)
        sums = (0, 1, 1, 2)  # m + n, with a stride of 2 in lengths and blocks of 4
        scores = [
            sum(weights[2 * j - s - 1] for s in sums if 0 < 2 * j - s <= seen) for j in range(1, own + 2)
        ]
        # Beside the first block and the last two.
        others = np.zeros(5)
        found = sorted(scores[1 : max(1, own - 1)], reverse=True)[:2]
        others[: len(found)] = found
        np.testing.assert_allclose(exact[0, g, i, 3:].astype(float), others[:2], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("operation", BLOCKS)
def test_right_choices_of_blocks_are_kept_and_wrong_ones_refused(
    judges: Callable[[str], Judge], operation: str
) -> None:
    for dtype in ("float32", "bfloat16"):
        judge = judges(f"{operation}/scaled_dot/{BLOCKS[operation]}/causal/{dtype}")
        assert {name: found for name in ("blocks", "select_topk") if (found := judge.problem(name))} == {}
        assert passing_trivial_answer(judge.opened) == ""
    judge = judges(f"{operation}/scaled_dot/{BLOCKS[operation]}/causal/float32")
    for name, words in choices.BLOCK_MISTAKES[operation].items():
        problem = judge.problem(name)
        assert problem != "", name
        assert words in problem


def test_of_a_large_choice_a_sample_of_rows_is_judged(registry: Registry) -> None:
    judge = Judge(registry, CASE.format("float32"), flops=1)
    opened = judge.opened
    assert opened.rows.tolist()[-1] == 36
    drawn, whole = opened.draw(0), widen_inputs(opened.case, opened.rule, opened.draw(0).inputs)
    every = solve_outputs(opened.case, opened.rule, opened.wide, whole)["indices"]
    np.testing.assert_array_equal(drawn.expected["indices"], every[:, :, opened.rows])
    assert [judge.problem(name) for name in (*choices.RIGHT, "select_topk")] == [""] * 3
    assert passing_trivial_answer(opened) == ""
    found = {name: judge.problem(name) for name in ("mask_forgotten", "next_key", "first_twice")}
    assert all(found.values())
    place = re.search(r"at \(b=\d, g=\d, i=(\d+)\) is a key that the mask drops", found["mask_forgotten"])
    assert place is not None
    assert int(place[1]) in opened.rows


@pytest.mark.parametrize("storage", ["packed", "paged"])
def test_choices_of_batches_count_from_their_own_first_key(
    judges: Callable[[str], Judge], storage: str
) -> None:
    judge = judges(PACKED.format(storage))
    assert judge.problem("select_topk") == ""
    assert judge.opened.passing_trivial_answer() == ""
    if storage == "packed":
        assert judge.problem("packed_choice") == ""
        assert judge.problem("counts_from_the_first_sequence").startswith("sequence 2: ")


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("select/scaled_dot/H2-L8-D8-Dv4", "select has no values"),
        ("select_mean/cosine/H2-L8-D8-block4", "blocks are chosen by dot products: give dot or scaled_dot"),
        ("select_mean/dot/H2-L8-D8-block4/float", "give a mask that adds no numbers"),
        ("select_compressed/dot/H2-L64-D8-stride24", "must be multiples of stride24"),
        ("select_compressed/dot/H2-L16-D8", "length32 must be at most block64 and the 16 keys"),
        ("select_compressed/dot/q64_q65-H2-D8/none/float32/packed", "no batches of unlike lengths"),
        ("select/scaled_dot/H2-L8-D8/none/float32/cpu/both", "select has no gradients"),
    ],
)
def test_what_a_choice_can_not_have_is_refused(registry: Registry, case: str, reason: str) -> None:
    with pytest.raises(BadCase, match=reason):
        check_case(parse_case(case), registry)
