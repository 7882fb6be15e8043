"""One repetition of a case: processes of its candidates, all taking slots on the same core.

A group of cases shares processes within a repetition, so that each is fresh in every repetition.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from random import Random
from statistics import median

from msgspec.structs import replace

from attnbench.inputs.places import change_in
from attnbench.ipc import messages as m
from attnbench.ipc import verifier_messages as rm
from attnbench.runner.check import Candidate
from attnbench.runner.context import (
    ArrayBlock,
    CaseContext,
    DrawnInputs,
    give_draw,
    judging,
    prepare_worker,
    reported_code,
)
from attnbench.runner.handoff import take_segment
from attnbench.runner.pool import WorkerPool
from attnbench.runner.processes import WorkerFailed, WorkerKilled, WorkerLink
from attnbench.runner.slot_order import order_of_slots
from attnbench.stats.protocol import kept_over
from attnbench.timing.warmup import BEFORE_SLOTS
from attnbench.types.record import CandidatePlan, Failure, RepetitionLine, SegmentSamples


class TimedWorkers:
    """The timed processes of cases that are measured together.

    In each repetition a backend has one new process, which serves the cases one after the other, and ends.
    A backend that is slow to prepare has a fork of its prepared worker for each case instead; one that
    cannot be forked keeps a process over several repetitions.
    """

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._segment = kept_over(pool.options.repetitions)
        self._fresh: dict[str, WorkerLink] = {}
        self._forks: list[WorkerLink] = []
        self._kept: dict[tuple[str, str], tuple[int, WorkerLink]] = {}

    def prepared(self, context: CaseContext, candidate: Candidate, index: int) -> WorkerLink:
        """Return a process with a backend prepared for a case, not yet pinned to the measured cores.

        index: of the repetition. All new processes of a repetition come from the same server, those of the
        next repetition from another.

        Raises:
            WorkerFailed: the backend could not be prepared; the process is gone.
        """
        name = candidate.name
        if candidate.plan.anew:
            worker = self._fresh.pop(name, None) or self._new(context, candidate, index)
            self._fresh[name] = prepare_worker(self._pool, context, candidate.entry, worker=worker)[0]
            return self._fresh[name]
        if candidate.prepared_worker is not None:
            keeps = self._pool.options.allocator_pinned
            fork = candidate.prepared_worker.fork(timed=True, cpus=self._pool.all_cpus, keeps_memory=keeps)
            self._forks.append(fork)
            return fork
        segment = index // self._segment
        kept = self._kept.get((context.case, name))
        if kept is None or kept[0] != segment:
            if kept is not None:
                kept[1].kill()
            worker = self._new(context, candidate, segment)
            link, _ = prepare_worker(self._pool, context, candidate.entry, worker=worker)
            self._kept[context.case, name] = kept = (segment, link)
        return kept[1]

    def _new(self, context: CaseContext, candidate: Candidate, launch: int) -> WorkerLink:
        return self._pool.new_worker(
            context.threads,
            self._pool.all_cpus,
            keeps_memory=self._pool.options.allocator_pinned,
            backward=context.backward,
            launch=launch,
            side=candidate.entry.side,
        )

    def release(self, candidate: Candidate, link: WorkerLink, *, failed: bool) -> None:
        """Take a process back after a case, and end it if no other case can have it."""
        if not candidate.plan.fresh:
            if failed:
                self._kept = {key: kept for key, kept in self._kept.items() if kept[1] is not link}
                link.kill()
            return
        link.pin(self._pool.all_cpus)
        if candidate.plan.anew and not failed:
            return
        if candidate.plan.anew:
            self._fresh.pop(candidate.name, None)
        link.kill()

    def end_repetition(self) -> None:
        """End the processes of a repetition."""
        links = [*self._fresh.values(), *self._forks]
        ended = [self._pool.executor.submit(link.kill) for link in links]
        for each in ended:
            each.result()
        self._fresh.clear()
        self._forks.clear()

    def close(self) -> None:
        """End every process."""
        self.end_repetition()
        for _, link in self._kept.values():
            link.kill()


LARGEST_JUNK_BYTES = 64 * 1024

_SLACK = 4
"""How much longer than after its warm-up a backend's calls may take before the segment is called off."""


def draw_places(context: CaseContext, segments: int, *, refreshing: bool) -> tuple[DrawnInputs, ...]:
    """Draw the inputs of a repetition, two for each segment if inputs are refreshed; none twice in a row.

    The copies of a pool keep their values, since writing all of them takes longer than a repetition. Only one
    call of a segment has new ones then.

    The operating system's entropy chooses them at the time, so that no backend can prepare for them. In a
    repetition pages have one order, since times depend on it.
    """
    order = secrets.randbits(31)
    places: list[DrawnInputs] = []
    for place in range(2 * segments if refreshing else segments):
        if context.pools is not None and (place % 2 == 0 or not refreshing):
            places.append(DrawnInputs(context.pooled_draw, 0))
            continue
        others = [draw for draw in context.timed_draws if not places or draw != places[-1].draw]
        change = change_in(order, secrets.randbits(30))
        places.append(DrawnInputs(secrets.choice(others or context.timed_draws), change))
    return tuple(places)


