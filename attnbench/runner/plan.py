"""How often a contender is called: fixed before measuring, from the budget and its warm-up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median

from attnbench.runner.options import Options
from attnbench.types.sides import baseline_of

LONGEST_SAMPLE_CALLS = 1_000_000
MOST_SAMPLES = 1_000
"""In a stretch: they are told in one message."""
FEWEST_SETS = 3
WARM_CALL_BELOW_S = 0.002
"""A longer call fills the caches that others have used meanwhile in a small part of its own time."""

_OVERRUN = 20
"""A contender whose fewest calls would take more than this many budgets takes part in fewer sets."""


_ALIKE = 4
_ANEW_BELOW_NS = 100_000_000
_SETS = ((4.0, 40), (2.0, 30), (0.25, 22), (0.0, 9))
"""From which budget (s) on how many sets. 9 is the least at which a sign test can be sure enough for a
verdict; 30 and 40 have an exact interval at a little over 95 %, 22 at 98.3 %. More sets cost more starting of
processes and make more of the same budget, since processes of the same code differ: at L=512 by 1.1 %,
standard deviation."""


@dataclass(frozen=True)
class Calls:
    """calls in a sample, samples in a stretch, untimed calls before each, sets taken part in."""

    calls: int
    samples: int
    warm_calls: int
    sets: int


def sets_for(budget_s: float) -> int:
    """How many sets to divide a budget into, where the user doesn't say."""
    return next(sets for least_s, sets in _SETS if budget_s >= least_s)


def prepared_anew(prepare_ns: int, first_call_ns: int) -> bool:
    """Whether each set prepares a backend anew instead of forking one that is prepared.

    The forks of one template have its memory in common, and with it what luck made of that: identical
    templates were found up to 9 % apart, the same in all their forks. A process that is prepared anew for
    each set draws its luck anew. Where that takes long (compilation), forks must do.
    """
    return prepare_ns + first_call_ns <= _ANEW_BELOW_NS


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

    A sample lasts about ``turn_s`` or one call. Samples fill the budget; a call so slow that one sample
    a stretch already breaks it by far takes part in fewer sets.
    """
    call_s = call_ns / 1e9
    calls = min(max(1, round(options.turn_s / call_s)), LONGEST_SAMPLE_CALLS)
    sample_s = calls * call_s
    stretch_s = options.budget_s / (options.sets * options.stretches)
    samples = max(1, int(stretch_s / sample_s))
    if samples > MOST_SAMPLES:
        # Of a large budget longer samples, not more; as many of those as it has room for.
        calls = min(calls * -(-samples // MOST_SAMPLES), LONGEST_SAMPLE_CALLS)
        samples = min(max(1, int(stretch_s / (calls * call_s))), MOST_SAMPLES)
    least_s = options.sets * options.stretches * call_s
    few = least_s > _OVERRUN * options.budget_s and call_s > options.budget_s
    warmed = options.warm_s > 0 and call_s < WARM_CALL_BELOW_S
    warm = ceil(options.warm_s / call_s) if warmed else 0
    return Calls(calls, samples, warm, min(options.sets, FEWEST_SETS) if few else options.sets)
