"""From the repetitions of a case to its records: every statistic that one case alone determines.

A record is a function of lines in the run file, besides the peak of memory. Verdicts depend on all records of
a run: :mod:`attnbench.stats.verdict` adds them when records are printed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isclose
from statistics import median
from typing import Any

from msgspec.structs import replace

from attnbench.cases.ids import parse_case
from attnbench.cases.work import decode_bytes
from attnbench.stats.doubts import (
    Limit,
    clock_problem,
    hidden_work,
    kept_answers,
    limit_problem,
    limit_share,
    limits,
    mode_notes,
    one_thread_note,
    slow_clock_note,
    waiting_note,
)
from attnbench.stats.pairs import Comparison, compare, samples_of
from attnbench.stats.tests import Interval, ends, time_interval
from attnbench.types.arithmetic import coarser
from attnbench.types.case import Case
from attnbench.types.compared import baseline_of
from attnbench.types.record import CaseLine, CheckResult, Failure, Record, RepetitionLine
from attnbench.types.status import Check, Status
from attnbench.types.storage import baseline_in

Outcome = tuple[Status, str, Check]
"""A status, its reason in words, and the check that failed."""

CONTENDED = "contended"
"""The label of the note on a backend whose samples were mostly preempted."""
CROWDED = "attnbench itself shared"
"""Begins the note on a backend whose threads left attnbench no core of its own."""


def checked_record(case: str, rule: str, backend: str, found: CheckResult, accuracy: str) -> Record:
    """Return the record of a backend that passed the check of a case and is not timed.

    accuracy: the coarsest arithmetic that the user accepts, "" for that of the dtype.
    """
    status, reason, check = _inaccurate(found, accuracy) or ("ok", "", "")
    return Record(
        case, rule, backend, status, reason, accuracy=found.accuracy, parts=found.parts, notes=found.notes,
        ran=found.ran, kernel_of=found.kernel_of, dropout=found.dropout, arithmetic=found.arithmetic,
        failed_check=check, batch_invariant=found.batch_invariant, encoding_error=found.encoding_error,
        dtype_error=found.dtype_error, kv_bytes=found.kv_bytes,
    )  # fmt: skip


def _inaccurate(found: CheckResult, accuracy: str) -> Outcome | None:
    """Return the outcome of outputs that are less exact than the user accepts, else None.

    A backend that declares its arithmetic fails no check.
    """
    if not found.arithmetic or (accuracy and not coarser(found.arithmetic, accuracy)):
        return None
    if not found.inexact:
        return "inaccurate", f"in {found.arithmetic} arithmetic, as the backend declares", ""
    return "inaccurate", f"as exact as {found.arithmetic} arithmetic: {found.inexact}", "values"


def failed_candidates(repetitions: Sequence[RepetitionLine]) -> dict[str, Failure]:
    """Return the first failure of each backend that failed in a repetition."""
    found: dict[str, Failure] = {}
    for line in repetitions:
        found = dict(line.failed) | found
    return found


@dataclass(frozen=True)
class _Measured:
    """A backend's time, and its outcome."""

    timing: Timing
    status: Status
    reason: str
    check: Check


def timed_records(
    planned: CaseLine,
    repetitions: Sequence[RepetitionLine],
    peaks: Mapping[str, int | Failure | None],
    baseline: str,
    delta: float,
    accuracy: str = "",
) -> Iterator[Record]:
    """Yield the record of each backend in ``peaks``.

    peaks: the extra memory of one call at its peak, bytes; None if it is not known; the failure of a backend
    that failed. baseline, delta, accuracy: of the run; a baseline of "" is that of the case's storage.
    """
    case, limit = parse_case(planned.case), limits(repetitions)
    measured = {
        name: _Measured(
            timing,
            *_outcome(_inaccurate(plan, accuracy), _doubt(planned, case, name, repetitions, timing, limit)),
        )
        for name, plan in planned.candidates.items()
        if (timing := summarise(repetitions, name)) is not None
    }
    best = _fastest(measured, failed_candidates(repetitions))
    for name, peak in peaks.items():
        plan = planned.candidates[name]
        record = Record(
            planned.case, case.rule, name, "ok",
            ran=plan.ran, kernel_of=plan.kernel_of, arithmetic=plan.arithmetic,
        )  # fmt: skip
        if isinstance(peak, Failure):
            yield replace(record, status=peak.status, reason=peak.reason, failed_check=peak.failed_check)
        elif name not in measured:
            yield replace(record, status="error", reason="the run file has no repetition with its samples")
        else:
            record = replace(record, delta=delta, best=best, peak_extra_bytes=peak)
            own = baseline_of(name, baseline_in(case, baseline))
            yield _with_times(
                record, planned, case, repetitions, measured[name], limit, own, measured.get(own)
            )


