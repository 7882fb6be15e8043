"""The answers to batches against loops over sequences, heads and keys that know nothing of the oracle."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from batch_judge import Judge, grad_mode
from numpy.typing import NDArray

from attnbench.cases.ids import case_id, parse_case
from attnbench.inputs.places import change_in
from attnbench.ipc import verifier_messages as rm
from attnbench.ipc.names import OUT
from attnbench.plugins.registry import Registry, load_registry
from attnbench.verifier.batch import BatchVerifier
from attnbench.worker.calls import exact_gradients

Array = NDArray[Any]
CASE = "attention/scaled_dot/2q4_q3s6_q1s9_q5s2_q2s0_q0s3-H4-Hkv2-D3-Dv5/causal:lower_right{}/float64/cpu/{}"
H, Hkv, D, WINDOW = 4, 2, 3, 4


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_registry()


def test_scales_that_a_batch_shares_are_fixed_in_the_check_and_secret_in_timed_calls(
    registry: Registry,
) -> None:
    case = case_id(parse_case("attention/scaled_dot/q3s9_q1s7-H2-D4/none/float32/packed/kv=int8:tensor"))
    rule = registry.rules["scaled_dot"]

    def scales(entropy: int) -> list[bytes]:
        opened = BatchVerifier(rm.OpenCase(case, rule.source, entropy, 1, 1e9), rule.record)
        return [opened.arrays(index, 0)["k_scale"].tobytes() for index in (0, len(opened.stress_inputs))]

    (checked, timed), (checked_again, timed_again) = scales(1), scales(2)
    assert checked == checked_again
    assert timed != timed_again


def test_an_answer_to_inputs_before_a_change_is_refused(registry: Registry) -> None:
    judge = Judge(registry, CASE.format("", "forward/packed"))
    timed, change = judge.draws[-1], change_in(3, 1)
    before, after = (
        judge.answer(judge.given(judge.prepared("per_sequence"), timed, one)) for one in (0, change)
    )
    assert judge.opened.score_timed(timed, change, after) == ""
    assert "is above" in judge.opened.score_timed(timed, change, before)


def rows_of_keys(arrays: dict[str, Array]) -> Iterator[tuple[Array, Array, Array, Array]]:
    """Yield q, k and v of each sequence, token by token, and the place of its first query."""
    begins = arrays["cu_seqlens_q"]
    for b in range(len(begins) - 1):
        if "block_table" in arrays:
            page, length = arrays["k"].shape[1], arrays["seqused_k"][b]
            at = [(arrays["block_table"][b, j // page], j % page) for j in range(length)]
            k, v = ([arrays[name][one] for one in at] for name in "kv")
        else:
            keys = range(*arrays["cu_seqlens_k"][b : b + 2])
            k, v = ([arrays[name][j] for j in keys] for name in "kv")
        yield arrays["q"][begins[b] : begins[b + 1]], np.array(k), np.array(v), begins[b]


def attended(arrays: dict[str, Array], window: int = 1 << 30) -> tuple[Array, Array]:
    """Return the outputs (T, H, Dv) and the logarithms of sums (T, H), number by number."""
    T = len(arrays["q"])
    out, lse = np.zeros((T, H, arrays["v"].shape[-1])), np.full((T, H), -np.inf)
    for q, k, v, first in rows_of_keys(arrays):
        for i in range(len(q)):
            for h in range(H):
                total = 0.0
                for j in range(len(k)):
                    behind = len(k) - len(q) + i - j
                    if not 0 <= behind < window:
                        continue
                    power = np.exp(sum(q[i, h, d] * k[j, h * Hkv // H, d] for d in range(D)) / D**0.5)
                    out[first + i, h] += power * v[j, h * Hkv // H]
                    total += power
                if total:
                    out[first + i, h] /= total
                    lse[first + i, h] = np.log(total)
    return out, lse


@pytest.mark.parametrize("storage", ["packed", "paged:4"])
@pytest.mark.parametrize("window", [False, True])
def test_exact_answers_are_those_of_a_loop(registry: Registry, storage: str, window: bool) -> None:
    words = f"+window:{WINDOW}" if window else ""
    judge = Judge(registry, CASE.format(words, f"forward/{storage}/lse"))
    for index in judge.draws[:2]:
        out, lse = attended(judge.opened.arrays(index, 0), *([WINDOW] if window else []))
        begins = judge.opened.arrays(index, 0)["cu_seqlens_q"]
        for one, first, end in zip(judge.opened.problems, begins[:-1], begins[1:], strict=True):
            expected = one.draw(index).expected
            np.testing.assert_allclose(
                expected[OUT][0].swapaxes(0, 1), out[first:end], rtol=1e-12, atol=1e-13
            )
            np.testing.assert_allclose(expected["lse"][0].T, lse[first:end], rtol=1e-12, atol=1e-13)


@pytest.mark.slow
def test_gradients_are_differences_of_that_loop(registry: Registry) -> None:
    """Central differences of the sum of outputs, each times the gradient from above."""
    judge = Judge(registry, CASE.format("", "both/packed"))
    plain = judge.prepared("")
    ready = judge.given(plain, 0, apart=True)
    with grad_mode():
        exact = exact_gradients(ready)
    arrays = judge.opened.arrays(0, 0)

    def loss() -> float:
        return float((attended(arrays)[0] * arrays["upstream"]).sum())

    step, random = 1e-5, np.random.default_rng(3)
    for name, of in (("q", "q"), ("k", "k"), ("v", "k")):
        begins = arrays[f"cu_seqlens_{of}"]
        for number, (first, end) in enumerate(pairwise(begins)):
            gradient = exact[f"{number}.{name}"][0].swapaxes(0, 1)
            assert gradient.shape == (end - first, *arrays[name].shape[1:])
            if not gradient.size:
                continue
            at = (*(random.integers(size) for size in gradient.shape),)
            place = (first + at[0], *at[1:])
            kept, sums = arrays[name][place], []
            for sign in (1, -1):
                arrays[name][place] = kept + sign * step
                sums.append(loss())
            arrays[name][place] = kept
            assert (sums[0] - sums[1]) / (2 * step) == pytest.approx(gradient[at], rel=1e-6, abs=1e-8)


def test_a_near_duplicate_leaves_other_sequences_in_each_draw(registry: Registry) -> None:
    """What a backend concludes from one sequence for another is then wrong."""
    opened = Judge(registry, "attention/scaled_dot/2q9s12_q5s7-H2-D8/none/float32/packed").opened
    left = []
    for index, stress in enumerate(opened.stress_inputs):
        if stress == "near_duplicate":
            pairs = [(one.draw(index - 1).inputs, one.draw(index).inputs) for one in opened.problems]
            left.append([all(np.array_equal(a[name], b[name]) for name in "qkv") for a, b in pairs])
        if stress == "large_logits":
            assert all(np.count_nonzero(one.draw(index).inputs["k"][0, 0, 0]) <= 1 for one in opened.problems)
    assert left[:2] == [[False, True, False], [True, False, True]]


def test_some_sequences_of_a_draw_are_stored_in_the_order_that_is_asked_for(registry: Registry) -> None:
    opened = Judge(registry, CASE.format("", "forward/packed")).opened
    whole, some = opened.arrays(0, 0), opened.arrays_of(0, (3, 0))
    assert some["cu_seqlens_q"].tolist() == [0, 1, 5]
    begins = whole["cu_seqlens_q"]
    rows = [whole["q"][begins[number] : begins[number + 1]] for number in (3, 0)]
    np.testing.assert_array_equal(some["q"], np.concatenate(rows))
