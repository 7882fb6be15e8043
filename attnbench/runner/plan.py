"""How often and in which order candidates are called: fixed before measuring, from the budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from random import Random
from statistics import median

from attnbench.runner.options import Options
from attnbench.stats.protocol import STRETCHES, TURN_S, WARM_S
from attnbench.types.compared import baseline_of, parts_of

LONGEST_SAMPLE_CALLS = 1_000_000
MOST_SAMPLES = 1_000
"""In a stretch: they are told in one message."""
FEWEST_SETS = 3
WARM_CALL_BELOW_S = 0.002
"""A longer call fills the caches that others have used meanwhile in a small part of its own time."""

_OVERRUN = 20
"""A contender whose fewest calls would take more than this many budgets takes part in fewer sets."""


_ALIKE = 4
_ANEW_BELOW_MS = 100.0


@dataclass(frozen=True)
class Calls:
    """calls in a sample, samples in a stretch, untimed calls before each, sets taken part in."""

    calls: int
    samples: int
    warm_calls: int
    sets: int


def prepared_anew(prepare_ms: float, first_call_ms: float) -> bool:
    """Whether each set prepares a backend anew instead of forking one that is prepared.

    The forks of one template have its memory in common, and with it what luck made of that: identical
    templates were found up to 9 % apart, the same in all their forks. A process that is prepared anew for
    each set draws its luck anew. Where that takes long (compilation), forks must do.
    """
    return prepare_ms + first_call_ms <= _ANEW_BELOW_MS


def plan_all(traces_ns: Mapping[str, Sequence[int]], options: Options) -> dict[str, Calls]:
    """A plan for each contender, from the traces of their warm-up (ns per call, at least one each).

    The first calls of a turn find other processes' data in the caches and are slower than the rest. Between
    contenders that are called equally often this cancels; between 4 calls and 9 of the same code it made
    8 %. So all that are about as fast as the baseline - within what noise makes of one and the same call -
    are called exactly as often as it is.
    """
    least = {name: call_time_ns(trace) for name, trace in traces_ns.items()}
    typical = {name: max(1.0, median(trace)) for name, trace in traces_ns.items()}
    fastest = min(least, key=least.__getitem__, default="")

    def like(name: str) -> str:
        anchor = baseline_of(name, options.baseline)
        anchor = anchor if anchor in least else fastest
        alike = any(1 / _ALIKE <= ns[name] / ns[anchor] <= _ALIKE for ns in (least, typical))
        return anchor if alike else name

    return {name: plan_calls(least[like(name)], options) for name in least}


def call_time_ns(trace_ns: Sequence[int]) -> int:
    """What a call takes when nothing is in its way: the least of its warm-up.

    On a shared machine the typical one may be twice that, in one warm-up and not in the next.
    """
    return max(1, min(trace_ns))


def plan_calls(call_ns: float, options: Options) -> Calls:
    """The plan for a call of so many nanoseconds.

    A sample lasts about ``TURN_S`` or one call. Samples fill the budget; a call so slow that one sample
    a stretch already breaks it by far takes part in fewer sets.
    """
    call_s = call_ns / 1e9
    calls = min(max(1, round(TURN_S / call_s)), LONGEST_SAMPLE_CALLS)
    sample_s = calls * call_s
    stretch_s = options.budget_s / (options.sets * STRETCHES)
    samples = max(1, int(stretch_s / sample_s))
    if samples > MOST_SAMPLES:
        # Of a large budget longer samples, not more; as many of those as it has room for.
        calls = min(calls * -(-samples // MOST_SAMPLES), LONGEST_SAMPLE_CALLS)
        samples = min(max(1, int(stretch_s / (calls * call_s))), MOST_SAMPLES)
    least_s = options.sets * STRETCHES * call_s
    few = least_s > _OVERRUN * options.budget_s and call_s > options.budget_s
    warm = ceil(WARM_S / call_s) if call_s < WARM_CALL_BELOW_S else 0
    return Calls(calls, samples, warm, min(options.sets, FEWEST_SETS) if few else options.sets)


def order_of_turns(samples: Mapping[str, int], rng: Random) -> list[str]:
    """The contenders of a stretch, one for each turn; each has as many turns as samples.

    Turns go in rounds. A contender with fewer samples than another takes part in rounds spread evenly.
    A backend's two sides follow each other in every round, now the one first and now the other: the nearer
    they are, the less the machine changes between them.
    """
    names = list(samples)
    rounds = max(samples.values(), default=0)
    takes_part = {name: _spread(samples[name], rounds) for name in names}
    pairs = _by_backend(names)
    begins = {pair: rng.randrange(2) for pair in pairs}
    by_pair = balanced_orders(list(pairs), rounds, rng)
    orders = [
        [name for pair in order for name in _turned(pairs[pair], begins[pair] + _turns(pairs, number))]
        for number, order in enumerate(by_pair)
    ]
    return [name for number, order in enumerate(orders) for name in order if number in takes_part[name]]


def _by_backend(names: Sequence[str]) -> dict[str, list[str]]:
    """The contenders by backend: the sides of one together."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(parts_of(name)[0], []).append(name)
    return found


def _turns(pairs: Mapping[str, Sequence[str]], number: int) -> int:
    """How often a pair is turned round before a round: a lone one never is, or a side would follow itself."""
    return number if len(pairs) > 1 else 0


def _turned(pair: Sequence[str], times: int) -> Sequence[str]:
    return pair if times % 2 == 0 else pair[::-1]


def _spread(count: int, rounds: int) -> frozenset[int]:
    """``count`` of the rounds, evenly apart, the same distance from both ends."""
    return frozenset((2 * place + 1) * rounds // (2 * count) for place in range(count))


def balanced_orders(contenders: Sequence[str], rounds: int, rng: Random) -> list[list[str]]:
    """``rounds`` orders of the contenders.

    Taken from Williams designs with the contenders' places drawn anew for each: within a design every
    contender stands in every place equally often and follows every other equally often. (Williams,
    Experimental designs balanced for the estimation of residual effects of treatments, 1949.)
    No contender follows itself from one round to the next where there are more than one: an order in which
    one would is turned round. That is worth more than the balance of places, which then holds only on
    average over sets, each of which draws its orders anew. Two contenders simply alternate within a stretch.
    """
    if not contenders:
        return [[] for _ in range(rounds)]
    orders: list[list[str]] = []
    while len(orders) < rounds:
        names = list(contenders)
        rng.shuffle(names)
        square = [[names[place] for place in row] for row in _williams(len(names))]
        rng.shuffle(square)
        for order in square:
            if orders and len(order) > 1 and orders[-1][-1] == order[0]:
                order.reverse()
            orders.append(order)
    return orders[:rounds]


def _williams(size: int) -> list[list[int]]:
    zigzag = [(place + 1) // 2 if place % 2 else (size - place // 2) % size for place in range(size)]
    rows = [[(place + shift) % size for place in zigzag] for shift in range(size)]
    return rows if size % 2 == 0 else rows + [row[::-1] for row in rows]
