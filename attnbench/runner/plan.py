"""The number of calls of each candidate: fixed before measuring, from the budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from statistics import median

from msgspec import structs

from attnbench.runner.options import Options
from attnbench.stats.protocol import SAMPLE_S, SEGMENTS, WARM_S
from attnbench.types.compared import baseline_of
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
        notes.append(
            "few processes: with several threads, CUDA or this library one process serves several "
            "repetitions, so intervals may be too narrow; a second run shows whether a number holds"
        )
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
