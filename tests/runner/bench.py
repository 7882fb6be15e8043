"""Workers as a repetition has them, for tests of segments without the rest of a run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from run_parts import LESS_CHECKED, PLAIN

from attnbench.ipc import verifier_messages as rm
from attnbench.plugins.registry import load_registry
from attnbench.runner.check import give_draw
from attnbench.runner.context import CaseContext, open_context, prepare_worker
from attnbench.runner.handoff import Segment, take_segment
from attnbench.runner.pool import WorkerPool
from attnbench.runner.processes import WorkerLink
from attnbench.types.record import Accuracy, CandidatePlan

ENOUGH_S = 60.0
MEMORY_BYTES = 2 * 1024**3
_RIGHT = Accuracy(0, 0, 0, 0, 1, 1, 1, 1, 1)


def cpu_ns(pid: int) -> int:
    """What a process has had of all cores, with all its threads, by the system."""
    return time.clock_gettime_ns(~pid << 3 | 2)


def plan(samples: int, calls: int = 1, warm_calls: int = 0) -> CandidatePlan:
    return CandidatePlan(calls, samples, warm_calls, 1, _RIGHT, 0.0, 0.0, [0.1], fresh=True)


class Bench:
    """Prepared workers of backends, and forks of them on the measured core."""

    def __init__(self, pool: WorkerPool, context: CaseContext) -> None:
        self._pool, self._context = pool, context
        self._registry = load_registry()
        self._prepared: dict[str, WorkerLink] = {}

    @contextmanager
    def children(self, *names: str) -> Iterator[dict[str, WorkerLink]]:
        """A fork of each prepared worker, with inputs; ended afterwards, with every descriptor closed."""
        for name in names:
            self.prepared_worker(name)
        before = len(list(Path("/proc/self/fd").iterdir()))
        links = {name: self._child(name) for name in names}
        try:
            yield links
        finally:
            for link in links.values():
                link.kill()
        assert len(list(Path("/proc/self/fd").iterdir())) == before

    def _child(self, name: str) -> WorkerLink:
        timed = self.prepared_worker(name).fork(timed=True, cpus=self._pool.measured_cpus(1))
        give_draw(timed, self._context.draws[0], fresh=True)
        timed.put_first()
        return timed

    def kept(self, *names: str) -> dict[str, WorkerLink]:
        """The prepared workers themselves with inputs, for backends that cannot be forked."""
        links = {name: self.prepared_worker(name) for name in names}
        for link in links.values():
            give_draw(link, self._context.draws[0], fresh=True)
            link.pin(self._pool.measured_cpus(self._context.threads))
            link.put_first()
        return links

    def prepared_worker(self, name: str) -> WorkerLink:
        """The prepared worker of a backend, made once."""
        if name not in self._prepared:
            entry = self._registry.backends[name]
            self._prepared[name], _ = prepare_worker(self._pool, self._context, entry)
        return self._prepared[name]

    def close(self) -> None:
        for prepared_worker in self._prepared.values():
            prepared_worker.kill()


@contextmanager
def open_bench(pool: WorkerPool, case: str = PLAIN, threads: int = 1) -> Iterator[Bench]:
    """On a small case."""
    pool.start_servers(threads)
    source = load_registry().rules["dot"].source
    opening = rm.OpenCase(
        case, source, timed_entropy=1, timed_draws=2, oracle_flops=4e9, without=LESS_CHECKED
    )
    with ExitStack() as stack:
        verifier = stack.enter_context(pool.lent_verifier())
        context = stack.enter_context(open_context(verifier, opening, threads, MEMORY_BYTES))
        bench = Bench(pool, context)
        stack.callback(bench.close)
        yield bench


def take(
    order: Sequence[str],
    links: dict[str, WorkerLink],
    *,
    number: int = 0,
    calls: int = 1,
    warm_calls: int = 0,
    patience_s: float = ENOUGH_S,
) -> Segment:
    """Take a segment in this order."""
    turns = Counter(order)
    plans = {name: plan(turns[name], calls, warm_calls) for name in links}
    return take_segment(number, order, links, plans, patience_s)