def _missing(kept: m.Kept, segments: int, *, refreshing: bool) -> str:
    """Describe outputs that are missing; "" if none are."""
    for segment in range(segments):
        of_segment = [output for output in kept.outputs if output.segment == segment]
        refreshed = any(output.refreshed for output in of_segment)
        if not of_segment or (refreshing and not refreshed):
            return f"the worker kept no output of segment {segment + 1} that can be compared"
    if any(not 0 <= output.segment < segments for output in kept.outputs):
        return "the worker kept outputs of a segment that does not exist"
    return ""


def _mismatch_words(output: m.KeptOutput, scored: rm.Scored, index: int) -> str:
    """Describe a wrong output of a timed call: which call, on which inputs, and how far off."""
    where = f"call {output.call + 1} of a sample (repetition {index + 1}, segment {output.segment + 1}, "
    where += f"slot {output.slot + 1})"
    on = "inputs written anew while it was timed" if output.refreshed else "inputs it had not seen before"
    return f"in the output of a timed call, {where}, on {on}: {scored.problem}"


class RepetitionUnderWay:
    """A repetition in progress. A backend that fails drops out of it, and of all that follow.

    killed: backends whose process somebody else may have killed.
    """

    def __init__(
        self,
        pool: WorkerPool,
        context: CaseContext,
        workers: TimedWorkers,
        index: int,
        segments: int,
        rng: Random,
    ) -> None:
        self._pool, self._context, self._workers = pool, context, workers
        self._index, self._rng = index, rng
        # The allocator as the system has it returns such memory, and would learn other thresholds from it.
        self._warm_up = m.WarmUp(BEFORE_SLOTS, reserve=pool.options.allocator_pinned)
        self._segments = segments
        self._places = draw_places(context, segments, refreshing=pool.options.refreshing)
        self._inputs: tuple[ArrayBlock, ...] = ()
        self._candidates: dict[str, Candidate] = {}
        self._links: dict[str, WorkerLink] = {}
        self._warmup_ns: dict[str, list[int]] = {}
        self._samples: dict[str, list[SegmentSamples]] = {}
        self._failed: dict[str, Failure] = {}
        self.killed: dict[str, WorkerKilled] = {}
        self._verified: dict[str, int] = {}

    def measure(self, candidates: list[Candidate]) -> RepetitionLine:
        """Start a process of each backend, measure all segments, and have outputs compared."""
        with self._context.refreshed(self._places) as self._inputs:
            self._start(candidates)
            for number in range(self._segments):
                if number > 0:
                    self._refresh_inputs(number)
                self._measure_segment(number)
            self._finish()
        return RepetitionLine(
            case=self._context.case,
            index=self._index,
            draws=[place.draw for place in self._places],
            transforms=[place.change for place in self._places],
            order=list(self._candidates),
            warmup_ns=self._warmup_ns,
            samples={name: taken for name, taken in self._samples.items() if name not in self._failed},
            verified=list(self._verified),
            verified_calls=self._verified,
            failed=self._failed,
        )

    @contextmanager
    def _dropping(self, name: str) -> Iterator[None]:
        try:
            yield
        except WorkerFailed as failure:
            if isinstance(failure, WorkerKilled):
                self.killed[name] = failure
            self._failed[name] = Failure(failure.status, failure.reason, failure.check)

    def _start(self, candidates: list[Candidate]) -> None:
        """Start and warm up in random order, on all cores at once; then move to the measured ones."""
        if self._context.pools is not None:
            self._warm_up = replace(self._warm_up, start=self._context.pools.deal_warm_up())
        order = self._rng.sample(candidates, len(candidates))
        self._candidates = {candidate.name: candidate for candidate in order}
        started = {
            one.name: self._pool.executor.submit(self._ready, one, self._rng.randrange(LARGEST_JUNK_BYTES))
            for one in order
        }
        wait(started.values())
        for name, future in started.items():
            with self._dropping(name):
                self._links[name], self._warmup_ns[name] = future.result()
                self._samples[name] = []
                self._links[name].pin(self._pool.measured_cpus(self._context.threads))
                self._links[name].put_first()

    def _ready(self, candidate: Candidate, junk_bytes: int) -> tuple[WorkerLink, list[int]]:
        """Start a process of a backend with its first inputs; return it with the trace of its warm-up."""
        link = self._workers.prepared(self._context, candidate, self._index)
        try:
            give_draw(link, self._inputs[0], fresh=True, junk_bytes=junk_bytes)
            warmed, _ = link.ask(self._warm_up, m.Warmed)
        except WorkerFailed:
            self._workers.release(candidate, link, failed=True)
            raise
        return link, list(warmed.trace_ns)

    def _refresh_inputs(self, segment: int) -> None:
        """Write other values to the same storage, so that answers remembered by address or call are wrong."""
        first = self._inputs[segment * len(self._inputs) // self._segments]
        asked: list[str] = []
        for name, link in self._taking_part(segment).items():
            with self._dropping(name):
                link.tell(m.Activations(first.arrays), (first.fd,))
                asked.append(name)
        # All at once, because otherwise each would have to wake up before the next is asked.
        for name in asked:
            with self._dropping(name):
                self._links[name].hear(m.Activations, m.Done)

    def _measure_segment(self, number: int) -> None:
        """Measure all slots of a segment; once more without those that failed in it."""
        refreshed = self._inputs[2 * number + 1] if self._pool.options.refreshing else None
        while True:
            links = self._taking_part(number)
            if not links:
                return
            plans = {name: self._candidates[name].plan for name in links}
            order = order_of_slots({name: plan.samples for name, plan in plans.items()}, self._rng)
            patience_s = self._pool.options.timeout_s + _SLACK * sum(map(_segment_s, plans.values()))
            starts = self._starts(order, plans)
            done = take_segment(number, order, links, plans, patience_s, refreshed, starts)
            for name, taken in done.samples.items():
                self._samples[name].append(taken)
            if not done.failed:
                return
            for name, failure in done.failed.items():
                with self._dropping(name):
                    raise failure
            # Some have the segment's second inputs by now.
            self._refresh_inputs(number)

    def _starts(self, order: Sequence[str], plans: Mapping[str, CandidatePlan]) -> dict[str, list[int]]:
        """Return for each worker where its slots begin in the order of a shared pool; nothing without one."""
        if self._context.pools is None:
            return {}
        backends = {name: self._candidates[name].entry.record for name in plans}
        return self._context.pools.deal(order, backends, plans)

    def _taking_part(self, segment: int) -> dict[str, WorkerLink]:
        return {
            name: link
            for name, link in self._links.items()
            if name not in self._failed and segment < self._candidates[name].plan.segments
        }

    def _finish(self) -> None:
        """Have outputs of timed calls compared, and let the processes go."""
        verified = {name: self._pool.executor.submit(self._let_go, name) for name in self._links}
        # No failure is raised before every process has ended.
        wait(verified.values())
        for name, future in verified.items():
            with self._dropping(name):
                if (calls := future.result()) is not None:
                    self._verified[name] = calls

    def _let_go(self, name: str) -> int | None:
        """Let a process go after it has handed over its outputs, and have them judged; return their number.

        Return None if it had failed before. It goes while the verifier works on the outputs of another,
        because ending takes as long.
        """
        link, failed = self._links[name], True
        try:
            if name in self._failed:
                return None
            # Calls may have imported more than preparation.
            reported_code(self._pool, self._context, link, self._candidates[name].entry)
            kept, fd = link.ask(m.TimedOutputs(), m.Kept)
            failed = False
        finally:
            self._workers.release(self._candidates[name], link, failed=failed)
        if fd < 0:
            raise WorkerFailed("crashed", "answered without outputs")
        try:
            segments = self._candidates[name].plan.segments
            if problem := _missing(kept, segments, refreshing=self._pool.options.refreshing):
                raise WorkerFailed("crashed", problem)
            outputs = tuple(self._as_timed(output) for output in kept.outputs)
            held_to = rm.ScoreTimed(outputs, self._candidates[name].plan.arithmetic)
            with judging(self._context.verifier):
                scored, _ = self._context.verifier.ask(held_to, rm.Scored, fd)
        finally:
            os.close(fd)
        if scored.problem:
            words = _mismatch_words(kept.outputs[scored.place], scored, self._index)
            raise WorkerFailed("mismatch", words, scored.check)
        return len(kept.outputs) + kept.repeated

    def _as_timed(self, output: m.KeptOutput) -> rm.TimedOutput:
        """Return an output with the inputs that it is compared on."""
        place = self._places[output.segment * len(self._places) // self._segments + output.refreshed]
        return rm.TimedOutput(place.draw, place.change, output.parts)


def _segment_s(plan: CandidatePlan) -> float:
    """Return how long the slots of a backend in one segment take, judged by its warm-up."""
    return plan.samples * (plan.calls + plan.warm_calls) * median(plan.warmup_ms) / 1000
