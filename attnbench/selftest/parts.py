"""Parts of a self-test: what is measured, how often, and how long it will take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from attnbench.cases.identity import parse_case
from attnbench.types.case import Case

SERVER_S = 4.0
CASE_S = 1.0
TEMPLATE_S = 0.15
CHILD_S = 0.025
"""What a run costs besides measuring: its start, each case, each template, each child."""

SHAPES = {
    1: "attention/scaled_dot/B1-H1-L1-D1",
    16: "attention/scaled_dot/B1-H4-L16-D32",
    512: "attention/scaled_dot/B1-H8-L512-D64",
}
"""By length: one key, whose answer is its value; a call of tens of microseconds; one of milliseconds."""


@dataclass(frozen=True)
class Part:
    """One kind of trial, measured again and again.

    contenders: the baseline first. budget_s: measuring time of each in one trial; sets: of one trial. trials:
    how many. together: how many of them are measured on one case, with the same templates. percent: what the
    contenders but the baseline take more than it.
    """

    length: int
    contenders: tuple[str, ...]
    budget_s: float
    sets: int
    trials: int
    together: int
    percent: int = 0
    device: str = "cpu"

    def at(self, share: float = 1.0) -> str:
        """Where and how long, in words: L=16 in 0.5 s."""
        return f"L={self.length} in {self.budget_s * share:.2g} s"

    @property
    def cases(self) -> tuple[Case, ...]:
        """A case for every ``together`` trials, told apart by seed."""
        case = parse_case(SHAPES[self.length])
        return tuple(
            replace(case, device=self.device, seed=seed) for seed in range(ceil(self.trials / self.together))
        )

    @property
    def measuring_s(self) -> float:
        """Measuring time of all contenders in all trials."""
        return self.budget_s * len(self.contenders) * self.together * len(self.cases)

    @property
    def seconds(self) -> float:
        """How long it will take, about, besides the start of a run."""
        cases, contenders = len(self.cases), len(self.contenders)
        children = self.sets * self.together * cases * contenders
        return self.measuring_s + children * CHILD_S + cases * (CASE_S + TEMPLATE_S * contenders)


@dataclass(frozen=True)
class Terms:
    """How what was measured is judged.

    delta: the least effect. leave_out: whether preempted pairs are. whole: every part of the protocol is
    there, so that its guarantees are. as_planned: besides, budgets and sets are those of the targets, and
    nothing keeps the cores busy on purpose.
    """

    delta: float
    leave_out: bool = True
    whole: bool = True
    as_planned: bool = True


def seconds(parts: Sequence[Part], launches: int = 1) -> float:
    """How long parts will take, about, each of them in a run of its own, ``launches`` times."""
    return launches * sum(SERVER_S + part.seconds for part in parts)
