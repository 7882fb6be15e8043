"""Cases that are measured together: repetition by repetition, and in each one case after the other."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from random import Random

from msgspec.structs import replace

from attnbench.runner.case import CaseRun, CheckedCase, check_case
from attnbench.runner.link import VerifierFailed
from attnbench.runner.pool import WorkerPool
from attnbench.runner.repetitions import RepetitionUnderWay
from attnbench.runner.workers import TimedWorkers
from attnbench.stats.records import failed_candidates, timed_records
from attnbench.types.record import SetLine


def run_cases(runs: Sequence[CaseRun]) -> None:
    """Check and measure cases of one pool together; write one record for each backend of each.

    A process serves all of them in turn, since starting it takes longer than measuring a small case. Each
    repetition has its own processes, and its own order of the cases.
    """
    with ExitStack() as closing:
        checked = [found for run in runs if (found := check_case(run, closing)) is not None]
        if checked:
            _measure(checked)


def _measure(checked: Sequence[CheckedCase]) -> None:
    pool, threads, clock = checked[0].run.pool, checked[0].context.threads, checked[0].run.clock
    lines = {one.run.id: list(one.run.before.sets) for one in checked}
    workers = TimedWorkers(pool)
    pool.keep_off_measured_cores(threads)
    try:
        for index in range(pool.options.sets):
            pool.wait_for_servers(threads)
            left = [one for one in checked if index >= len(lines[one.run.id])]
            for one in Random(f"{checked[0].planned.draw_entropy} {index}").sample(left, len(left)):
                one.run.notify(f"repetition {index + 1} of {pool.options.sets}")
                line = _repetition(pool, workers, one, index, lines[one.run.id])
                if line is not None:
                    one.run.write(line)
                    lines[one.run.id].append(line)
            workers.end_repetition()
    finally:
        workers.close()
        pool.use_all_cores()
    clock.spend("sets")
    for one in checked:
        _record_times(one, lines[one.run.id])


def _repetition(
    pool: WorkerPool, workers: TimedWorkers, one: CheckedCase, index: int, lines: Sequence[SetLine]
) -> SetLine | None:
    """Measure a repetition of a case; None if no candidate takes part."""
    run, context, planned = one.run, one.context, one.planned
    out = failed_candidates(lines).keys() | run.recorded
    starting = [each for each in one.candidates if index < each.plan.sets and each.name not in out]
    if not starting:
        return None
    rng = Random(f"{planned.draw_entropy} {index}")
    try:
        line = RepetitionUnderWay(pool, context, workers, index, planned.stretches, rng).measure(starting)
    except VerifierFailed as failure:
        run.record_all([each.entry for each in starting], "error", str(failure))
        return None
    return replace(line, scale=run.scale.measure(run.case, context.bytes_moved))


def _record_times(one: CheckedCase, lines: Sequence[SetLine]) -> None:
    run, options = one.run, one.run.pool.options
    failed = failed_candidates(lines)
    peaks = {each.name: failed.get(each.name) or each.peak_bytes for each in one.candidates}
    for record in timed_records(one.planned, lines, peaks, options.baseline, options.delta):
        if record.median_ms is not None and record.limit_share is None and run.scale.problem:
            record = replace(record, notes=[*record.notes, run.scale.problem])
        run.put(record)
