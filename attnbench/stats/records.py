"""From the repetitions of a case to its records: every statistic that one case alone determines.

A record is a function of lines in the run file, besides the peak of memory. Verdicts depend on all records of
a run: :mod:`attnbench.stats.verdict` adds them when records are printed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from attnbench.cases.ids import parse_case
from attnbench.stats.doubts import (
    Limit,
    clock_problem,
    hidden_work,
    kept_answers,
    limit_problem,
    limit_share,
    limits,
    mode_notes,
    waiting_note,
)
from attnbench.stats.pairs import Comparison, compare
from attnbench.stats.summary import Timing, summarise
from attnbench.types.case import Case
from attnbench.types.checks import Check
from attnbench.types.compared import baseline_of
from attnbench.types.record import CandidatePlan, CaseLine, Failure, Record, SetLine

CONTENDED = (
    "contended: more than half of its samples were preempted, so none is left out; measure when the "
    "machine is quieter"
)
BIMODAL = (
    "bimodal: its calls have two speeds, and those of the others do not; the median is one of them or lies "
    "between, see the samples in the run file"
)


def checked_record(case: str, rule: str, backend: str, found: CandidatePlan) -> Record:
    """Return the record of a backend that passed the check of a case and is not timed."""
    return Record(
        case, rule, backend, "ok", accuracy=found.accuracy, parts=found.parts, notes=found.notes,
        ran=found.ran, kernel_of=found.kernel_of, dropout=found.dropout,
    )  # fmt: skip


def failed_candidates(sets: Sequence[SetLine]) -> dict[str, Failure]:
    """Return the first failure of each backend that failed in a repetition."""
    found: dict[str, Failure] = {}
    for line in sets:
        found = dict(line.failed) | found
    return found


@dataclass(frozen=True)
class _Measured:
    """A backend's time; doubt: why it cannot be believed, and the check that failed; "" where it can."""

    timing: Timing
    doubt: str
    check: Check


def timed_records(
    planned: CaseLine,
    sets: Sequence[SetLine],
    peaks: Mapping[str, int | Failure | None],
    baseline: str,
    delta: float,
) -> Iterator[Record]:
    """Yield the record of each backend in ``peaks``.

    peaks: the extra memory of one call at its peak, bytes; None if it is not known; the failure of a backend
    that failed. baseline, delta: of the run.
    """
    case, limit = parse_case(planned.case), limits(sets)
    measured = {
        name: _Measured(timing, *_doubt(planned, case, name, sets, timing, limit))
        for name in planned.contenders
        if (timing := summarise(sets, name)) is not None
    }
    best = _fastest(measured, failed_candidates(sets))
    for name, peak in peaks.items():
        plan = planned.contenders[name]
        record = Record(planned.case, case.rule, name, "ok", ran=plan.ran, kernel_of=plan.kernel_of)
        if isinstance(peak, Failure):
            yield replace(record, status=peak.status, reason=peak.reason, failed_check=peak.failed_check)
        elif name not in measured:
            yield replace(record, status="error", reason="the run file has no repetition with its samples")
        else:
            record = replace(record, delta=delta, best=best, peak_extra_bytes=peak)
            yield _with_times(record, planned, case, sets, measured[name], limit, baseline_of(name, baseline))


def _fastest(measured: Mapping[str, _Measured], failed: Mapping[str, Failure]) -> str | None:
    """Return the backend with the least median of those that failed nowhere and can be believed."""
    times_ms = {
        name: one.timing.median_ms for name, one in measured.items() if name not in failed and not one.doubt
    }
    return min(sorted(times_ms), key=lambda name: times_ms[name], default=None)


def _with_times(
    record: Record,
    planned: CaseLine,
    case: Case,
    sets: Sequence[SetLine],
    measured: _Measured,
    limit: Limit | None,
    baseline: str,
) -> Record:
    name, timing, plan = record.backend, measured.timing, planned.contenders[record.backend]
    against = None if name == baseline else compare(sets, name, baseline)
    to_best = None if record.best is None else compare(sets, name, record.best)
    time = timing.interval
    record = replace(
        record,
        status="suspect" if measured.doubt else "ok",
        reason=measured.doubt,
        failed_check=measured.check,
        median_ms=timing.median_ms,
        low_ms=None if time is None else time.low,
        high_ms=None if time is None else time.high,
        confidence=None if time is None else time.confidence,
        baseline=baseline,
        ratio=1.0 if name == baseline else None,
        ratio_to_best=None if to_best is None else to_best.ratio,
        accuracy=plan.accuracy,
        parts=plan.parts,
        dropout=plan.dropout,
        tflops=planned.flops / timing.median_ms / 1e9,
        gbps=planned.bytes_moved / timing.median_ms / 1e6,
        limit_share=limit and limit_share(planned.flops, planned.bytes_moved, timing.median_ms, limit),
        faults_per_call=timing.faults_per_call,
        prepare_ms=plan.prepare_ms,
        first_call_ms=plan.first_call_ms,
        warmup_ms=plan.warmup_ms,
        sets=timing.sets,
        timed_calls=timing.timed_calls,
        verified_calls=sum(line.verified_calls.get(name, 0) for line in sets),
        notes=[*plan.notes, *_notes(case, name, sets, timing, against)],
    )
    if against is None:
        return record
    ratio = against.interval
    return replace(
        record,
        ratio=against.ratio,
        ratio_low=None if ratio is None else ratio.low,
        ratio_high=None if ratio is None else ratio.high,
        ratio_confidence=None if ratio is None else ratio.confidence,
        p_value=against.p_value,
        pairs=against.pairs,
        pairs_left_out=against.left_out,
    )


def _doubt(
    planned: CaseLine, case: Case, name: str, sets: Sequence[SetLine], timing: Timing, limit: Limit | None
) -> tuple[str, Check]:
    """Return why a time cannot be believed, and the check that failed; "" where it can."""
    if problem := clock_problem(sets, name, warm_calls=planned.contenders[name].warm_calls):
        return problem, "clock"
    if problem := hidden_work(sets, name, case.threads):
        return problem, "hidden_work"
    if limit is None:
        return "", ""
    read_ns = 1e9 * planned.bytes_moved / limit.bytes_per_s
    if problem := kept_answers(sets, name, case.threads, read_ns):
        return problem, "kept_answers"
    problem = limit_problem(planned.flops, planned.bytes_moved, timing.median_ms, limit)
    return problem, "limit" if problem else ""


def _notes(
    case: Case, name: str, sets: Sequence[SetLine], timing: Timing, against: Comparison | None
) -> Iterator[str]:
    if timing.contended or (against is not None and against.contended):
        yield CONTENDED
    if timing.bimodal:
        yield BIMODAL
    yield from mode_notes(sets, name)
    if waiting := waiting_note(sets, name, case.threads):
        yield waiting
