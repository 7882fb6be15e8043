"""The function that a test calls and times: the backend's on its inputs, some of its outputs kept.

What is added to a call is one more function call, a subtraction and comparisons: tens of nanoseconds. Which
outputs are kept is drawn beforehand from the operating system's entropy, so that nothing is drawn in a call
and nobody can know.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.case import Case

KEPT = 4
"""Outputs kept of all calls; each call is as likely to be among them as any other."""

_MOST_CALLS = 10**12
_random = secrets.SystemRandom()


class CheckedBackend(Protocol):
    """What the fixture ``attnbench_backend`` gives: call it, with no arguments or with its ``inputs``.

    backend, case: what it is. inputs: what it computes on, in the layout of the backend; the plugin writes
    other values into them between rounds, so take copies of what you want to keep.
    """

    backend: str
    case: Case
    inputs: tuple[Tensor, Tensor, Tensor]

    def __call__(self, *inputs: Tensor) -> Any:
        """The output; gradients where the case asks for them."""


@dataclass(frozen=True)
class KeptCall:
    """One call whose output was kept: its number from 1, which inputs it had, and whether they were ours."""

    number: int
    place: int
    ours: bool
    output: Any


class LastCall(NamedTuple):
    """The call before now: its number, 0 where there was none, its output, and whether it had our inputs."""

    number: int
    output: Any
    ours: bool


class Watch:
    """Which calls are kept, and those that were.

    place: which values the inputs have now. in_round: whether calls are being timed; a copy that would fall
    into their time is made when the round is over.
    """

    def __init__(self) -> None:
        self.place = 0
        self.in_round = False
        self.last_timed: KeptCall | None = None
        self.slots: list[KeptCall | None] = [None] * KEPT
        self._schedule = list(schedule(KEPT, _MOST_CALLS))
        self._schedule.reverse()
        self._number = 0
        self._next, self._slot = self._schedule.pop()
        self._not_copied: set[int] = set()

    @property
    def first(self) -> int:
        """The number of the first call that is kept."""
        return self._next

    def keep(self, output: Any, *, ours: bool) -> int:
        """Keep the output of the call that is due; gives after how many calls the next one is."""
        self._number += self._next
        kept = output if self.in_round else copied(output)
        self.slots[self._slot] = KeptCall(self._number, self.place, ours, kept)
        if self.in_round:
            self._not_copied.add(self._slot)
        else:
            self._not_copied.discard(self._slot)
        self._next, self._slot = self._schedule.pop() if self._schedule else (_MOST_CALLS, 0)
        return self._next

    def end_round(self, last: LastCall, *, called: bool, shown: bool) -> None:
        """A round is over: copy what was kept in it, and take its last output.

        called: whether there was a call in it. shown: whether a user may be given that output, who may write
        to it; then it is copied as well.
        """
        self.in_round = False
        for slot in self._not_copied:
            kept = self.slots[slot]
            assert kept is not None
            self.slots[slot] = replace(kept, output=copied(kept.output))
        self._not_copied.clear()
        if called:
            output = copied(last.output) if shown else last.output
            self.last_timed = KeptCall(last.number, self.place, last.ours, output)

    def calls(self, left: int) -> int:
        """How many calls there were, where so many are left before the next that is kept."""
        return self._number + self._next - left

    def kept(self) -> list[KeptCall]:
        """Those that are kept, in order, the last of a round among them."""
        kept = [each for each in (*self.slots, self.last_timed) if each is not None]
        return sorted({each.number: each for each in kept}.values(), key=lambda each: each.number)


@dataclass(frozen=True)
class Watched:
    """The function to call, and what is known of its calls."""

    call: Callable[..., Any]
    watch: Watch
    last: Callable[[], LastCall]


def watched(kernel: Callable[[Any, Any, Any], Any], inputs: tuple[Any, Any, Any]) -> Watched:
    """A function that calls ``kernel`` on ``inputs`` and has some outputs kept.

    It is a plain function whose arguments have the inputs as defaults: of all ways to bind and to count this
    adds least. The output of the last call is held until the next has come, as in a run.
    """
    watch = Watch()
    left, last, ours = watch.first, None, True
    a, b, c = inputs

    def call(q: Any = a, k: Any = b, v: Any = c) -> Any:
        nonlocal left, last, ours
        last = kernel(q, k, v)
        ours = q is a and k is b and v is c
        left -= 1
        if not left:
            left = watch.keep(last, ours=ours)
        return last

    def last_call() -> LastCall:
        return LastCall(watch.calls(left), last, ours)

    return Watched(call, watch, last_call)


def copied(answer: Any) -> Any:
    """A copy of the tensors of an answer; what is none stays what it is."""
    if isinstance(answer, tuple):
        return tuple(copied(part) for part in answer)
    return answer.detach().clone() if hasattr(answer, "detach") else answer


def schedule(size: int, most: int) -> Iterator[tuple[int, int]]:
    """Which calls to keep, so that at any time each call so far is as likely to be kept as any other.

    Gives, one after the other, how many calls after the one before, and in which of ``size`` slots, in place
    of what is there. Until call ``most``. Li, "Reservoir-sampling algorithms of time complexity
    O(n(1 + log(N/n)))" (1994), algorithm L.
    """
    for slot in range(size):
        yield 1, slot
    number, weight = size, 1.0
    while number < most:
        weight *= _uniform() ** (1 / size)
        gap = 1 + math.floor(math.log(_uniform()) / math.log1p(-weight))
        number += gap
        yield gap, _random.randrange(size)


def _uniform() -> float:
    """Between 0 and 1, neither of both."""
    return next(each for each in iter(_random.random, None) if each)
