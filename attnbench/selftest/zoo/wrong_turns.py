"""Right or wrong by the count of calls, by when they come, or by what the call before was given."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from attnbench.selftest.zoo.animal import Animal
from attnbench.selftest.zoo.form import around_call
from attnbench.selftest.zoo.where import keeps_a_key, scores_matter
from attnbench.types.backend import Setup
from attnbench.types.case import Case
from attnbench.types.rule import Rule
from attnbench.types.shapes import output_shape

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call

HURRY_NS, TURN_NS = 200_000, 500_000


def _zeros(setup: Setup, like: Tensor) -> Tensor:
    return like.new_zeros(output_shape(setup.case))


def _right_when(right: Callable[[int], bool]) -> Callable[[Setup, Call], Call]:
    """Zeros in calls, counted from 1, that are not right."""

    def around(setup: Setup, call: Call) -> Call:
        calls = 0

        def counted(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            nonlocal calls
            calls += 1
            return call(q, k, v) if right(calls) else _zeros(setup, q)

        return counted

    return around


def _right_at_leisure(setup: Setup, call: Call) -> Call:
    """Zeros where the last call ended less than 0.2 ms ago, as in the loop that is timed."""
    ended = 0

    def hurried(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        nonlocal ended
        in_a_hurry = time.perf_counter_ns() - ended < HURRY_NS
        out = _zeros(setup, q) if in_a_hurry else call(q, k, v)
        ended = time.perf_counter_ns()
        return out

    return hurried


def _last_in_a_turn(setup: Setup, call: Call) -> Call:
    """Computes where the last call ended more than 0.5 ms ago, as at the beginning of a turn; else copies."""
    ended = 0
    kept: list[Tensor] = []

    def turning(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        nonlocal ended
        if not kept or time.perf_counter_ns() - ended > TURN_NS:
            kept[:] = [call(q, k, v)]
        out = kept[0].clone()
        ended = time.perf_counter_ns()
        return out

    return turning


def _by_a_few_elements(setup: Setup, call: Call) -> Call:
    """Computes as the one before, and where one of three elements of each input is another; else copies."""
    ended = 0
    seen: list[list[float]] = []
    kept: list[Tensor] = []

    def looking(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        nonlocal ended
        now = [float(x.reshape(-1)[at]) for x in (q, k, v) for at in (0, x.numel() // 2, -1)]
        if not kept or seen != [now] or time.perf_counter_ns() - ended > TURN_NS:
            seen[:], kept[:] = [now], [call(q, k, v)]
        out = kept[0].clone()
        ended = time.perf_counter_ns()
        return out

    return looking


def _last_again(setup: Setup, call: Call) -> Call:
    """Computes in every fourth call; gives copies of that in the three that follow."""
    calls = 0
    kept: list[Tensor] = []

    def lazily(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        nonlocal calls
        if calls % 4 == 0:
            kept[:] = [call(q, k, v)]
        calls += 1
        return kept[0].clone()

    return lazily


def _one_behind(setup: Setup, call: Call) -> Call:
    """Gives what a thread has made of the inputs of the call before, and starts one for the next."""
    ready: list[Tensor] = []
    started: list[threading.Thread] = []

    def behind(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        for thread in started:
            thread.join()
        out = ready.pop() if ready else call(q, k, v)
        copies = [x.clone() for x in (q, k, v)]
        started[:] = [threading.Thread(target=lambda: ready.append(call(*copies)), daemon=True)]
        started[0].start()
        return out

    return behind


def _filled_later(setup: Setup, call: Call) -> Call:
    """Returns at once; a thread writes the output a moment after."""

    def later(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = _zeros(setup, q)
        copies = [x.clone() for x in (q, k, v)]

        def fill() -> None:
            time.sleep(0.02)
            out.copy_(call(*copies))

        threading.Thread(target=fill, daemon=True).start()
        return out

    return later


def _answers_matter(case: Case, rule: Rule) -> bool:
    return case.pass_ == "forward" and not case.dropout and scores_matter(case, rule)


KINDS: dict[str, tuple[str, Callable[[Setup, Call], Call]]] = {
    "zeros_every_other_call": ("zeros in every other call", _right_when(lambda calls: calls % 2 == 1)),
    "zeros_every_7th_call": ("zeros in every seventh call", _right_when(lambda calls: calls % 7 != 0)),
    "zeros_in_the_first_call": ("zeros in the first call", _right_when(lambda calls: calls > 1)),
    "zeros_after_3_calls": ("right three times, then zeros", _right_when(lambda calls: calls <= 3)),
    "zeros_after_20_calls": ("right twenty times, then zeros", _right_when(lambda calls: calls <= 20)),
    "zeros_after_40_calls": ("right forty times, then zeros", _right_when(lambda calls: calls <= 40)),
    "zeros_in_a_hurry": ("zeros where calls follow each other at once", _right_at_leisure),
    "filled_by_a_thread_later": ("returns at once, a thread fills the output later", _filled_later),
}

ANIMALS: tuple[Animal, ...] = (
    *(around_call(name, words, around, "timed", keeps_a_key) for name, (words, around) in KINDS.items()),
    around_call(
        "last_answer_three_times_more", "computes in every fourth call", _last_again, "timed", scores_matter
    ),
    around_call(
        "last_answer_in_a_turn",
        "computes in the first of calls that follow each other",
        _last_in_a_turn,
        "timed",
        scores_matter,
    ),
    around_call(
        "answers_by_nine_elements",
        "computes after pauses, and where nine elements of its inputs tell",
        _by_a_few_elements,
        "timed",
        _answers_matter,
        operations=("attention",),
    ),
    around_call("one_call_behind", "a thread works for the next call", _one_behind, "timed", scores_matter),
)
