"""What each command measures: quick forms of under two minutes, and full ones that can show the targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from attnbench.runner.options import Options
from attnbench.runner.plan import sets_for
from attnbench.selftest.bounds import Side, trials_to_show
from attnbench.selftest.contenders import INLINE_KERNEL, INLINE_NO_OP, NO_OP, copies, planted
from attnbench.selftest.parts import Part
from attnbench.selftest.score_aa import SAME_AT_LEAST, SLOWER_AT_MOST
from attnbench.selftest.score_coverage import HELD_AT_LEAST
from attnbench.selftest.score_power import FOUND_AT_LEAST
from attnbench.types.errors import BadInput

LENGTHS = (16, 512)
EXACT_TRIALS = 5_000
COVERED = ("eager", "sdpa_math", "sdpa_flash", "bmm", "weighted_sum", "chunked")
"""Built-ins that differ, the baseline first; the quick form takes four of them."""

ASSUMED = {SLOWER_AT_MOST: 0.0001, SAME_AT_LEAST: 0.99, 0.99: 0.999, HELD_AT_LEAST: 0.955}
"""By target, the rate of the build that the full form is to show it of with a chance of 99 %."""


@dataclass(frozen=True)
class Choices:
    """What the user chose. lengths: which shapes. budget_s, sets, trials: None for those of the command."""

    full: bool = False
    lengths: tuple[int, ...] = LENGTHS
    device: str = "cpu"
    budget_s: float | None = None
    sets: int | None = None
    trials: int | None = None

    def of(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        """Parts as they were chosen."""
        return tuple(
            replace(
                part,
                device=self.device,
                budget_s=self.budget_s or part.budget_s,
                sets=self.sets or (sets_for(self.budget_s) if self.budget_s else part.sets),
                trials=self.trials or part.trials,
                together=min(part.together, self.trials or part.trials),
            )
            for part in parts
            if part.length in self.lengths or part.length == 1
        )


def full_cells(side: Side, target: float) -> int:
    """How many trials show a target with a chance of 99 %, of a build that is as good as assumed."""
    return trials_to_show(side, target, ASSUMED[target])


def aa_parts(choices: Choices) -> tuple[Part, ...]:
    """Identical contenders, at the budgets within which they must be proved the same."""
    if not choices.full:
        return choices.of(
            [_identical(16, 9, 0.5, trials=4, together=2), _identical(512, 5, 2.0, trials=3, together=1)]
        )
    same = full_cells("at least", SAME_AT_LEAST)
    long = _identical(512, 9, 2.0, trials=ceil(same / 8), together=2)
    cells = full_cells("at most", SLOWER_AT_MOST) - 8 * long.trials
    return choices.of([_identical(16, 9, 0.5, trials=ceil(cells / 8), together=4), long])


def _identical(length: int, count: int, budget_s: float, trials: int, together: int) -> Part:
    return Part(length, copies(count), budget_s, sets_for(budget_s), trials, together)


def power_parts(choices: Choices) -> tuple[Part, ...]:
    """Planted slowdowns, at the budgets within which they must be found."""
    # length, percent, budget; of the quick form: contenders, trials.
    asked = [(16, 5, 0.25, 8, 2), (16, 3, 1.0, 7, 1), (512, 5, 1.0, 5, 2), (512, 3, 4.0, 4, 1)]
    parts = []
    for length, percent, budget_s, slower, trials in asked:
        count, together = slower, trials
        if choices.full:
            count, together = 8, 5
            trials = ceil(full_cells("at least", FOUND_AT_LEAST[percent]) / count)
        names = (*copies(1), *planted(percent, count))
        parts.append(Part(length, names, budget_s, sets_for(budget_s), trials, together, percent))
    return choices.of(parts)


def exact_parts(choices: Choices) -> tuple[Part, ...]:
    """Many identical contenders in tiny sets: all pairs of 14 are 91 trials of the sign test."""
    names = copies(14)
    pairs = len(names) * (len(names) - 1) // 2
    trials = ceil(EXACT_TRIALS / pairs) if choices.full else 12
    return choices.of([Part(min(choices.lengths), names, 0.02, 9, trials, together=2)])


def overhead_parts(choices: Choices) -> tuple[Part, ...]:
    """A call that does nothing and one of tens of microseconds, each beside an inline loop of the same."""
    if choices.device != "cpu":
        raise BadInput(f"device {choices.device!r}: overhead per call is measured on the cpu")
    more = 5 if choices.full else 1
    return choices.of(
        [
            Part(1, (NO_OP, INLINE_NO_OP), 1.0, sets_for(1.0), trials=more, together=1),
            Part(16, (*copies(1), INLINE_KERNEL), 8.0, 40, trials=2 * more, together=1),
        ]
    )


@dataclass(frozen=True)
class Launches:
    """So many runs of the same cases, each with the budget and sets that ``attnbench run`` has."""

    part: Part
    lengths: tuple[int, ...]
    launches: int


def coverage_launches(choices: Choices) -> Launches:
    """Few backends that differ, measured again and again from the start."""
    names = COVERED if choices.full else COVERED[:4]
    default = Options()
    (part,) = replace(choices, lengths=(16,), trials=1).of(
        [Part(16, names, default.budget_s, default.sets, trials=1, together=1)]
    )
    launches = 8
    if choices.full:
        launches = ceil(full_cells("at least", HELD_AT_LEAST) / ((len(names) - 1) * len(choices.lengths)))
    return Launches(part, choices.lengths, choices.trials or launches)
