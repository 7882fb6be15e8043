"""Two speeds are a backend's own only where those beside it don't share them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
import pytest
from made_sets import block, set_line
from noise import NOISES, Noise, Plan, draw_sets, draw_trials, flips, normal

from attnbench.stats.summary import own_two_speeds
from attnbench.types.record import Block, SetLine

QUIET = Noise(own=normal(0.02))
THREE = Plan({"mine": 12, "base": 12, "third": 12})


def slowed(line: SetLine, name: str, factor: Mapping[int, float]) -> SetLine:
    """A set in which the samples of one backend at these turns took so much longer."""

    def changed(old: Block) -> Block:
        walls = [round(ns * factor.get(turn, 1.0)) for turn, ns in zip(old.turns, old.wall_ns, strict=True)]
        return msgspec.structs.replace(old, wall_ns=walls, cpu_ns=walls)

    return msgspec.structs.replace(
        line, blocks={**line.blocks, name: [changed(old) for old in line.blocks[name]]}
    )


def with_own_speeds(seed: int, noise: Noise, plan: Plan, share: float = 0.3) -> list[SetLine]:
    """``mine`` takes 1.8 times as long in a share of its turns, at random."""
    rng = np.random.default_rng(seed)
    return [
        slowed(line, "mine", {turn: 1.8 for turn in range(100) if rng.random() < share})
        for line in draw_sets(rng, noise, plan)
    ]


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("plan", [THREE, Plan({"mine": 12, "base": 12}), Plan({"mine": 12})])
def test_two_speeds_of_its_own_are_found(plan: Plan, share: float) -> None:
    sets = with_own_speeds(1, QUIET, plan, share)
    found = own_two_speeds(sets, "mine")
    assert found is not None
    assert found.slow / found.fast == pytest.approx(1.8, rel=0.05)
    assert found.slow_share == pytest.approx(share, abs=0.1)
    assert all(own_two_speeds(sets, name) is None for name in plan.samples if name != "mine")


def test_so_are_those_of_its_processes() -> None:
    """Each process has one speed, three of nine the slower one."""
    sets = draw_sets(np.random.default_rng(2), QUIET, THREE)
    sets = [
        slowed(line, "mine", dict.fromkeys(range(100), 1.8)) if line.index in (2, 5, 6) else line
        for line in sets
    ]
    found = own_two_speeds(sets, "mine")
    assert found is not None
    assert found.slow_share == pytest.approx(1 / 3, abs=0.02)
    assert own_two_speeds(sets, "base") is None


@pytest.mark.parametrize("each", [0.02, 0.25])
@pytest.mark.parametrize("plan", [THREE, Plan({"mine": 12, "base": 12}), Plan({"mine": 12, "base": 3})])
def test_a_machine_of_two_speeds_is_nobodys_fault(plan: Plan, each: float) -> None:
    machine = Noise(machine=flips(1.9, each), own=normal(0.02))
    told = sum(
        own_two_speeds(sets, name) is not None
        for sets in draw_trials(np.random.default_rng(3), 20, machine, plan)
        for name in plan.samples
    )
    assert told <= 2, "of 20 times two or three backends"


def test_a_machine_that_is_slow_for_whole_sets_is_nobodys_fault() -> None:
    sets = draw_sets(np.random.default_rng(4), QUIET, THREE)
    for name in THREE.samples:
        sets = [
            slowed(line, name, dict.fromkeys(range(100), 1.9)) if line.index % 3 == 0 else line
            for line in sets
        ]
    assert all(own_two_speeds(sets, name) is None for name in THREE.samples)


def test_alone_there_is_nobody_to_tell_it_from_the_machine() -> None:
    machine = Noise(machine=flips(1.9, 0.1))
    assert (
        own_two_speeds(draw_sets(np.random.default_rng(5), machine, Plan({"mine": 12})), "mine") is not None
    )


def test_samples_that_were_preempted_make_no_speed_of_their_own() -> None:
    """A fifth of them lost four fifths of their time; where most are like that they are all there is."""

    def sets(preempted: int) -> list[SetLine]:
        walls = [100_000 + 10 * i for i in range(20 - preempted)] + [500_000] * preempted
        mine = block(walls, cpu_ns=[min(wall, 100_200) for wall in walls])
        return [set_line(i, mine=[mine]) for i in range(9)]

    assert own_two_speeds(sets(4), "mine") is None
    assert own_two_speeds(sets(12), "mine") is not None


@pytest.mark.parametrize("name", [name for name in NOISES if name != "coarse clock"])
def test_no_noise_of_the_machine_looks_like_a_backends_own(name: str) -> None:
    """At most one in a hundred, say; more than eight of 100 then come once in 10^6 times."""
    trials = draw_trials(np.random.default_rng(6), 50, NOISES[name], Plan({"mine": 6, "base": 6}))
    told = sum(own_two_speeds(sets, who) is not None for sets in trials for who in ("mine", "base"))
    assert told <= 8


def test_nothing_measured_has_no_speeds() -> None:
    assert own_two_speeds([], "mine") is None
    assert own_two_speeds([set_line(0, mine=[])], "mine") is None
    assert own_two_speeds([set_line(0, mine=[block([])], base=[block([5])])], "mine") is None
