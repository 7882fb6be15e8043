"""How often a contender is called: fixed before measuring, from the budget and its warm-up."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from attnbench.runner.options import Options

LONGEST_SAMPLE_CALLS = 1_000_000
MOST_SAMPLES = 2_000
FEWEST_SETS = 3
WARM_CALL_BELOW_S = 0.005
"""A longer call fills the caches that others have used meanwhile in a small part of its own time."""

_OVERRUN = 4
"""A contender whose fewest calls would take more than this many budgets takes part in fewer sets."""


@dataclass(frozen=True)
class Calls:
    """calls in a sample, samples in a block, untimed calls before a block, sets taken part in."""

    calls: int
    samples: int
    warm_calls: int
    sets: int


def plan_calls(trace_ns: tuple[int, ...], options: Options) -> Calls:
    """Plan from the warm-up's trace (ns per call, at least one).

    A sample lasts about ``sample_s`` or one call. Blocks fill the budget; a call so slow that one sample
    a block already breaks it by far takes part in fewer sets.
    """
    call_s = max(median(trace_ns[-3:]), 1) / 1e9
    calls = min(max(1, round(options.sample_s / call_s)), LONGEST_SAMPLE_CALLS)
    sample_s = calls * call_s
    block_s = options.budget_s / (options.sets * options.rounds)
    samples = max(1, int(block_s / sample_s))
    if samples > MOST_SAMPLES:
        # Of a large budget longer samples, not more: a block is one message.
        calls = min(calls * -(-samples // MOST_SAMPLES), LONGEST_SAMPLE_CALLS)
        samples = MOST_SAMPLES
    least_s = options.sets * options.rounds * call_s
    few = least_s > _OVERRUN * options.budget_s and call_s > options.budget_s
    warm = 1 if call_s < WARM_CALL_BELOW_S else 0
    return Calls(calls, samples, warm, min(options.sets, FEWEST_SETS) if few else options.sets)
