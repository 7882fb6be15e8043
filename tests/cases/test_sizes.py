from __future__ import annotations

import pytest
from case_rules import backend, rule, two_parameters

from attnbench.cases.ids import parse_case
from attnbench.cases.work import (
    POOL_CACHES,
    activation_elements,
    held_bytes,
    human_bytes,
    pool_bytes,
    pool_copies,
    quadratic_bytes,
    too_large,
)

GIB = 1024**3
LONG = parse_case("attention/scaled_dot/B1-H32-L16384-D128/causal")


def test_inputs_parameters_output_and_an_explicit_mask_are_held() -> None:
    plain = parse_case("attention/dot/B2-H4-Hkv2-Lq5-Lk7-D3-Dv6/float64")
    elements = 2 * 4 * 5 * 3 + 2 * 2 * 7 * (3 + 6) + 2 * 4 * 5 * 6
    assert held_bytes(plain, rule()) == 8 * elements
    assert held_bytes(plain, rule(parameters=two_parameters)) == 8 * (elements + 4 * 7)
    for mask, each in (("bool", 1), ("float", 8), ("padding", 0)):
        masked = parse_case(f"attention/dot/B2-H4-Hkv2-Lq5-Lk7-D3-Dv6/float64/{mask}")
        assert held_bytes(masked, rule()) - held_bytes(plain, rule()) == each * 2 * 5 * 7


def test_a_layer_holds_its_heads_beside_x_and_output() -> None:
    case = parse_case("multihead/dot/H4-L5-D3-E11")
    x_and_out, weights, heads = 2 * 5 * 11, 4 * 11 * 12, 5 * 4 * 3 * 4
    assert held_bytes(case, rule()) == 4 * (x_and_out + weights + heads)


def test_quadratic_arrays_follow_the_backend_and_the_rule() -> None:
    each = 32 * 16384**2 * 4
    assert quadratic_bytes(LONG, rule(), backend(quadratic_copies=3)) == 3 * each
    assert quadratic_bytes(LONG, rule(), backend(quadratic_copies=0)) == 0
    broadcast = rule("additive", score_elements=lambda case: case.D)
    assert quadratic_bytes(LONG, broadcast, backend(quadratic_copies=1)) == 128 * each


@pytest.mark.parametrize("pass_", ["backward", "both"])
def test_a_backward_pass_holds_gradients_as_well(pass_: str) -> None:
    case = parse_case(f"attention/scaled_dot/B1-H32-L16384-D128/causal/{pass_}")
    each = 32 * 16384**2 * 4
    assert [quadratic_bytes(case, rule(), backend(quadratic_copies=n)) // each for n in range(5)] == [
        0, 3, 3, 4, 5,
    ]  # fmt: skip
    assert held_bytes(case, rule()) == 2 * held_bytes(LONG, rule())
    assert "it holds 3 arrays of" in str(too_large(case, rule(), backend(quadratic_copies=1), GIB))


def test_what_fits_is_fine_to_the_last_byte() -> None:
    needed = held_bytes(LONG, rule()) + quadratic_bytes(LONG, rule(), backend())
    assert too_large(LONG, rule(), backend(), needed) is None
    assert too_large(LONG, rule(), backend(), needed - 1) is not None
    assert too_large(LONG, rule(), backend(quadratic_copies=0), 2 * GIB) is None


def test_what_does_not_fit_says_what_is_needed_and_what_is_free() -> None:
    assert too_large(LONG, rule(), backend(), 6 * GIB) == (
        "needs about 65 GiB and 6 GiB is free: it holds 2 arrays of (1, 32, 16384, 16384) in float32, 64 GiB"
    )
    broadcast = rule("additive", score_elements=lambda case: case.D)
    assert too_large(LONG, broadcast, backend(quadratic_copies=1), 6 * GIB) == (
        "needs about 4 TiB and 6 GiB is free: "
        "it holds 1 array of (1, 32, 16384, 16384, 128) in float32, 4 TiB"
    )
    flat = backend(quadratic_copies=0)
    assert too_large(LONG, rule(), flat, GIB // 2) == "needs about 1 GiB and 512 MiB is free"


CACHE = 32 * 1024**2


@pytest.mark.parametrize("sizes", [(1,), (4096, 100, 7), (1024**2, 1024**2, 2 * 1024**2), (GIB, GIB, GIB)])
def test_a_pool_exceeds_four_caches_without_the_copy_in_use(sizes: tuple[int, ...]) -> None:
    """Even counted with what is touched besides the values; and one copy less would not."""
    copies = pool_copies(sizes, CACHE)
    touched = sum(-(-size // 64) * 64 + 256 for size in sizes)
    assert copies >= 2
    assert copies * touched > POOL_CACHES * CACHE
    assert copies == 2 or (copies - 1) * touched <= POOL_CACHES * CACHE


@pytest.mark.parametrize(
    "text",
    ["attention/dot/B2-H4-Hkv2-Lq5-Lk7-D3-Dv6/float64/rotating", "multihead/dot/H4-L64-D16-E256/rotating"],
)
def test_the_memory_of_a_pool_is_that_of_its_copies_and_each_input_counts_once(text: str) -> None:
    case = parse_case(text)
    each = activation_elements(case, rule()) * case.item_bytes
    pool = pool_bytes(case, rule(), CACHE)
    assert 4 * CACHE < pool <= 4 * CACHE + 2 * (each + 3 * 320)
    assert pool_bytes(case, rule(), 10 * CACHE) > 9 * pool
    assert pool_bytes(LONG, rule(), CACHE) == 0, "inputs do not rotate"


def test_pools_that_do_not_fit_say_so() -> None:
    small, flat = parse_case("attention/dot/H1-L8-D8/rotating"), backend(quadratic_copies=0)
    pools = 12 * pool_bytes(small, rule(), CACHE)
    assert too_large(small, rule(), flat, 2 * GIB, pools) is None
    assert too_large(small, rule(), flat, GIB, pools) == (
        "needs about 1.5 GiB and 1 GiB is free: inputs rotate, and the pools of all backends take 1.5 GiB"
    )


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"), (999, "999 B"), (1000, "0.977 KiB"), (1024, "1 KiB"), (4.1 * GIB, "4.1 GiB"),
        (0.9999 * GIB, "1 GiB"), (12345 * GIB, "12.1 TiB"), (10**30, "888178419700125 PiB"),
    ],
)  # fmt: skip
def test_bytes_for_people(count: float, text: str) -> None:
    assert human_bytes(count) == text