TIMED = (
    "median_ms", "low_ms", "high_ms", "confidence", "ratio", "ratio_low", "ratio_high", "ratio_confidence",
    "p_value", "delta", "pairs", "pairs_left_out", "ratio_to_best", "tflops", "gbps", "limit_share",
    "faults_per_call", "prepare_ms", "first_call_ms", "repetitions", "timed_calls", "verified_calls",
)  # fmt: skip
"""The numbers of a record that follow from the lines of its case."""
_TO_BEST = (
    "ratio_to_best_low", "ratio_to_best_high", "ratio_to_best_confidence", "ratio_to_best_p_value",
)  # fmt: skip
"""These do too, but files from before 2026-11-28 lack them."""


def not_derived(
    protocol: Mapping[str, Any],
    cases: Iterable[CaseLine],
    repetitions: Iterable[RepetitionLine],
    records: Iterable[Record],
) -> Iterator[str]:
    """Yield a sentence for each record of a stored run whose numbers do not follow from its repetitions."""
    planned = {line.case: line for line in cases}
    of_case: dict[str, list[RepetitionLine]] = defaultdict(list)
    for line in repetitions:
        of_case[line.case].append(line)
    stored: dict[str, dict[str, Record]] = defaultdict(dict)
    for record in records:
        stored[record.case][record.backend] = record
    for case, by_backend in stored.items():
        timed = {name: one.peak_extra_bytes for name, one in by_backend.items() if one.median_ms is not None}
        again = {name: Record(case, one.rule, name, one.status) for name, one in by_backend.items()}
        try:
            if timed:
                settings = protocol["baseline"], protocol["delta"], protocol.get("accuracy", "")
                found = timed_records(planned[case], of_case[case], timed, *settings)
                again |= {record.backend: record for record in found}
        except (ArithmeticError, LookupError, TypeError, ValueError):
            yield f"the numbers of {case!r} can't be derived again from its repetitions"
            continue
        for name, record in by_backend.items():
            newer = [field for field in _TO_BEST if getattr(record, field) is not None]
            for field in (*TIMED, *newer):
                value, derived = getattr(record, field), getattr(again[name], field)
                if not _same(value, derived):
                    gives = f"{field} is {value}, and its repetitions give {derived}"
                    yield f"the record of {name} in {case!r} does not follow from its samples: {gives}"


def _same(value: float | None, derived: float | None) -> bool:
    if value is None or derived is None:
        return value is derived
    return isclose(value, derived, rel_tol=1e-9)


def _fastest(measured: Mapping[str, _Measured], failed: Mapping[str, Failure]) -> str | None:
    """Return the backend with the least median of those that failed nowhere and are ``ok``."""
    times_ms = {
        name: one.timing.median_ms
        for name, one in measured.items()
        if name not in failed and one.status == "ok"
    }
    return min(sorted(times_ms), key=lambda name: times_ms[name], default=None)


def _with_times(
    record: Record,
    planned: CaseLine,
    case: Case,
    repetitions: Sequence[RepetitionLine],
    measured: _Measured,
    limit: Limit | None,
    baseline: str,
    measured_baseline: _Measured | None,
) -> Record:
    name, timing, plan = record.backend, measured.timing, planned.candidates[record.backend]
    against = None if name == baseline else compare(repetitions, name, baseline)
    to_best = None if record.best is None else compare(repetitions, name, record.best)
    low_ms, high_ms, confidence = ends(timing)
    best_low, best_high, best_confidence = ends(to_best)
    counted = decode_bytes(case, plan.kv_bytes) or planned.bytes_moved
    record = replace(
        record,
        status=measured.status,
        reason=measured.reason,
        failed_check=measured.check,
        median_ms=timing.median_ms,
        low_ms=low_ms,
        high_ms=high_ms,
        confidence=confidence,
        baseline=baseline,
        ratio=1.0 if name == baseline else None,
        ratio_to_best=None if to_best is None else to_best.ratio,
        ratio_to_best_low=best_low,
        ratio_to_best_high=best_high,
        ratio_to_best_confidence=best_confidence,
        ratio_to_best_p_value=None if to_best is None else to_best.p_value,
        accuracy=plan.accuracy,
        parts=plan.parts,
        dropout=plan.dropout,
        tflops=planned.flops / timing.median_ms / 1e9,
        gbps=counted / timing.median_ms / 1e6,
        limit_share=limit and limit_share(planned.flops, planned.bytes_moved, timing.median_ms, limit),
        copy_share=limit and counted * 1e3 / timing.median_ms / limit.bytes_per_s,
        batch_invariant=plan.batch_invariant,
        encoding_error=plan.encoding_error,
        dtype_error=plan.dtype_error,
        kv_bytes=plan.kv_bytes,
        faults_per_call=timing.faults_per_call,
        prepare_ms=plan.prepare_ms,
        first_call_ms=plan.first_call_ms,
        warmup_ms=plan.warmup_ms,
        repetitions=timing.repetitions,
        timed_calls=timing.timed_calls,
        verified_calls=sum(line.verified_calls.get(name, 0) for line in repetitions),
        notes=[*plan.notes, *_notes(case, name, repetitions, timing, against)],
    )
    if against is None:
        return record
    if measured_baseline is not None and measured_baseline.status == "inaccurate":
        note = f"its baseline {baseline} is inaccurate: {planned.candidates[baseline].arithmetic} arithmetic"
        record = replace(record, notes=[*record.notes, note])
    return replace(with_ratio(record, against), pairs=against.pairs, pairs_left_out=against.left_out)


