"""The number and the order of calls of each candidate: fixed before measuring, from the budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from random import Random
from statistics import median

from msgspec import structs

from attnbench.runner.options import Options
from attnbench.stats.protocol import SAMPLE_S, SEGMENTS, WARM_S
from attnbench.types.compared import baseline_of, parts_of
from attnbench.types.record import CandidatePlan, CheckResult

LONGEST_SAMPLE_CALLS = 1_000_000
MOST_SAMPLES = 1_000
"""In a segment, because one message holds them."""
FEWEST_REPETITIONS = 3
WARM_CALL_BELOW_S = 0.02
"""A longer call fills the caches that others have used meanwhile in a small part of its own time: that took
0.2 ms. Calls about as fast as the baseline follow its number, so one that is five times faster may too."""

_OVERRUN = 1_200
"""A candidate whose fewest calls would take more than this many budgets (a minute by default) takes part in
fewer repetitions."""

_ALIKE = 4


@dataclass(frozen=True)
class CallCounts:
    """Calls in a sample, samples in a segment, untimed calls before each sample, repetitions, segments.

    The fields are those of :class:`~attnbench.types.record.CandidatePlan`.
    """

    calls: int
    samples: int
    warm_calls: int
    repetitions: int
    segments: int


def plan_candidates(
    found: Mapping[str, CheckResult], options: Options, note: str
) -> dict[str, CandidatePlan]:
    """Plan how each candidate of a case is measured, from what its check found. note: for every record."""
    calls = plan_all(
        {name: [round(1e6 * ms) for ms in one.warmup_ms] for name, one in found.items()}, options
    )
    return {name: _plan(one, calls[name], options, note) for name, one in found.items()}


def _plan(found: CheckResult, calls: CallCounts, options: Options, note: str) -> CandidatePlan:
    notes = [note] if note else []
    if not found.fresh:
        notes.append("one process serves several repetitions: it can't be forked (copied) once prepared")
    if calls.repetitions < options.repetitions:
        notes.append(
            f"slow: measured in {calls.repetitions} of {options.repetitions} repetitions; "
            "a larger --budget allows all"
        )
    whole = structs.asdict(found) | asdict(calls)
    return CandidatePlan(**whole | {"notes": [*notes, *found.notes]})


def plan_all(traces_ns: Mapping[str, Sequence[int]], options: Options) -> dict[str, CallCounts]:
    """Plan the calls of each candidate, from the traces of their warm-up (ns per call, at least one each).

    The first calls of a slot find other processes' data in the caches and are slower than the rest. Between
    candidates that are called equally often this cancels; between 4 calls and 9 of the same code it made
    8 %. So all that are about as fast as the baseline, within the noise of one call, are called exactly as
    often as the baseline. The least time of a warm-up is the time of a call: on a shared machine the median
    may be twice that, in one warm-up and not in the next.
    """
    least = {name: max(1, min(trace)) for name, trace in traces_ns.items()}
    typical = {name: max(1.0, median(trace)) for name, trace in traces_ns.items()}
    fastest = min(least, key=least.__getitem__, default="")

    def like(name: str) -> str:
        anchor = baseline_of(name, options.baseline)
        anchor = anchor if anchor in least else fastest
        alike = any(1 / _ALIKE <= ns[name] / ns[anchor] <= _ALIKE for ns in (least, typical))
        return anchor if alike else name

    return {name: plan_calls(least[like(name)], options) for name in least}


def plan_calls(call_ns: float, options: Options) -> CallCounts:
    """Plan the calls of a candidate whose call takes so many nanoseconds.

    A sample lasts about ``SAMPLE_S`` or one call. Samples fill the budget. A call that takes longer than the
    budget is timed once a repetition, after one to warm up; one that takes very long, in fewer repetitions.
    """
    call_s = call_ns / 1e9
    calls = min(max(1, round(SAMPLE_S / call_s)), LONGEST_SAMPLE_CALLS)
    segment_s = options.budget_s / (options.repetitions * SEGMENTS)
    samples = max(1, int(segment_s / (calls * call_s)))
    if samples > MOST_SAMPLES:
        # A large budget gives longer samples, not more, and as many of them as it has room for.
        calls = min(calls * -(-samples // MOST_SAMPLES), LONGEST_SAMPLE_CALLS)
        samples = min(max(1, int(segment_s / (calls * call_s))), MOST_SAMPLES)
    slow = call_s > options.budget_s
    few = slow and 2 * options.repetitions * call_s > _OVERRUN * options.budget_s
    warm = ceil(WARM_S / call_s) if call_s < WARM_CALL_BELOW_S else 0
    repetitions = min(options.repetitions, FEWEST_REPETITIONS) if few else options.repetitions
    return CallCounts(calls, samples, warm, repetitions, 1 if slow else SEGMENTS)


def order_of_slots(samples: Mapping[str, int], rng: Random) -> list[str]:
    """Return the candidate of each slot of a segment; each has as many slots as samples.

    Slots go in rounds. A candidate with fewer samples than another takes part in rounds spread evenly.
    The two sides of a backend follow each other in every round, in alternating order: the nearer they are,
    the less the machine changes between them.
    """
    rounds = max(samples.values(), default=0)
    takes_part = {name: _spread(count, rounds) for name, count in samples.items()}
    pairs: dict[str, list[str]] = {}
    for name in samples:
        pairs.setdefault(parts_of(name)[0], []).append(name)
    begins = {pair: rng.randrange(2) for pair in pairs}
    found: list[str] = []
    for number, order in enumerate(balanced_orders(list(pairs), rounds, rng)):
        for pair in order:
            # A lone pair keeps its order, or a side would follow itself.
            turned = begins[pair] + (number if len(pairs) > 1 else 0)
            names = pairs[pair][::-1] if turned % 2 else pairs[pair]
            found += [name for name in names if number in takes_part[name]]
    return found


def _spread(count: int, rounds: int) -> frozenset[int]:
    """Return ``count`` of the rounds, evenly apart, the same distance from both ends."""
    return frozenset((2 * place + 1) * rounds // (2 * count) for place in range(count))


def balanced_orders(candidates: Sequence[str], rounds: int, rng: Random) -> list[list[str]]:
    """Return ``rounds`` orders of the candidates.

    They come from Williams designs, with the candidates' places drawn anew for each: within a design every
    candidate stands in every place equally often and follows every other equally often. (Williams,
    Experimental designs balanced for the estimation of residual effects of treatments, 1949.)
    No candidate follows itself from one round to the next where there are more than one: such an order is
    reversed. That is worth more than the balance of places, which then holds only on average over
    repetitions, each of which draws its orders anew. Two candidates simply alternate within a segment.
    """
    orders: list[list[str]] = []
    while candidates and len(orders) < rounds:
        names = list(candidates)
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
