"""One repetition: a fresh process of every candidate, all taking slots on the same core."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from statistics import median
from time import perf_counter

import msgspec

from attnbench.ipc import messages as m
from attnbench.ipc import verifier_messages as rm
from attnbench.runner.check import compared, give_draw
from attnbench.runner.context import ArrayBlock, CaseContext, Place
from attnbench.runner.examine import Candidate, prepare_worker
from attnbench.runner.handoff import take_segment
from attnbench.runner.link import VerifierFailed, WorkerFailed, WorkerLink
from attnbench.runner.plan import order_of_turns
from attnbench.runner.pool import WorkerPool
from attnbench.stats.protocol import kept_over
from attnbench.types.record import Block, CandidatePlan, Failure, SetLine


def draw_places(context: CaseContext, segments: int, *, refreshing: bool) -> tuple[Place, ...]:
    """Inputs of a set, two for each segment where they are renewed within; no draw twice in a row.

    Which they are comes from the operating system, at the time: nobody can have worked with them before.
    """
    places: list[Place] = []
    for _ in range(2 * segments if refreshing else segments):
        others = [draw for draw in context.timed_draws if not places or draw != places[-1].draw]
        places.append(Place(secrets.choice(others or context.timed_draws), 1 + secrets.randbits(62)))
    return tuple(places)


def missing(kept: m.Kept, segments: int, *, refreshing: bool) -> str:
    """Describe outputs that are missing; "" if none are."""
    for segment in range(segments):
        of_segment = [output for output in kept.outputs if output.segment == segment]
        refreshed = any(output.refreshed for output in of_segment)
        if not of_segment or (refreshing and not refreshed):
            return f"the worker kept no output of stretch {segment + 1} that can be compared"
    if any(not 0 <= output.segment < segments for output in kept.outputs):
        return "the worker kept outputs of a stretch that there was not"
    return ""


def as_timed(output: m.KeptOutput, places: Sequence[Place], segments: int) -> rm.TimedOutput:
    """An output with the inputs that it is to be compared on."""
    place = places[output.segment * len(places) // segments + output.refreshed]
    return rm.TimedOutput(place.draw, place.change, output.parts)


def mismatch_words(output: m.KeptOutput, scored: rm.Scored, set_index: int) -> str:
    """That the output of a timed call is wrong: which call, on what inputs, after which law, and how far."""
    where = f"call {output.call + 1} of a sample (set {set_index + 1}, stretch {output.segment + 1}, "
    where += f"turn {output.slot + 1})"
    on = "inputs written anew while it was timed" if output.refreshed else "inputs it had not seen before"
    transform = f" ({scored.transform})" if scored.transform else ""
    return f"in the output of a timed call, {where}, on {on}{transform}: {scored.problem}"


LARGEST_JUNK_BYTES = 64 * 1024

WORKER_WARM_UP = m.WarmUp(most_calls=200, most_s=0.01, least_s=0.003, calm_s=0.3)
"""Pages that a fork writes to for the first time are copied: some dozens, in its first two milliseconds. Its
heap grows over the first calls: where each leaves 16 MiB, four of 10 ms took 20, 20, 15 and 11."""

_SLACK = 4
"""How much longer than after its warm-up a backend's calls may take before the segment is called off."""


class TimedWorkers:
    """Workers of a case: forked for each set, or kept over several sets where forking is unsafe."""

    def __init__(self, pool: WorkerPool, context: CaseContext, sets: int) -> None:
        self._pool = pool
        self._context = context
        self._segment = kept_over(sets)
        self._kept: dict[str, tuple[int, WorkerLink]] = {}

    def timed(self, candidate: Candidate, index: int) -> WorkerLink:
        """Return a process of the backend for set ``index``, not yet pinned to the measured cores.

        All backends of a set that are prepared anew come from the same server, those of the next set from
        another.
        """
        pinned = self._pool.options.allocator_pinned
        if candidate.plan.anew:
            return self._prepared(candidate, index)
        if candidate.plan.fresh:
            return candidate.prepared_worker.fork(timed=True, cpus=self._pool.all_cpus, pin_allocator=pinned)
        segment = index // self._segment
        kept = self._kept.get(candidate.name)
        if kept is None or kept[0] != segment:
            if kept is not None:
                kept[1].kill()
            self._kept[candidate.name] = kept = (segment, self._prepared(candidate, segment))
        return kept[1]

    def _prepared(self, candidate: Candidate, launch: int) -> WorkerLink:
        pool = self._pool
        link, _ = prepare_worker(
            pool, self._context, candidate.entry, pool.all_cpus,
            pin_allocator=pool.options.allocator_pinned, launch=launch,
        )  # fmt: skip
        return link

    def release(self, candidate: Candidate, link: WorkerLink) -> None:
        """The set is over."""
        if candidate.plan.fresh:
            link.pin(self._pool.all_cpus)
            link.kill()

    def close(self) -> None:
        """End what was kept."""
        for _, link in self._kept.values():
            link.kill()


