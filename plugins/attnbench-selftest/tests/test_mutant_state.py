"""Mutants whose values are right, or right at first: what they leave behind, and what later calls give."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from attnbench_selftest.mutants import MUTANTS
from attnbench_selftest.mutants import world as changes
from attnbench_selftest.mutants.mutant import Mutant
from mutant_calls import Inputs, drawn, guarded, laid, overlaps, rule_of, seen, setup_of, world
from torch import Tensor

from attnbench.types.case import output_shape

CASES = (
    "attention/scaled_dot/B2-H4-Hkv2-Lq6-Lk12-D8",
    "attention/scaled_dot/B2-H4-Lq6-Lk12-D8",
    "attention/sinks/B3-H4-Hkv2-L7-D8/causal/float64",
    "multihead/scaled_dot/B2-H4-L6-D8-E32-bias",
    "multihead/general/B3-H2-Lq5-Lk6-D4-E8-cross/padding",
)
STATE = [mutant for mutant in MUTANTS if mutant.trait == "state"]
TIMED = [mutant for mutant in MUTANTS if mutant.trait == "timed"]
RIGHT = [mutant for mutant in MUTANTS if mutant.right]
UNWRITTEN = {"wrong_unwritten_output", "wrong_last_row_unwritten"}
"""They return the earlier contents of memory, on which no test can rely."""

of_mutant = {"ids": lambda mutant: mutant.backend_name}


@pytest.fixture(autouse=True)
def world_as_it_was() -> Iterator[None]:
    threads, environment = torch.get_num_threads(), dict(os.environ)
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()
    yield
    torch.set_default_device(None)
    torch.set_default_dtype(torch.float32)
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision("highest")
    torch.use_deterministic_algorithms(False)
    torch.set_grad_enabled(True)
    torch.set_flush_denormal(False)
    os.environ.clear()
    os.environ.update(environment)
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    np.random.set_state(states[2])
    while changes._started:
        child = changes._started.pop()
        child.kill()
        child.wait()


def cases_of(mutant: Mutant) -> list[str]:
    return [text for text in CASES if mutant.runs(setup_of(text).case, rule_of(text))]


def guarded_inputs(mutant: Mutant, text: str) -> Inputs:
    given = laid(mutant, drawn(text))
    made = {id(x): guarded(x) for x in given}
    a, b, c = (made[id(x)] for x in given)
    return a, b, c


def signs(mutant: Mutant, text: str) -> set[str]:
    """The signs that three calls of a mutant show, besides wrong values."""
    setup, inputs = setup_of(text), guarded_inputs(mutant, text)
    call = mutant.prepare(setup)
    bits, versions = [x.clone() for x in inputs], [x._version for x in inputs]
    before = world()
    first = call(*inputs)
    after = world()
    found = {name for name in before if before[name] != after[name]}
    torch.set_default_device(None)
    if any(not bool((x == y).all()) for x, y in zip(inputs, bits, strict=True)):
        found.add("inputs")
    if versions != [x._version for x in inputs]:
        found.add("versions")
    if type(first) is not Tensor or first.device.type != "cpu":
        return found | {"kind"}
    if first.dtype != inputs[0].dtype:
        found.add("dtype")
    if tuple(seen(mutant, first).shape) != output_shape(setup.case):
        return found | {"shape"}
    if bool(first.isnan().any()):
        found.add("NaN")
    if overlaps(first):
        found.add("overlap")
    outputs = [first, call(*inputs), call(*inputs)]
    storages = [x.untyped_storage().data_ptr() for x in (*{id(x): x for x in inputs}.values(), *outputs)]
    if len(set(storages)) < len(storages):
        found.add("shared memory")
    return found


@pytest.mark.parametrize("mutant", [*STATE, *TIMED], **of_mutant)
def test_each_applies_to_some_case(mutant: Mutant) -> None:
    assert cases_of(mutant)


@pytest.mark.parametrize("text", CASES)
@pytest.mark.parametrize("mutant", STATE, **of_mutant)
def test_state_shows_where_it_applies(mutant: Mutant, text: str) -> None:
    if text in cases_of(mutant):
        assert signs(mutant, text) or mutant.backend_name in UNWRITTEN


@pytest.mark.parametrize("mutant", RIGHT, **of_mutant)
def test_right_ones_leave_nothing_behind(mutant: Mutant) -> None:
    for text in cases_of(mutant):
        assert signs(mutant, text) == set(), text


def test_what_is_restored_shows_in_the_version_counter_alone() -> None:
    (borrows,) = (mutant for mutant in STATE if mutant.backend_name == "wrong_borrows_values")
    assert signs(borrows, CASES[0]) == {"versions"}


def _other(text: str, inputs: Inputs) -> Inputs:
    return drawn(text, 1)


def _one_value(which: int) -> Callable[[str, Inputs], Inputs]:
    """One number changed, which is neither first nor last nor in any sample of them."""

    def changed(text: str, inputs: Inputs) -> Inputs:
        made = [x.clone() for x in inputs]
        flat = made[which].view(-1)
        flat[flat.numel() // 2 + 3] += 1
        return made[0], made[1], made[2]

    return changed


def _batches_moved(text: str, inputs: Inputs) -> Inputs:
    """The same numbers in other places, so that no sum shows it."""
    a, b, c = (x.roll(1, 0) for x in inputs)
    return a, b, c


PAIRS = 11
"""Pairs of calls on the same contents. 22 is a multiple of few numbers: counting calls shows."""

RENEWALS = (_other, _one_value(0), _one_value(1), _one_value(2), _batches_moved)


def wrong_calls(mutant: Mutant, text: str) -> list[int]:
    """Which of some hundred calls on one storage, whose contents change, give wrong values."""
    setup = setup_of(text)
    call, right = mutant.prepare(setup), RIGHT[0].prepare(setup)
    values = drawn(text)
    held = laid(mutant, tuple(x.clone() for x in values))
    wrong, calls = [], 0
    for round_ in range(len(RENEWALS) + 1):
        if round_:
            values = RENEWALS[round_ - 1](text, values)
            for tensor, new in zip(held, laid(mutant, values), strict=True):
                tensor.data.copy_(new)  # past the version counter, as a renewal must be
        expected = right(*(x.clone() for x in values))
        for _ in range(PAIRS):
            # Two at once and looked at afterwards: some take their time for calls that come alone.
            outputs = [call(*held).clone(), call(*held).clone()]
            for output in outputs:
                calls += 1
                if not torch.allclose(seen(mutant, output), expected, rtol=1e-4, atol=1e-4):
                    wrong.append(calls)
    return wrong


@pytest.mark.parametrize("mutant", TIMED, **of_mutant)
def test_later_calls_show_what_the_first_hides(mutant: Mutant) -> None:
    assert wrong_calls(mutant, CASES[0])


@pytest.mark.parametrize("mutant", RIGHT, **of_mutant)
def test_right_ones_are_right_in_every_call(mutant: Mutant) -> None:
    if CASES[0] in cases_of(mutant):
        assert wrong_calls(mutant, CASES[0]) == []


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("wrong_zeros_after_40_calls", [*range(41, 133)]),
        ("wrong_zeros_every_7th_call", [*range(7, 133, 7)]),
        ("wrong_zeros_in_the_first_call", [1]),
        ("wrong_one_call_behind", [23, 45, 67, 89, 111]),
        ("wrong_cache_by_version", [*range(23, 133)]),
    ],
)
def test_they_are_wrong_in_the_calls_that_they_say(name: str, calls: list[int]) -> None:
    (mutant,) = (mutant for mutant in TIMED if mutant.backend_name == name)
    assert wrong_calls(mutant, CASES[0]) == calls
