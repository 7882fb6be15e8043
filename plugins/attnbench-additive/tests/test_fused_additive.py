"""fused_additive passes the tests of attnbench's own backends, and its shortcuts make no difference."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import test_backends_against_oracle as oracle
import test_backends_manners as manners
import test_gradients_by_backend as grads
import torch
from attnbench_additive import FUSED_ADDITIVE, attnbench_backends, backend, tiles
from attnbench_additive.backend import pairs_in_blocks, walk_of
from attnbench_additive.quotients import FEATURES, factors, far_of_groups, reach, weight_sums
from attnbench_additive.tiles import product, tile_shapes
from judging import errors_of, problem, upstream_of, wide
from solved import BACKENDS, Solved, refusal, solved, solved_by, supported

from attnbench.cases.ids import parse_case
from attnbench.kit.masks import Chunk, chunks_of
from attnbench.kit.reference import PLAIN
from attnbench.timing.memory import peak_extra_bytes
from attnbench.types.backend import Setup
from attnbench.worker.gradients import leaf_inputs, passed, plain_gradients, with_gradients

torch.set_num_threads(1)

NAME = "fused_additive"
BACKEND = BACKENDS[NAME] = FUSED_ADDITIVE
CASE = "attention/{}/H2-Lq40-Lk70-D16/{}/{}/both"
RULES = ("additive", "additive_sum")
FAR = ("all", "some", "one", "opposed")


def far_out(text: str, which: str) -> Solved:
    """A case whose queries and keys reach 60: all of them, some, one of each, or all against each other."""
    drawn = solved(text)
    q, k, v = (x.double().numpy().copy() for x in drawn.inputs)
    rng = np.random.default_rng(1)
    loud_q, loud_k = rng.uniform(-60, 60, q.shape), rng.uniform(-60, 60, k.shape)
    if which == "opposed":
        loud_q[:], loud_k[:] = 60, -60
    step = {"some": 3, "one": 100}.get(which, 1)
    q[:, :, ::step], k[:, :, ::step] = loud_q[:, :, ::step], loud_k[:, :, ::step]
    own = {name: x.double().numpy() for name, x in drawn.setup.rule_parameters.items()}
    return solved_by(text, (q, k, v), own)


def gradients(case: Solved) -> dict[str, torch.Tensor]:
    return dict(grads.gradients_of(BACKEND, case))


SHARED = (
    manners.test_inputs_stay_and_outputs_are_fresh_dense_and_repeatable,
    manners.test_slices_of_larger_buffers_give_the_same_without_inference_mode,
    manners.test_a_forkable_backend_leaves_no_thread_behind,
    manners.test_quadratic_copies_are_what_is_declared,
    grads.test_passes_repeat_agree_and_accumulate_nothing,
    grads.test_new_upstream_gradients_and_new_inputs_are_used,
)


@pytest.mark.parametrize("shared", SHARED, ids=lambda shared: shared.__name__)
def test_by_the_tests_of_all_backends(shared: Callable[[str], None]) -> None:
    shared(NAME)


@pytest.mark.parametrize("mask", [mask for mask in oracle.MASKS if "per_head" not in mask])
def test_outputs_are_right(mask: str) -> None:
    for dtype in ("float64", "float32"):
        for operation in BACKEND.operations:
            for case in supported(NAME, oracle.forms(operation, mask, dtype)):
                oracle.check(NAME, case)


@pytest.mark.parametrize(
    "turn", [turn for turn, (mask, _) in enumerate(grads.ASKED) if "per_head" not in mask]
)
def test_gradients_are_right(turn: int) -> None:
    grads.test_gradients_are_those_of_the_plain_reference(NAME, turn)


@pytest.mark.parametrize("form", oracle.HALF)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_rounding_explains_the_error_in_half_precision(form: str, dtype: str) -> None:
    oracle.test_rounding_explains_the_error(NAME, form, dtype)


@pytest.mark.parametrize("sizes", grads.ODD)
def test_odd_sizes(sizes: str) -> None:
    oracle.test_odd_sizes(NAME, sizes)
    grads.test_odd_sizes(NAME, sizes)


def test_importing_the_package_imports_no_torch() -> None:
    program = "import sys, attnbench_additive as a; a.attnbench_backends(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    assert tuple(attnbench_backends()) == (FUSED_ADDITIVE,)


def rms(x: torch.Tensor) -> float:
    return float(x.double().square().mean().sqrt())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("which", FAR)
@pytest.mark.parametrize("rule", RULES)
def test_far_out_its_errors_are_those_of_tanh(rule: str, which: str, dtype: str) -> None:
    case = far_out(CASE.format(rule, "causal:lower_right", dtype).removesuffix("/both"), which)
    mine, plain = errors_of(BACKEND, [case]), errors_of(PLAIN, [case])
    assert not mine.not_finite
    assert mine.rms <= 2 * plain.rms
    assert mine.max_abs <= 4 * plain.max_abs


@pytest.mark.parametrize("which", FAR)
@pytest.mark.parametrize("rule", RULES)
def test_far_out_its_gradients_are_those_of_tanh(rule: str, which: str) -> None:
    case = far_out(CASE.format(rule, "causal:lower_right", "float32"), which)
    exact, upstream = wide(case), upstream_of(case, torch.float32)
    expected = plain_gradients(exact.setup, exact.inputs, upstream.double())
    plain = plain_gradients(case.setup, case.inputs, upstream)
    for part, gradient in gradients(case).items():
        # Of the matrices, whose sums are of 60 times what cancels.
        rounding = 60 * torch.finfo(torch.float32).eps * max(1.0, rms(expected[part]))
        assert rms(gradient - expected[part]) <= 2 * rms(plain[part] - expected[part]) + rounding, part


def test_far_pairs_were_far_and_ordinary_ones_are_not() -> None:
    found = {}
    for name, case in (("far", far_out(CASE.format("additive", "none", "float32"), "one")),
                       ("near", solved(CASE.format("additive", "none", "float32")))):  # fmt: skip
        own, (q, k, _) = case.setup.rule_parameters, case.inputs
        a = (q @ own["w_query"].mT)[0]
        b = (k @ own["w_key"].mT + own["bias"][:, None])[0]
        found[name] = far_of_groups(a, b, own["v"])
    assert found["near"] is None
    assert found["far"] is not None
    assert found["far"].far_queries.sum(1).tolist() == found["far"].far_keys.sum(1).tolist() == [1, 1]


@pytest.mark.parametrize("rule", RULES)
def test_at_zero_the_derivative_of_tanh_is_one(rule: str) -> None:
    text = f"attention/{rule}/H1-Lq3-Lk5-D4/none/float64/both"
    drawn = solved(text)
    q, k, v = (x.numpy() for x in drawn.inputs)
    own = {name: x.numpy() for name, x in drawn.setup.rule_parameters.items()}
    case = solved_by(text, (0 * q, 0 * k, v), own | {"bias": 0 * own["bias"]})
    expected = plain_gradients(case.setup, case.inputs, upstream_of(case, torch.float64))
    for part, gradient in gradients(case).items():
        torch.testing.assert_close(gradient, expected[part], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("D", [1, 2, 3, 4, 7])
def test_quotients_are_sums_of_weighted_tanh(D: int) -> None:
    a, b, v = (torch.randn(2, n, D, dtype=torch.float64) * 3 for n in (4, 5, 1))
    left, right, sums = factors(a).mT, factors(b), weight_sums(v[:, 0]).transpose(0, 1)
    numerator, denominator = (left * sums) @ right, left @ right
    expected = (a[:, :, None] + b[:, None]).tanh() @ v[:, 0, None, :, None]
    torch.testing.assert_close((numerator / denominator).sum(1), expected[..., 0])
    assert right.shape == (2, -(-D // FEATURES), 2**FEATURES, 5)
    assert 0 <= right.min() <= right.max() == 1


@pytest.mark.parametrize(
    ("n", "K", "m"), [(1, 8, 1), (300, 8, 257), (512, 8, 512), (600, 8, 301), (64, 1024, 32)]
)
def test_products_are_those_of_matmul_wherever_the_factors_lie(n: int, K: int, m: int) -> None:
    left, right = torch.rand(1, n, K), torch.rand(1, m, K)
    expected = (left.double() @ right.double().mT).float()
    # The bound on the error of a sum of K positive terms in float32, in any order, and of the last rounding.
    rtol = (K + 1) * 2**-24
    for x in (left, left.mT.contiguous().mT):
        # The last has gaps between its rows.
        for y in (right, right.mT.contiguous().mT, torch.cat((right.mT, right.mT), 2)[..., :m].mT):
            torch.testing.assert_close(product(x, y), expected, rtol=rtol, atol=0)
    torch.testing.assert_close(product(left.double(), right.double()).float(), expected)
    torch.testing.assert_close(product(left.expand(3, -1, -1), right.expand(3, -1, -1))[2:], expected)


@pytest.mark.parametrize("mask", ["none", "causal", "window:5", "padding", "bool", "float+causal"])
def test_many_small_tiles_give_the_same(mask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"attention/additive/B2-H4-Hkv2-Lq17-Lk33-D8-Dv5/{mask}/float64/both"
    case = solved(text)
    whole, of_whole = case.run(BACKEND), gradients(case)
    monkeypatch.setattr(tiles, "LARGE", (8, 9))
    monkeypatch.setattr(tiles, "SMALL", (4, 9))
    torch.testing.assert_close(case.run(BACKEND), whole, rtol=1e-12, atol=1e-13)
    for part, gradient in gradients(case).items():
        torch.testing.assert_close(gradient, of_whole[part], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    ("mask", "rows"),
    [
        ("none", 512), ("causal", 512), ("bool+causal", 512), ("padding:672,203+causal:lower_right", 512),
        ("window:40", 128), ("float+window:40", 128), ("padding:60,70", 128), ("float", 512),
    ],
)  # fmt: skip
def test_tiles_are_small_where_that_is_less_work_and_no_others_are_made(
    mask: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of the same rule at a length that the oracle would take long over.
    tiny = solved("attention/additive/H1-L4-D4/none/float32").setup
    case = replace(tiny, case=parse_case(f"attention/additive/B2-H1-L700-D4/{mask}/float32"))
    made = {shape: chunks_of(case, torch.float32, shape) for shape in tile_shapes(700, 700)}
    pairs = {
        shape: sum(
            (chunk.rows.stop - chunk.rows.start) * (cols.stop - cols.start)
            for chunk in chunks
            for cols, _ in chunk.blocks
        )
        for shape, chunks in made.items()
    }
    assert pairs == {shape: pairs_in_blocks(case.case, shape) for shape in made}
    asked: list[tuple[int, int]] = []

    def counted(setup: Setup, dtype: torch.dtype, shape: tuple[int, int]) -> tuple[Chunk, ...]:
        asked.append(shape)
        return made[shape]

    monkeypatch.setattr(backend, "chunks_of", counted)
    walk = walk_of(case, torch.float32)
    assert [shape[0] for shape in asked] == [rows]
    assert walk.chunks is made[asked[0]]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("rule", RULES)
def test_the_check_has_nothing_to_say(rule: str, dtype: str) -> None:
    assert problem(NAME, f"attention/{rule}/H2-L150-D64/none/{dtype}", 2) == ""


def test_memory_grows_with_length_and_no_faster() -> None:
    def extra(L: int, pass_: str) -> float:
        case = solved(f"attention/additive/H2-L{L}-D2/none/float32")
        setup = with_gradients(case.setup)
        setup = replace(setup, case=replace(setup.case, pass_=pass_))
        inputs = leaf_inputs(case.inputs)
        call = passed(BACKEND.prepare(setup), setup, upstream_of(case, torch.float32))
        peak = peak_extra_bytes(lambda: call(*inputs))
        assert peak is not None
        return peak

    # By pair it would be 16 MiB for each array of a head.
    assert extra(2048, "both") < 24 << 20


def test_other_rules_are_refused_and_so_is_dropout() -> None:
    assert refusal(BACKEND, solved("attention/scaled_dot/H1-L4-D4/none/float32").case) == "rule"
    assert not BACKEND.dropout


def test_the_reach_leaves_a_denominator_its_digits() -> None:
    for dtype in (torch.float32, torch.float64):
        numbers = torch.finfo(dtype)
        assert np.exp(-2 * reach(dtype)) * numbers.eps >= 0.99 * numbers.tiny
