"""Animals whose values are right, or right at first: what they leave behind, and what later calls give."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor
from zoo_calls import Inputs, drawn, guarded, laid, overlaps, rule_of, seen, setup_of, world

from attnbench.selftest.zoo import ANIMALS, wrong_world
from attnbench.selftest.zoo.animal import Animal, runs
from attnbench.types.shapes import output_shape
from attnbench.worker import evidence

CASES = (
    "attention/scaled_dot/B2-H4-Hkv2-Lq6-Lk12-D8",
    "attention/scaled_dot/B2-H4-Lq6-Lk12-D8",
    "attention/sinks/B3-H4-Hkv2-L7-D8/causal/float64",
    "multihead/scaled_dot/B2-H4-L6-D8-E32-bias",
    "multihead/general/B3-H2-Lq5-Lk6-D4-E8-cross/padding",
)
STATE = [animal for animal in ANIMALS if animal.trait == "state"]
TIMED = [animal for animal in ANIMALS if animal.trait == "timed"]
RIGHT = [animal for animal in ANIMALS if animal.right]
UNWRITTEN = {"wrong_unwritten_output", "wrong_last_row_unwritten"}
"""What they give is what the memory held before: nothing that a test could rely on."""

of_animal = {"ids": lambda animal: animal.called}


@pytest.fixture(autouse=True)
def world_as_it_was() -> Iterator[None]:
    threads, environment = torch.get_num_threads(), dict(os.environ)
    functions = time.perf_counter_ns, torch.equal, torch.allclose, evidence.stored_answer
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()
    yield
    torch.set_default_device(None)
    torch.set_default_dtype(torch.float32)
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision("highest")
    torch.use_deterministic_algorithms(False)
    torch.set_grad_enabled(True)
    torch.set_flush_denormal(False)
    time.perf_counter_ns, torch.equal, torch.allclose, evidence.stored_answer = functions
    sys.setprofile(None)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    os.environ.clear()
    os.environ.update(environment)
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    np.random.set_state(states[2])
    while wrong_world._started:
        child = wrong_world._started.pop()
        child.kill()
        child.wait()


def cases_of(animal: Animal) -> list[str]:
    return [text for text in CASES if runs(animal, setup_of(text).case, rule_of(text))]


def guarded_inputs(animal: Animal, text: str) -> Inputs:
    given = laid(animal, drawn(text))
    made = {id(x): guarded(x) for x in given}
    a, b, c = (made[id(x)] for x in given)
    return a, b, c


def signs(animal: Animal, text: str) -> set[str]:
    """What three calls show of an animal, besides whether their values are right."""
    setup, inputs = setup_of(text), guarded_inputs(animal, text)
    call = animal.prepare(setup)
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
    if tuple(seen(animal, first).shape) != output_shape(setup.case):
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


@pytest.mark.parametrize("animal", [*STATE, *TIMED], **of_animal)
def test_each_applies_to_some_case(animal: Animal) -> None:
    assert cases_of(animal)


@pytest.mark.parametrize("text", CASES)
@pytest.mark.parametrize("animal", STATE, **of_animal)
def test_state_shows_where_it_applies(animal: Animal, text: str) -> None:
    if text in cases_of(animal):
        assert signs(animal, text) or animal.called in UNWRITTEN


@pytest.mark.parametrize("animal", RIGHT, **of_animal)
def test_right_ones_leave_nothing_behind(animal: Animal) -> None:
    for text in cases_of(animal):
        assert signs(animal, text) == set(), text


def test_what_is_restored_shows_in_the_version_counter_alone() -> None:
    (borrows,) = (animal for animal in STATE if animal.called == "wrong_borrows_values")
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
    """The same numbers in other places, so that no sum tells."""
    a, b, c = (x.roll(1, 0) for x in inputs)
    return a, b, c


PAIRS = 11
"""Of calls on the same contents. 22 is a multiple of few numbers: who counts calls is found."""

RENEWALS = (_other, _one_value(0), _one_value(1), _one_value(2), _batches_moved)


def wrong_calls(animal: Animal, text: str) -> list[int]:
    """Which of some hundred calls on one storage, whose contents change, give wrong values."""
    setup = setup_of(text)
    call, right = animal.prepare(setup), RIGHT[0].prepare(setup)
    values = drawn(text)
    held = laid(animal, tuple(x.clone() for x in values))
    wrong, calls = [], 0
    for round_ in range(len(RENEWALS) + 1):
        if round_:
            values = RENEWALS[round_ - 1](text, values)
            for tensor, new in zip(held, laid(animal, values), strict=True):
                tensor.data.copy_(new)  # past the version counter, as a renewal must be
        expected = right(*(x.clone() for x in values))
        for _ in range(PAIRS):
            # Two at once and looked at afterwards: some take their time for calls that come alone.
            outputs = [call(*held).clone(), call(*held).clone()]
            for output in outputs:
                calls += 1
                if not torch.allclose(seen(animal, output), expected, rtol=1e-4, atol=1e-4):
                    wrong.append(calls)
    return wrong


@pytest.mark.parametrize("animal", TIMED, **of_animal)
def test_later_calls_show_what_the_first_hides(animal: Animal) -> None:
    assert wrong_calls(animal, CASES[0])


@pytest.mark.parametrize("animal", RIGHT, **of_animal)
def test_right_ones_are_right_in_every_call(animal: Animal) -> None:
    if CASES[0] in cases_of(animal):
        assert wrong_calls(animal, CASES[0]) == []


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
    (animal,) = (animal for animal in TIMED if animal.called == name)
    assert wrong_calls(animal, CASES[0]) == calls
