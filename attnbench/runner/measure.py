"""Cases that are measured together: repetition by repetition, and in each one case after the other."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from random import Random

from msgspec.structs import replace

from attnbench.runner.case import CaseRun, CheckedCase, check_case
from attnbench.runner.check import Candidate, named_if_lost, tell_of_killed
from attnbench.runner.company import company_threads
from attnbench.runner.processes import HelperLost, ServerLost, VerifierFailed
from attnbench.runner.repetitions import RepetitionUnderWay, TimedWorkers
from attnbench.stats.records import failed_candidates, timed_records
from attnbench.stats.verdict import decided_candidates
from attnbench.types.record import MachineScale, RepetitionLine


def run_cases(runs: Sequence[CaseRun]) -> None:
    """Check and measure cases of one pool together; write one record for each backend of each.

    A process serves all of them in turn, since starting it takes longer than measuring a small case. Each
    repetition has its own processes, and its own order of the cases. If the verifier or a server is lost, the
    cases are begun again, and go on after the repetitions that are stored.
    """
    pool = runs[0].pool
    again = True
    while again:
        again = False
        with suppress(ServerLost):
            # One cause may have stopped several processes, which is one loss.
            pool.end_if_stopped()
        pool.start_servers(runs[0].case.threads)
        for threads in company_threads([run.case for run in runs], pool):
            pool.start_servers(threads, launches=1)
        # After a loss one backend at a time, to find one that ends its server.
        alone = any(run.losses for run in runs)
        if alone:
            # One cause may have stopped all servers, which is one loss.
            pool.wait_for_servers(runs[0].case.threads)
        try:
            with ExitStack() as closing:
                checked: list[CheckedCase] = []
                for run in runs:
                    with run.losses_noted():
                        found = check_case(run, closing, alone=alone)
                    if found is not None:
                        checked.append(found)
                if checked:
                    _measure(checked, alone=alone)
        except HelperLost:
            again = True


def _measure(checked: Sequence[CheckedCase], *, alone: bool) -> None:
    pool, threads, clock = checked[0].run.pool, checked[0].context.threads, checked[0].run.clock
    workers = TimedWorkers(pool)
    pool.keep_off_measured_cores(threads)
    try:
        if alone:
            for one in checked:
                with one.run.losses_noted():
                    _try_alone(workers, one)
        for index in range(pool.options.repetitions):
            left = [
                (one, taking_part)
                for one in checked
                if index >= len(one.run.repetitions) and (taking_part := _taking_part(one, index))
            ]
            if left:
                pool.wait_for_servers(threads)
            rng = Random(f"{checked[0].planned.draw_entropy} {index}")
            for one, taking_part in rng.sample(left, len(left)):
                one.run.notify(f"repetition {index + 1} of {pool.options.repetitions}")
                with one.run.losses_noted():
                    line = _repetition(workers, one, index, taking_part)
                if line is not None:
                    line = replace(line, scale=_scale(one))
                    one.run.write(line)
                    one.run.repetitions.append(line)
            workers.end_repetition()
    finally:
        workers.close()
        pool.use_all_cores()
    clock.spend("repetitions")
    for one in checked:
        _record_times(one)


def _scale(one: CheckedCase) -> MachineScale | None:
    return one.run.scale.measure(one.run.case, one.context.opened.bytes_moved)


def _try_alone(workers: TimedWorkers, one: CheckedCase) -> None:
    """Time each candidate alone, to find one that ends its server; nothing is kept.

    Raises:
        ServerLost: it names the backend.
    """
    # Its process is from the same server: a backend that stops others than its own stops it too.
    _scale(one)
    for each in _taking_part(one, len(one.run.repetitions)):
        with named_if_lost(each.name):
            _repetition(workers, one, 0, [each])
        workers.end_repetition()


def _taking_part(one: CheckedCase, index: int) -> list[Candidate]:
    """Return the candidates of a repetition: those with a place in it that neither failed nor are decided."""
    run, options = one.run, one.run.pool.options
    backends = {each.entry.record.name for each in one.candidates}
    out = failed_candidates(run.repetitions).keys() | run.recorded
    out |= decided_candidates(run.repetitions, run.look, backends, options.delta)
    return [each for each in one.candidates if index < each.plan.repetitions and each.name not in out]


def _repetition(
    workers: TimedWorkers, one: CheckedCase, index: int, taking_part: list[Candidate]
) -> RepetitionLine | None:
    """Measure a repetition of a case, once more if a worker was killed; None if the verifier failed."""
    run, context, planned = one.run, one.context, one.planned

    def begun() -> RepetitionUnderWay:
        rng = Random(f"{planned.draw_entropy} {index}")
        return RepetitionUnderWay(run.pool, context, workers, index, planned.segments, rng)

    try:
        under_way = begun()
        line = under_way.measure(taking_part)
        if under_way.killed:
            for name, killed in under_way.killed.items():
                tell_of_killed(name, killed)
            found = {name: why for name, why in line.failed.items() if name not in under_way.killed}
            line = begun().measure([each for each in taking_part if each.name not in found])
            line = replace(line, failed=line.failed | found)
        run.begin_again_if_unjudged(line.failed.values())
    except VerifierFailed as failure:
        if not failure.late:
            run.begin_again(str(failure))
        run.record_all([each.entry for each in taking_part], "unjudged", str(failure), failure.check)
        return None
    finally:
        run.pool.end_if_stopped()
    return line


def _record_times(one: CheckedCase) -> None:
    run, options, lines = one.run, one.run.pool.options, one.run.repetitions
    failed = failed_candidates(lines)
    peaks = {each.name: failed.get(each.name) or each.peak_bytes for each in one.candidates}
    for record in timed_records(one.planned, lines, peaks, options.baseline, options.delta, options.accuracy):
        if record.median_ms is not None and record.limit_share is None and run.scale.problem:
            record = replace(record, notes=[*record.notes, run.scale.problem])
        run.put(record)