class RepetitionUnderWay:
    """A repetition while it's measured. A backend that fails drops out of it, and of all that follow."""

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
        self._timeout_s = pool.options.timeout_s
        # The allocator as the system has it gives such memory back, and would learn other thresholds of it.
        self._warm_up = msgspec.structs.replace(WORKER_WARM_UP, reserve=pool.options.allocator_pinned)
        self._segments = segments
        self._places = draw_places(context, segments, refreshing=pool.options.refreshing)
        self._inputs: tuple[ArrayBlock, ...] = ()
        self._checking_s = 0.0
        # The verifier answers one at a time; what it takes is counted without the wait for it.
        self._judging = threading.Lock()
        self._candidates: dict[str, Candidate] = {}
        self._links: dict[str, WorkerLink] = {}
        self._warmup_ns: dict[str, list[int]] = {}
        self._blocks: dict[str, list[Block]] = {}
        self._failed: dict[str, Failure] = {}
        self._verified: dict[str, int] = {}

    def measure(self, candidates: list[Candidate]) -> SetLine:
        """Start a process of each backend, measure all segments, have outputs compared."""
        begun = perf_counter()
        with self._context.refreshed(self._places) as self._inputs:
            self._checking_s += perf_counter() - begun
            self._start(candidates)
            for number in range(self._segments):
                if number > 0:
                    begun = perf_counter()
                    self._refresh_inputs(number)
                    self._checking_s += perf_counter() - begun
                self._measure_segment(number)
            self._finish()
        return SetLine(
            case=self._context.case,
            index=self._index,
            draws=[place.draw for place in self._places],
            changes=[place.change for place in self._places],
            order=list(self._candidates),
            warmup_ns=self._warmup_ns,
            blocks={name: taken for name, taken in self._blocks.items() if name not in self._failed},
            verified=list(self._verified),
            verified_calls=self._verified,
            checking_s=self._checking_s,
            failed=self._failed,
        )

    @contextmanager
    def _dropping(self, name: str) -> Iterator[None]:
        try:
            yield
        except WorkerFailed as failure:
            self._failed[name] = Failure(failure.status, failure.reason, failure.check)

    def _start(self, candidates: list[Candidate]) -> None:
        """Start and warm up in random order, on all cores at once; then move to the measured ones."""
        order = self._rng.sample(candidates, len(candidates))
        self._candidates = {candidate.name: candidate for candidate in order}
        junk = [self._rng.randrange(LARGEST_JUNK_BYTES) for _ in order]

        for candidate, started in zip(order, self._pool.executor.map(self._ready, order, junk), strict=True):
            name = candidate.name
            with self._dropping(name):
                if isinstance(started, WorkerFailed):
                    raise started
                self._links[name], self._warmup_ns[name] = started
                self._blocks[name] = []
                self._links[name].pin(self._pool.measured_cpus(self._context.threads))
                self._links[name].put_first()

    def _ready(self, candidate: Candidate, junk_bytes: int) -> tuple[WorkerLink, list[int]] | WorkerFailed:
        """Start a process of a backend with its first inputs; return it with the trace of its warm-up."""
        link = None
        try:
            link = self._workers.timed(candidate, self._index)
            give_draw(link, self._inputs[0], self._timeout_s, fresh=True, junk_bytes=junk_bytes)
            warmed, _ = link.ask(self._warm_up, m.Warmed, self._timeout_s)
        except WorkerFailed as failure:
            if link is not None:
                self._workers.release(candidate, link)
            return failure
        return link, list(warmed.trace_ns)

    def _refresh_inputs(self, segment: int) -> None:
        """Other values in the same storage: what a backend remembers by address or by call is wrong now."""
        first = self._inputs[segment * len(self._inputs) // self._segments]
        told: list[str] = []
        for name, link in self._links.items():
            if name not in self._failed:
                with self._dropping(name):
                    link.tell(m.Activations(first.arrays), (first.fd,))
                    told.append(name)
        # All at once: each would have to be woken up otherwise before the next is told.
        for name in told:
            with self._dropping(name):
                self._links[name].hear(m.Activations, m.Done, self._timeout_s)

    def _measure_segment(self, number: int) -> None:
        """Measure all slots of a segment; once more without those that failed in it."""
        refreshed = self._inputs[2 * number + 1] if self._pool.options.refreshing else None
        while True:
            links = {name: link for name, link in self._links.items() if name not in self._failed}
            if not links:
                return
            plans = {name: self._candidates[name].plan for name in links}
            order = order_of_turns({name: plan.samples for name, plan in plans.items()}, self._rng)
            patience_s = self._timeout_s + _SLACK * sum(_segment_s(plan) for plan in plans.values())
            done = take_segment(number, order, links, plans, patience_s, refreshed)
            for name, block in done.blocks.items():
                self._blocks[name].append(block)
            if not done.failed:
                return
            for name, failure in done.failed.items():
                self._failed[name] = Failure(failure.status, failure.reason, failure.check)
            # Some have the segment's second inputs by now.
            self._refresh_inputs(number)

    def _finish(self) -> None:
        """Have outputs of timed calls compared, and let the processes go."""
        outcomes = dict(zip(self._links, self._pool.executor.map(self._let_go, self._links), strict=True))
        # Not before every process has been let go.
        for name, outcome in outcomes.items():
            if outcome is None:
                continue
            if isinstance(outcome, VerifierFailed):
                raise outcome
            if isinstance(outcome, Failure):
                self._failed[name] = outcome
            else:
                self._verified[name], in_turns_ns = outcome
                self._checking_s += in_turns_ns / 1e9

    def _let_go(self, name: str) -> tuple[int, int] | Failure | VerifierFailed | None:
        """End a process that has handed its outputs over, and have them judged; None if it had failed.

        It ends before the verifier begins, and so while that looks at another's: to end them takes as long.
        """
        link, handed = self._links[name], None
        try:
            if name not in self._failed:
                handed = link.ask(m.TimedOutputs(), m.Kept, self._timeout_s)
        except WorkerFailed as failure:
            return Failure(failure.status, failure.reason, failure.check)
        finally:
            self._workers.release(self._candidates[name], link)
        return self._verify(*handed) if handed else None

    def _verify(self, kept: m.Kept, fd: int) -> tuple[int, int] | Failure | VerifierFailed:
        """How many outputs of timed calls were compared, all of them right, and the ns of keeping them."""
        verifier = self._context.verifier
        try:
            if fd < 0 or (problem := missing(kept, self._segments, refreshing=self._pool.options.refreshing)):
                raise WorkerFailed("crashed", "answered without outputs" if fd < 0 else problem)
            with compared(verifier, fd), self._judging:
                begun = perf_counter()
                outputs = tuple(as_timed(output, self._places, self._segments) for output in kept.outputs)
                scored, _ = verifier.ask(rm.ScoreTimed(outputs), rm.Scored, fd)
                self._checking_s += perf_counter() - begun
        except WorkerFailed as failure:
            return Failure(failure.status, failure.reason, failure.check)
        except VerifierFailed as failure:
            return failure
        if scored.problem:
            reason = mismatch_words(kept.outputs[scored.place], scored, self._index)
            return Failure("mismatch", reason, scored.check)
        return len(kept.outputs), kept.checking_ns


def _segment_s(plan: CandidatePlan) -> float:
    """Return how long the slots of a backend in one segment take, judged by its warm-up."""
    call_s = median(plan.warmup_ms) / 1000 if plan.warmup_ms else 0.0
    return plan.samples * (plan.calls + plan.warm_calls) * call_s


def measure_peak(pool: WorkerPool, context: CaseContext, candidate: Candidate) -> int | None:
    """Peak extra bytes of one call, in a process of its own, its allocator left as the system has it."""
    cpus, timeout_s = pool.all_cpus, pool.options.timeout_s
    if candidate.plan.fresh:
        link = candidate.prepared_worker.fork(timed=True, cpus=cpus)
    else:
        link, _ = prepare_worker(pool, context, candidate.entry, cpus)
    try:
        give_draw(link, context.draws[context.check_draws], timeout_s, fresh=True)
        peak, _ = link.ask(m.MeasureMemory(), m.PeakMemory, timeout_s)
    finally:
        link.kill()
    return peak.bytes
