"""Which animals were refused, by what, and what each check alone refuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attnbench.selftest.caught_by import NEAR
from attnbench.selftest.zoo.animal import Animal

BY_THE_JUDGE = ("mismatch", "suspect")
"""Statuses by which the judge refuses; others are failures that showed by themselves."""


@dataclass(frozen=True)
class Outcome:
    """One record of one animal. caught: see :func:`attnbench.selftest.caught_by.caught_by`."""

    animal: str
    case: str
    seed: int
    timed: bool
    status: str
    caught: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Kill:
    """What became of one wrong animal.

    refused: of how many cases, cases. fell: cases in which it crashed, raised or was too slow, which nobody
    had to judge. seeds: those in which it was refused, survived: those in which it was not, though it was
    asked. by: what refused it, the most frequent first.
    """

    animal: str
    trait: str
    summary: str
    cases: int
    refused: int
    fell: int
    seeds: tuple[int, ...]
    survived: tuple[int, ...]
    by: tuple[str, ...]


@dataclass(frozen=True)
class Worth:
    """What one check is worth. kills: wrong animals that it refused somewhere. alone: those that nothing else
    refused anywhere. nearby: those of its kills that it made on the case beside a case alone."""

    check: str
    kills: tuple[str, ...]
    alone: tuple[str, ...]
    nearby: tuple[str, ...]


@dataclass(frozen=True)
class Judged:
    """All that was found. unasked: animals with no case; wronged: refusals of right ones."""

    kills: tuple[Kill, ...]
    worths: tuple[Worth, ...]
    right: int
    right_verdicts: int
    wronged: tuple[Outcome, ...]
    unasked: tuple[str, ...]
    seeds: tuple[int, ...]

    @property
    def survivors(self) -> tuple[Kill, ...]:
        """Wrong ones that were not refused in every seed."""
        return tuple(kill for kill in self.kills if kill.survived)

    @property
    def fine(self) -> bool:
        """All wrong ones refused in every seed, no right one refused, none left out."""
        return not (self.survivors or self.wronged or self.unasked)


def judged(animals: Sequence[Animal], outcomes: Sequence[Outcome]) -> Judged:
    """Count. A backend that says it doesn't support a case was not asked."""
    asked = [outcome for outcome in outcomes if outcome.status not in ("unsupported", "unavailable")]
    mine = {animal.called: [o for o in asked if o.animal == animal.called] for animal in animals}
    right = [animal for animal in animals if animal.right]
    wrong = [animal for animal in animals if not animal.right]
    of_wrong = {animal.called: mine[animal.called] for animal in wrong}
    return Judged(
        kills=tuple(_kill(animal, mine[animal.called]) for animal in wrong if mine[animal.called]),
        worths=_worths(of_wrong),
        right=sum(bool(mine[animal.called]) for animal in right),
        right_verdicts=sum(len(mine[animal.called]) for animal in right),
        wronged=tuple(o for animal in right for o in mine[animal.called] if o.status != "ok"),
        unasked=tuple(name for name, its in mine.items() if not its),
        seeds=tuple(sorted({o.seed for o in asked})),
    )


def _kill(animal: Animal, its: Sequence[Outcome]) -> Kill:
    refused = [o for o in its if o.status in BY_THE_JUDGE]
    words = [word.removeprefix(NEAR) for o in refused for word in dict.fromkeys(_plain(o))]
    seeds = {o.seed for o in refused}
    return Kill(
        animal=animal.called,
        trait=animal.trait,
        summary=animal.summary,
        cases=len(its),
        refused=len(refused),
        fell=sum(o.status not in (*BY_THE_JUDGE, "ok") for o in its),
        seeds=tuple(sorted(seeds)),
        survived=tuple(sorted({o.seed for o in its} - seeds)),
        by=tuple(sorted(set(words), key=lambda word: (-words.count(word), word))),
    )


def _plain(outcome: Outcome) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word.removeprefix(NEAR) for word in outcome.caught))


def _worths(of_wrong: dict[str, list[Outcome]]) -> tuple[Worth, ...]:
    refusals = {name: [o for o in its if o.status in BY_THE_JUDGE] for name, its in of_wrong.items()}
    checks = sorted({word for its in refusals.values() for o in its for word in _plain(o)})
    worths = [_worth(check, refusals) for check in checks]
    return tuple(sorted(worths, key=lambda worth: (-len(worth.kills), worth.check)))


def _worth(check: str, refusals: dict[str, list[Outcome]]) -> Worth:
    kills = [name for name, its in refusals.items() if any(check in _plain(o) for o in its)]
    alone = [name for name in kills if all(_plain(o) == (check,) for o in refusals[name])]
    nearby = [name for name in kills if not any(check in o.caught for o in refusals[name])]
    return Worth(check, tuple(kills), tuple(alone), tuple(nearby))
