from __future__ import annotations

import pytest
from case_rules import rule, two_parameters
from hypothesis import given
from hypothesis import strategies as st

from attnbench.cases.ids import parse_case
from attnbench.cases.work import bytes_moved, flops
from attnbench.operations.multihead import projection_flops


@given(*[st.integers(1, 50)] * 6)
def test_unmasked_dot_products_count_as_papers_count_them(
    B: int, H: int, Lq: int, Lk: int, D: int, Dv: int
) -> None:
    case = parse_case(f"attention/dot/B{B}-H{H}-Lq{Lq}-Lk{Lk}-D{D}-Dv{Dv}")
    assert flops(case, rule(), B * H * Lq * Lk) == 2 * B * H * (Lq * Lk) * (D + Dv)


def test_a_published_figure_comes_out() -> None:
    # FlashAttention-2 counts 4·L²·D·H forward, halved for causal: B1 H16 L16384 D128.
    L = 16384
    case = parse_case(f"attention/scaled_dot/H16-L{L}-D128/causal/bfloat16")
    pairs = 16 * L * (L + 1) // 2
    assert flops(case, rule(), pairs) == pytest.approx(4 * L * L * 128 * 16 / 2, rel=1e-4)


@pytest.mark.parametrize(("pass_", "factor"), [("forward", 1), ("backward", 2.5), ("both", 3.5)])
def test_backward_counts_two_and_a_half_forwards(pass_: str, factor: float) -> None:
    case = parse_case(f"attention/dot/H1-L10-D4/{pass_}")
    assert flops(case, rule(), 100) == factor * 100 * 2 * 8


def test_a_rule_may_count_its_own_operations_for_scores() -> None:
    case = parse_case("attention/additive/H1-L10-D4-Dv3")
    assert flops(case, rule("additive", score_flops=lambda c: 7 * c.D), 100) == 100 * (28 + 6)


def test_projections_are_counted_one_by_one() -> None:
    case = parse_case("multihead/dot/B2-H4-Hkv2-Lq5-Lk7-D3-Dv6-E11-bias")
    by_hand = 2 * 2 * (5 * 11 * 12 + 7 * 11 * 6 + 7 * 11 * 12 + 5 * 24 * 11)
    assert projection_flops(case, rule()) == by_hand
    assert flops(case, rule(), 10) == by_hand + 10 * 2 * 9


def test_projections_follow_the_rule_and_the_layer() -> None:
    without = parse_case("multihead/dot/H4-Lq5-Lk7-D3-E11-noout")
    assert projection_flops(without, rule()) == 2 * 11 * 12 * (5 + 7 + 7)
    # A rule that pairs keys projects Lq of them; one that concatenates has a wider last map.
    assert projection_flops(without, rule(pairs_keys=True)) == 2 * 11 * 12 * (5 + 5 + 7)
    whole = parse_case("multihead/dot/H4-L5-D3-E11")
    assert projection_flops(whole, rule(concatenates=True)) == 2 * 5 * 11 * 12 * (3 + 2)


def test_traffic_reads_all_once_and_writes_the_output_once() -> None:
    case = parse_case("attention/dot/B2-H4-Hkv2-Lq5-Lk7-D3-Dv6/bfloat16")
    q, k, v, out = 2 * 4 * 5 * 3, 2 * 2 * 7 * 3, 2 * 2 * 7 * 6, 2 * 4 * 5 * 6
    assert bytes_moved(case, rule()) == 2 * (q + k + v + out)
    parameters = 4 * (3 * 2 + 1)
    assert bytes_moved(case, rule(parameters=two_parameters)) == 2 * (q + k + v + out + parameters)


def test_rows_that_no_pair_is_kept_of_are_not_read() -> None:
    """Of a batch of 2, 7 of 10 queries keep a key and 3 of 14 keys are kept; gradients are written of all."""
    case = parse_case("attention/dot/B2-H4-Hkv2-Lq5-Lk7-D3-Dv6/bfloat16")
    q, k, v, out = 7 * 4 * 3, 3 * 2 * 3, 3 * 2 * 6, 2 * 4 * 5 * 6
    assert bytes_moved(case, rule(), (7, 3)) == 2 * (q + k + v + out)
    assert bytes_moved(case, rule(), (10, 14)) == bytes_moved(case, rule())
    back = parse_case("attention/dot/B2-H4-Hkv2-Lq5-Lk7-D3-Dv6/bfloat16/backward")
    every = bytes_moved(case, rule()) - 2 * out
    assert bytes_moved(back, rule(), (7, 3)) == 2 * (q + k + v + out) + every
    assert bytes_moved(back, rule(), (10, 14)) == bytes_moved(back, rule())


def test_keys_that_are_paired_go_with_their_queries_and_a_layer_reads_all() -> None:
    paired = parse_case("attention/dot/H1-L4-D3-Dv5")
    read = 3 * (3 + 3) + 2 * 5
    assert bytes_moved(paired, rule(pairs_keys=True), (3, 2)) == 4 * (read + 4 * 5)
    layer = parse_case("multihead/dot/H4-Lq5-Lk7-D3-E11")
    assert bytes_moved(layer, rule(), (1, 1)) == bytes_moved(layer, rule())


def test_backward_traffic_reads_the_gradient_and_writes_those_of_the_inputs() -> None:
    def moved(pass_: str) -> int:
        return bytes_moved(parse_case(f"attention/dot/H1-L10-D4/{pass_}"), rule())

    assert moved("forward") == 4 * (120 + 40)
    assert moved("backward") == 4 * (120 + 40 + 120)
    assert moved("both") == moved("forward") + moved("backward")


def test_self_attention_reads_one_x_and_cross_attention_one_context() -> None:
    weights = 11 * 12 * 4
    for sizes, sources in (("L5", 5), ("Lq5-Lk7", 5 + 7)):
        case = parse_case(f"multihead/dot/H4-{sizes}-D3-E11")
        assert bytes_moved(case, rule()) == 4 * (sources * 11 + weights + 5 * 11)
    crossed = parse_case("multihead/dot/H4-L5-D3-E11-cross")
    assert bytes_moved(crossed, rule()) == 4 * (10 * 11 + weights + 5 * 11)