def with_ratio(record: Record, found: Comparison | None) -> Record:
    """Return a record with the ratio of a comparison; None for no ratio."""
    low, high, confidence = ends(found)
    return replace(
        record,
        ratio=None if found is None else found.ratio,
        ratio_low=low,
        ratio_high=high,
        ratio_confidence=confidence,
        p_value=None if found is None else found.p_value,
    )


def _outcome(inaccurate: Outcome | None, doubt: Outcome) -> Outcome:
    """Return the outcome of a backend: of one that is inaccurate, with what makes its time doubtful."""
    if inaccurate is None:
        return doubt
    status, reason, check = inaccurate
    return status, "; ".join(filter(None, (reason, doubt[1]))), check or doubt[2]


def _doubt(
    planned: CaseLine,
    case: Case,
    name: str,
    repetitions: Sequence[RepetitionLine],
    timing: Timing,
    limit: Limit | None,
) -> Outcome:
    """Return ``suspect`` with the reason if a time cannot be believed, else ``ok``."""
    if problem := clock_problem(repetitions, name):
        return "suspect", problem, "clock"
    if problem := hidden_work(repetitions, name, case.threads):
        return "suspect", problem, "hidden_work"
    if limit is None:
        return "ok", "", ""
    read_ns = 1e9 * planned.bytes_moved / limit.bytes_per_s
    if problem := kept_answers(repetitions, name, case.threads, read_ns):
        return "suspect", problem, "kept_answers"
    problem = limit_problem(planned.flops, planned.bytes_moved, timing.median_ms, limit)
    return ("suspect", problem, "limit") if problem else ("ok", "", "")


def _notes(
    case: Case, name: str, repetitions: Sequence[RepetitionLine], timing: Timing, against: Comparison | None
) -> Iterator[str]:
    if slow := slow_clock_note(repetitions, name):
        yield slow
    elif timing.contended or (against is not None and against.contended):
        yield (
            f"{CONTENDED}: other programs disturbed more than half of its samples, too many to leave out, "
            "so its time may be too long; measure again when the machine is quieter"
        )
    yield from mode_notes(repetitions, name)
    if threads := one_thread_note(repetitions, name, case.threads) or waiting_note(
        repetitions, name, case.threads
    ):
        yield threads


@dataclass(frozen=True)
class Timing:
    """The time of one backend on one case.

    median_ms: the median over repetitions of the repetition's median time per call. interval: its exact
    interval at 95 % or more, in ms; None for too few repetitions. repetitions: those with samples of the
    backend. timed_calls: calls inside timed samples. contended: more than half of its samples were disturbed.
    faults_per_call: minor page faults while timed.
    """

    median_ms: float
    interval: Interval | None
    repetitions: int
    timed_calls: int
    contended: bool
    faults_per_call: float


def summarise(repetitions: Iterable[RepetitionLine], backend: str) -> Timing | None:
    """Return the timing of a backend over all repetitions that have samples of it; None where none has."""
    lines = [line for line in repetitions if line.samples.get(backend)]
    by_repetition = [samples_of(line.samples[backend]).values() for line in lines]
    times = [ns for segments in by_repetition if (ns := [t for samples in segments for t in samples.ns])]
    if not times:
        return None
    medians = [median(ns) / 1e6 for ns in times]
    lost = [lost for segments in by_repetition for samples in segments for lost in samples.disturbed]
    taken = [one for line in lines for one in line.samples[backend]]
    calls = sum(one.calls * len(one.wall_ns) for one in taken)
    return Timing(
        median_ms=median(medians),
        interval=time_interval(medians),
        repetitions=len(medians),
        timed_calls=calls,
        contended=2 * sum(lost) > len(lost),
        faults_per_call=sum(sum(one.faults) for one in taken) / max(1, calls),
    )
