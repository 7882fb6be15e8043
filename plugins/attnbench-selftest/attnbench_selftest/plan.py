"""The measurements of each command: quick ones of under two minutes, and full ones that show the targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from attnbench.cases.ids import parse_case
from attnbench.runner.options import repetitions_for
from attnbench.types.case import Case
from attnbench_selftest.candidates import copies, planted

SERVER_S = 4.0
CASE_S = 1.0
TEMPLATE_S = 0.15
CHILD_S = 0.025
"""The costs of a run besides measuring: its start, each case, each template, each child."""

SHAPES = {
    16: "attention/scaled_dot/B1-H4-L16-D32",
    512: "attention/scaled_dot/B1-H8-L512-D64",
    2048: "attention/scaled_dot/B1-H8-L2048-D64",
}
"""By length: a call of tens of microseconds, one of milliseconds, and one that is slow."""
ORDINARY = (16, 512)
"""The lengths that are measured unless the user names others."""
SLOW_CALL_S = {2048: 0.2}
"""About how long a slow call takes. Each repetition has one to warm up and one that is timed."""

SLOW_BUDGET_S = 0.05
"""That of a run: its nine repetitions are what a verdict has to do with."""

FAMILY = 40
"""The number of cells of a run, in claims about runs."""
SLOW_FAMILY = 8
"""The same where calls are slow: one case with nine backends, as users measure at such sizes."""

SLOWER_AT_MOST = 0.002
FAMILIES_AT_MOST = 0.01
SAME_AT_LEAST = 0.95
FOUND_AT_LEAST = {3: 0.95, 5: 0.99, 10: 0.95}
"""The targets of identical candidates, and by planted slowdown in percent the share that must be found."""

TRIALS_TO_SHOW = {SLOWER_AT_MOST: 3146, SAME_AT_LEAST: 234, FOUND_AT_LEAST[5]: 773}
"""By target, the fewest trials that show it with a chance of 99 %, of a build whose rates are 0.01 % for
slower, 99 % for the same, and 99.9 % for found: binomial tails, one-sided at 95 %."""


@dataclass(frozen=True)
class Part:
    """One kind of trial, measured again and again.

    candidates: the baseline first. budget_s: measuring time of each in one trial; repetitions: of one trial.
    trials: how many. together: how many of them share a case and its templates. percent: how much longer the
    candidates other than the baseline take.
    """

    length: int
    candidates: tuple[str, ...]
    budget_s: float
    repetitions: int
    trials: int
    together: int
    percent: int = 0
    device: str = "cpu"

    def __str__(self) -> str:
        return f"L={self.length} in {self.budget_s:.2g} s"

    @property
    def slow(self) -> bool:
        """Tell if a call takes longer than the budget, so that nine repetitions have nine samples."""
        return self.length in SLOW_CALL_S

    @property
    def family(self) -> int:
        """The number of cells of the run among which a planted slowdown must be found."""
        return SLOW_FAMILY if self.slow else FAMILY

    @property
    def cases(self) -> tuple[Case, ...]:
        """A case for every ``together`` trials; they differ in the seed."""
        case = parse_case(SHAPES[self.length])
        return tuple(
            replace(case, device=self.device, seed=seed) for seed in range(ceil(self.trials / self.together))
        )

    @property
    def seconds(self) -> float:
        """About how long it takes, in a run of its own."""
        cases, candidates = len(self.cases), len(self.candidates)
        trials = cases * self.together
        measuring_s = max(self.budget_s, 2 * self.repetitions * SLOW_CALL_S.get(self.length, 0))
        return (
            SERVER_S
            + trials * candidates * (measuring_s + self.repetitions * CHILD_S)
            + cases * (CASE_S + TEMPLATE_S * candidates)
        )


@dataclass(frozen=True)
class Choices:
    """The user's choices. budget_s, repetitions, trials: None for those of the command."""

    full: bool = False
    lengths: tuple[int, ...] = ORDINARY
    device: str = "cpu"
    budget_s: float | None = None
    repetitions: int | None = None
    trials: int | None = None

    def apply(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        """The parts as chosen."""
        return tuple(
            replace(
                part,
                device=self.device,
                budget_s=self.budget_s or part.budget_s,
                repetitions=self.repetitions or repetitions_for(self.budget_s or part.budget_s),
                trials=self.trials or part.trials,
                together=min(part.together, self.trials or part.trials),
            )
            for part in parts
            if part.length in self.lengths
        )


def aa_parts(choices: Choices) -> tuple[Part, ...]:
    """Identical candidates, at the budgets within which they must be proved the same."""
    short, long, slow = (9, 4, 2), (5, 3, 1), (5, 2, 2)
    if choices.full:
        of_long = ceil(TRIALS_TO_SHOW[SAME_AT_LEAST] / 8)
        short = (9, ceil(TRIALS_TO_SHOW[SLOWER_AT_MOST] / 8) - of_long, 4)
        long, slow = (9, of_long, 2), (9, 38, 2)
    return choices.apply(
        [
            Part(length, copies(count), budget_s, repetitions_for(budget_s), trials, together)
            for length, budget_s, (count, trials, together) in (
                (16, 0.5, short),
                (512, 2.0, long),
                (2048, SLOW_BUDGET_S, slow),
            )
        ]
    )


def power_parts(choices: Choices) -> tuple[Part, ...]:
    """Planted slowdowns, at the budgets within which they must be found."""
    # length, percent, budget; of the quick form: candidates, trials.
    quick = [(16, 5, 0.25, 8, 2), (16, 3, 1.0, 7, 1), (512, 5, 1.0, 5, 2), (512, 3, 4.0, 4, 1)]
    quick.append((2048, 10, SLOW_BUDGET_S, 5, 2))
    parts = []
    for length, percent, budget_s, count, trials in quick:
        together = trials
        if choices.full:
            count, together = 8, 5
            trials = ceil(TRIALS_TO_SHOW[FOUND_AT_LEAST[percent]] / count)
        names = (*copies(1), *planted(percent, count))
        parts.append(Part(length, names, budget_s, repetitions_for(budget_s), trials, together, percent))
    return choices.apply(parts)
