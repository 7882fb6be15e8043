"""The timed processes of a group of cases, as many as it takes for each to be fresh in every repetition."""

from __future__ import annotations

from attnbench.runner.check import Candidate
from attnbench.runner.context import CaseContext, prepare_worker
from attnbench.runner.pool import WorkerPool
from attnbench.runner.processes import WorkerLink
from attnbench.stats.protocol import kept_over


class TimedWorkers:
    """The timed processes of cases that are measured together.

    In each repetition a backend has one new process, which serves the cases one after the other, and ends.
    A backend that is slow to prepare has a fork of its prepared worker for each case instead; one that
    cannot be forked keeps a process over several repetitions.
    """

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._segment = kept_over(pool.options.sets)
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
            pinned = self._pool.options.allocator_pinned
            fork = candidate.prepared_worker.fork(timed=True, cpus=self._pool.all_cpus, pin_allocator=pinned)
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
            pin_allocator=self._pool.options.allocator_pinned,
            launch=launch,
            side=candidate.entry.side,
        )

    def release(self, candidate: Candidate, link: WorkerLink, *, failed: bool) -> None:
        """Take a process back after a case, and end it if no other case can have it."""
        if not candidate.plan.fresh:
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
