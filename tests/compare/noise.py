"""Synthetic noise: repetitions of slots taken by candidates on a machine that behaves badly in one certain
way.

What a sample of candidate c in slot t of a segment takes is

    base · truth[c] · process[c, repetition] · machine[t] · own[c, t]

where ``machine`` runs on through the slots of all candidates, whose order is drawn anew for each round of
slots, and ``process`` is drawn anew for each fresh process. Candidates of the same truth and the same number
of samples are therefore exchangeable, as identical code is by the protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from attnbench.types.record import RepetitionLine, SegmentSamples

Generator = np.random.Generator
Draw = Callable[[Generator, int, int], np.ndarray]
"""``draw(rng, rows, n)``: [rows, n] logarithms of a factor, each row in the order in which they act."""

BASE_NS = 400_000


def none(rng: Generator, rows: int, n: int) -> np.ndarray:
    return np.zeros((rows, n))


def normal(sd: float) -> Draw:
    return lambda rng, rows, n: rng.normal(0.0, sd, (rows, n))


def cauchy(scale: float) -> Draw:
    """Tails so heavy that a mean would mean nothing; cut at a factor of about 150 either way."""
    return lambda rng, rows, n: np.clip(scale * rng.standard_cauchy((rows, n)), -5, 5)


def skewed(scale: float) -> Draw:
    return lambda rng, rows, n: rng.exponential(scale, (rows, n))


def drift(by: float) -> Draw:
    """Steadily up or down over a segment, by a factor of exp(by)."""
    return lambda rng, rows, n: np.linspace(0.0, by, n) * rng.choice([-1.0, 1.0], (rows, 1))


def autoregressive(phi: float, sd: float) -> Draw:
    def draw(rng: Generator, rows: int, n: int) -> np.ndarray:
        path = rng.normal(0.0, sd, (rows, n))
        for i in range(1, n):
            path[:, i] = phi * path[:, i - 1] + (1 - phi * phi) ** 0.5 * path[:, i]
        return path

    return draw


def flips(factor: float, each: float) -> Draw:
    """Two speeds a factor apart, changing with probability ``each`` from one slot to the next."""

    def draw(rng: Generator, rows: int, n: int) -> np.ndarray:
        changes = np.cumsum(rng.random((rows, n)) < each, axis=1)
        return ((changes + rng.integers(0, 2, (rows, 1))) % 2) * np.log(factor)

    return draw


def bursts(share: float, factor: float) -> Draw:
    """Now and then four slots in a row are longer by up to a factor."""

    def draw(rng: Generator, rows: int, n: int) -> np.ndarray:
        begun = (rng.random((rows, n)) < share / 4) * rng.uniform(0.0, np.log(factor), (rows, n))
        path = begun.copy()
        for later in range(1, min(4, n)):
            path[:, later:] += begun[:, :-later]
        return path

    return draw


ONE_PERCENT, HALF_PERCENT = normal(0.01), normal(0.005)


@dataclass(frozen=True)
class Noise:
    """How a machine behaves.

    machine: what all candidates see, slot by slot. own: of each sample; process: of each fresh process.
    preempted: the share of samples that lose 5 to 25 % of their wall time. grain_ns: of the clock.
    """

    machine: Draw = none
    own: Draw = ONE_PERCENT
    process: Draw = HALF_PERCENT
    preempted: float = 0.0
    grain_ns: int = 1


@dataclass(frozen=True)
class Plan:
    """repetitions, segments of each, samples in a segment by candidate; missing: repetitions a candidate is
    not in."""

    samples: Mapping[str, int]
    repetitions: int = 9
    segments: int = 2
    missing: Mapping[str, frozenset[int]] = field(default_factory=dict)


NOISES: dict[str, Noise] = {
    "quiet": Noise(),
    "drift": Noise(machine=drift(0.5)),
    "bursts": Noise(machine=bursts(0.2, 8.0), preempted=0.1),
    "two speeds": Noise(machine=flips(1.9, 0.2)),
    "heavy tails": Noise(machine=cauchy(0.05), own=cauchy(0.1)),
    "skewed": Noise(own=skewed(0.5), process=skewed(0.1)),
    "autocorrelated": Noise(machine=autoregressive(0.95, 0.3), own=autoregressive(0.9, 0.1)),
    "unlike processes": Noise(process=normal(0.1)),
    "mostly preempted": Noise(preempted=0.7),
    "coarse clock": Noise(own=normal(0.02), grain_ns=BASE_NS // 20),
}

MILD = Noise(machine=flips(1.9, 0.02), own=normal(0.02), process=normal(0.005), preempted=0.05)
"""A shared machine at an ordinary moment."""

EVEN = Plan({"mine": 5, "base": 5})


def draw_trials(
    rng: Generator, trials: int, noise: Noise, plan: Plan = EVEN, **truth: float
) -> list[list[RepetitionLine]]:
    """As many independent lists of repetitions; all are drawn at once, which takes a tenth of the time."""
    segments = [_draw_segments(rng, trials * plan.repetitions, noise, plan) for _ in range(plan.segments)]
    process = {name: noise.process(rng, trials * plan.repetitions, 1) for name in plan.samples}
    columns = [
        {
            name: _columns(rng, noise, BASE_NS * truth.get(name, 1.0) * np.exp(logs + process[name]))
            for name, (_, logs) in segment.items()
        }
        for segment in segments
    ]

    def block(name: str, number: int, row: int) -> SegmentSamples:
        slots, _ = segments[number][name]
        wall, cpu = columns[number][name]
        zeros = [0] * plan.samples[name]
        return SegmentSamples(
            number, slots[row].tolist(), 1, wall[row].tolist(), cpu[row].tolist(), zeros, zeros
        )

    def repetition_line(index: int, row: int) -> RepetitionLine:
        names = [name for name in plan.samples if index not in plan.missing.get(name, frozenset())]
        blocks = {name: [block(name, number, row) for number in range(plan.segments)] for name in names}
        return RepetitionLine("case", index, [0], names, {}, blocks, [], {})

    return [
        [repetition_line(index, trial * plan.repetitions + index) for index in range(plan.repetitions)]
        for trial in range(trials)
    ]


def _draw_segments(
    rng: Generator, rows: int, noise: Noise, plan: Plan
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By candidate its slots and the logarithms of what they see there, both [rows, samples]."""
    rounds = max(plan.samples.values())
    # Who has fewer samples takes part in some rounds alone, in the middle of those that are its; within a
    # round the order is random.
    round_of = [(2 * np.arange(n) + 1) * rounds // (2 * n) for n in plan.samples.values()]
    keys = np.concatenate(round_of) + rng.random((rows, sum(plan.samples.values())))
    places = keys.argsort(axis=1).argsort(axis=1)
    machine = noise.machine(rng, rows, keys.shape[1])
    found, start = {}, 0
    for name, n in plan.samples.items():
        slots = places[:, start : start + n]
        found[name] = slots, np.take_along_axis(machine, slots, axis=1) + noise.own(rng, rows, n)
        start += n
    return found


def _columns(rng: Generator, noise: Noise, running_ns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """wall_ns and cpu_ns, of samples that run for so long."""
    preempted = rng.random(running_ns.shape) < noise.preempted
    lost = np.where(preempted, rng.uniform(0.05, 0.25, running_ns.shape), 0.0)
    wall = np.maximum(np.rint(running_ns / (1 - lost) / noise.grain_ns), 1) * noise.grain_ns
    return wall.astype(int), np.where(preempted, running_ns, wall).astype(int)
