from __future__ import annotations

from pathlib import Path

import pytest
from case_rules import backend, rule, two_parameters

from attnbench.cases.ids import parse_case
from attnbench.cases.memory import free_memory
from attnbench.cases.work import (
    POOL_CACHES,
    activation_elements,
    decode_bytes,
    held_bytes,
    human_bytes,
    kv_bytes,
    pool_bytes,
    pool_copies,
    quadratic_bytes,
    too_large,
)
from attnbench.runner.case import refusal

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


@pytest.mark.parametrize(("storage", "held"), [("packed", 1.0), ("paged:16", 22 / 17), ("padded", 2.0)])
def test_copies_of_a_batch_fill_caches_with_what_is_touched(storage: str, held: float) -> None:
    """17 of 22 pages are used, and half of the padded places."""
    case = parse_case(f"attention/dot/q1s256_q1s1_q1s15-H4-Hkv4-D64/rotating/{storage}")
    if storage == "padded":
        case = parse_case(f"attention/dot/q1s256_q1s128_q1s0-H4-Hkv4-D64/rotating/{storage}")
    assert pool_bytes(case, rule(), CACHE) == pytest.approx(held * 4 * CACHE, rel=0.05)


def test_bytes_of_decode_are_those_of_keys_and_values_that_are_kept() -> None:
    heads = "H4-Hkv2-D64/causal:lower_right"
    for text, keys in (
        (f"2q1s256-{heads}/packed", 512),
        (f"q1s256_q0s99-{heads}+window:16/packed", 16),
        ("B2-H4-Hkv2-Lq1-Lk256-D64", 512),
    ):
        case = parse_case(f"attention/dot/{text}")
        assert decode_bytes(case, kv_bytes(case, rule())) == keys * 2 * 2 * 64 * 4
    chunk = parse_case("attention/dot/q1s256_q2s99-H4-D64/packed")
    assert decode_bytes(chunk, kv_bytes(chunk, rule())) is None


def test_pools_that_do_not_fit_say_so() -> None:
    small, flat = parse_case("attention/dot/H1-L8-D8/rotating"), backend(quadratic_copies=0)
    assert too_large(small, rule(), flat, 2 * GIB, 12, GIB // 8) is None
    assert too_large(small, rule(), flat, GIB, 12, GIB // 8) == (
        "inputs rotate through 12 pools of 128 MiB, one for each layout that backends take, and 1 GiB is "
        "free: name backends of one layout with --backend"
    )
    assert too_large(small, rule(), flat, GIB, 1, 2 * GIB) == (
        "inputs rotate through 2 GiB and 1 GiB is free: free memory, or measure with --cache hot"
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


def test_a_backend_that_does_not_say_that_it_drops_weights_is_unsupported() -> None:
    case = parse_case("attention/dot/H2-L16-D8/dropout0.1")
    said = "unsupported", "drops no weights; the case has dropout 0.1"
    assert refusal(backend(), case, rule(), devices=()) == said
    assert refusal(backend(dropout=True), case, rule(), devices=()) is None


MACHINE = {"proc/meminfo": "MemTotal:  2000 kB\nMemFree: 1 kB\nMemAvailable:  1000 kB\n"}


def group(folder: str, most: str, used: int, inactive: int = 0) -> dict[str, str]:
    return {
        f"cgroup/{folder}memory.max": f"{most}\n",
        f"cgroup/{folder}memory.current": f"{used}\n",
        f"cgroup/{folder}memory.stat": f"anon 5\ninactive_file {inactive}\n",
    }


INNER = {"proc/self/cgroup": "0::/outer/inner\n"}
VERSION_1 = {
    "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/box\n0::/\n",
    "cgroup/memory/box/memory.limit_in_bytes": "700000\n",
    "cgroup/memory/box/memory.usage_in_bytes": "300000\n",
    "cgroup/memory/box/memory.stat": "total_inactive_file 50000\n",
}


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, 1000 * 1024),
        (INNER | group("outer/inner/", "max", 10), 1000 * 1024),
        (INNER | group("outer/inner/", "max", 10) | group("outer/", "900000", 500000), 400000),
        (INNER | group("outer/inner/", "300000", 100000, 40000) | group("outer/", "900000", 500000), 240000),
        # Inside a container the path may be the host's; then only the root is visible.
        ({"proc/self/cgroup": "0::/system.slice/docker-abc.scope\n"} | group("", "500000", 200000), 300000),
        (VERSION_1, 450000),
        ({"proc/self/cgroup": "0::/\n"} | group("", "100", 200), 0),
    ],
)
def test_the_smallest_of_all_limits_counts(tmp_path: Path, files: dict[str, str], free: int) -> None:
    (tmp_path / "cgroup").mkdir()
    for name, text in (MACHINE | files).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert free_memory(tmp_path / "proc", tmp_path / "cgroup") == free


def test_this_machine_has_free_memory() -> None:
    assert free_memory() > 2**20
