"""From the repetitions of a case to the record of one backend."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from attnbench.cases.ids import case_id
from attnbench.plugins.registry import Registry
from attnbench.runner.context import CaseContext
from attnbench.runner.examine import Candidate, kernel_of
from attnbench.runner.machine import sharing_note
from attnbench.runner.options import Options
from attnbench.runner.plan import Calls, plan_all, prepared_anew
from attnbench.runner.pool import WorkerPool
from attnbench.stats.doubts import hidden_work, kept_answers, mode_notes, waiting_note
from attnbench.stats.limits import Limit, limit_problem, limit_share, limits
from attnbench.stats.pairs import Comparison, compare
from attnbench.stats.summary import Timing, clock_problem, summarise
from attnbench.types.case import Case
from attnbench.types.checks import Check
from attnbench.types.compared import baseline_of
from attnbench.types.record import CandidatePlan, DropoutNumbers, Record, SetLine

CONTENDED = (
    "contended: more than half of its samples were preempted, so none is left out; measure when the "
    "machine is quieter"
)
BIMODAL = (
    "bimodal: its calls have two speeds, and those of the others don't; the median is one of them or lies "
    "between, see the samples in the run file"
)


def dropout_notes(case: Case, found: DropoutNumbers | None) -> list[str]:
    """What the check of dropout has found, for a reader; nothing in a case without."""
    if found is None:
        return []
    some = "" if found.rows == found.rows_of else f", in {found.rows} of {found.rows_of} rows"
    return [
        f"dropout {case.dropout:g}: {found.p:.4g} by its spread over {found.calls} calls "
        f"({found.p_least:.4g} to {found.p_most:.4g} allowed){some}"
    ]


def fastest(context: CaseContext, candidates: Sequence[Candidate], lines: Sequence[SetLine]) -> str | None:
    """The backend with the least median time of those that failed in no set and can be believed."""
    failed = {name for line in lines for name in line.failed}
    limit = limits(lines)
    times: dict[str, float] = {}
    for candidate in candidates:
        name = candidate.name
        timing = None if name in failed else summarise(lines, name)
        if timing is not None and not _doubt(context, candidate, lines, timing, limit)[0]:
            times[name] = timing.median_ms
    return min(sorted(times), key=lambda name: times[name], default=None)


def timed_record(
    context: CaseContext,
    case: Case,
    candidate: Candidate,
    lines: Sequence[SetLine],
    options: Options,
    best: str | None,
    peak_extra_bytes: int | None,
) -> Record:
    """The record of a backend that failed in no set."""
    name, plan = candidate.name, candidate.plan
    timing = summarise(lines, name)
    if timing is None:
        return Record(context.case, case.rule, name, "error", "no set with samples of it is stored")
    baseline = baseline_of(name, options.baseline)
    against = None if name == baseline else compare(lines, name, baseline)
    to_best = None if best is None else compare(lines, name, best)
    limit = limits(lines)
    doubt, check = _doubt(context, candidate, lines, timing, limit)
    time, ratio = timing.interval, None if against is None else against.interval
    share = None
    if limit is not None:
        share = limit_share(context.flops, context.bytes_moved, timing.median_ms, limit)
    record = Record(
        case=context.case,
        rule=case.rule,
        backend=name,
        status="suspect" if doubt else "ok",
        reason=doubt,
        failed_check=check,
        median_ms=timing.median_ms,
        low_ms=None if time is None else time.low,
        high_ms=None if time is None else time.high,
        confidence=None if time is None else time.confidence,
        baseline=baseline,
        delta=options.delta,
        best=best,
        ratio_to_best=None if to_best is None else to_best.ratio,
        accuracy=plan.accuracy,
        parts=plan.parts,
        dropout=plan.dropout,
        tflops=context.flops / timing.median_ms / 1e9,
        gbps=context.bytes_moved / timing.median_ms / 1e6,
        limit_share=share,
        peak_extra_bytes=peak_extra_bytes,
        faults_per_call=timing.faults_per_call,
        prepare_ms=plan.prepare_ms,
        first_call_ms=plan.first_call_ms,
        warmup_ms=plan.warmup_ms,
        sets=timing.sets,
        timed_calls=timing.timed_calls,
        verified_calls=sum(line.verified_calls.get(name, 0) for line in lines),
        notes=[
            *plan.notes,
            *_notes(timing, against),
            *mode_notes(lines, name),
            *filter(None, [waiting_note(lines, name, case.threads)]),
        ],
    )
    if name == baseline:
        return replace(record, ratio=1.0)
    if against is None:
        return record
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
    context: CaseContext, candidate: Candidate, lines: Sequence[SetLine], timing: Timing, limit: Limit | None
) -> tuple[str, Check]:
    """Return why a backend's time can't be believed, and the check that failed; "" where it can."""
    name = candidate.name
    if problem := clock_problem(lines, name, warm_calls=candidate.plan.warm_calls):
        return problem, "clock"
    if problem := hidden_work(lines, name, context.threads):
        return problem, "hidden_work"
    if limit is None:
        return "", ""
    read_ns = 1e9 * context.bytes_moved / limit.bytes_per_s
    if problem := kept_answers(lines, name, context.threads, read_ns):
        return problem, "kept_answers"
    problem = limit_problem(context.flops, context.bytes_moved, timing.median_ms, limit)
    return problem, "limit" if problem else ""


def _notes(timing: Timing, against: Comparison | None) -> list[str]:
    notes = []
    if timing.contended or (against is not None and against.contended):
        notes.append(CONTENDED)
    if timing.bimodal:
        notes.append(BIMODAL)
    return notes


def checked_record(case: Case, candidate: Candidate, registry: Registry) -> Record:
    """The record of a backend that passed, where nothing is timed."""
    found = candidate.plan
    return Record(
        case_id(case), case.rule, candidate.name, "ok", accuracy=found.accuracy, parts=found.parts,
        notes=[*found.notes, *dropout_notes(case, found.dropout)],
        ran=found.ran, kernel_of=_kernel_of(registry, candidate), dropout=found.dropout,
    )  # fmt: skip


def _kernel_of(registry: Registry, candidate: Candidate) -> str:
    installed = (entry.record for entry in registry.backends.values())
    return kernel_of(candidate.plan.ran, candidate.entry.record, installed)


def plan_candidates(
    pool: WorkerPool, case: Case, registry: Registry, passed: Sequence[Candidate]
) -> dict[str, CandidatePlan]:
    """How each candidate of a case is going to be measured."""
    traces_ns = {one.name: [round(1e6 * ms) for ms in one.plan.warmup_ms] for one in passed}
    calls = plan_all(traces_ns, pool.options)
    return {one.name: _plan(pool, case, registry, one, calls[one.name]) for one in passed}


def _plan(
    pool: WorkerPool, case: Case, registry: Registry, candidate: Candidate, calls: Calls
) -> CandidatePlan:
    found = candidate.plan
    shared = sharing_note(pool.all_cpus, case.threads)
    notes = [shared] if shared else []
    if not found.fresh:
        notes.append("can't be forked once prepared: restarted every few sets instead of for each")
    if calls.sets < pool.options.sets:
        notes.append(f"slow: measured in {calls.sets} of {pool.options.sets} sets")
    # What is compared live must not stand on the luck of one template, however long preparing takes.
    anew = bool(candidate.entry.side) or prepared_anew(found.prepare_ms, found.first_call_ms)
    return replace(
        found,
        calls=calls.calls,
        samples=calls.samples,
        warm_calls=calls.warm_calls,
        sets=calls.sets,
        anew=found.fresh and anew,
        kernel_of=_kernel_of(registry, candidate),
        notes=[*notes, *found.notes, *dropout_notes(case, found.dropout)],
    )
