"""The copies through which the inputs of a case rotate, in memory that all of its workers share.

A round through a pool leaves nothing of its beginning in the caches, whoever read it. So the workers of a
case share one pool and one order: the parent deals each slot the next stretch of it. A copy then comes again
only after all others, though other backends have read those.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from attnbench.cases.ids import parse_case
from attnbench.cases.layouts import taken_layout
from attnbench.ipc import messages as m
from attnbench.ipc.shared_memory import anonymous_file
from attnbench.runner.context import CaseContext
from attnbench.runner.pool import WorkerPool
from attnbench.timing.warmup import BEFORE_SLOTS
from attnbench.types.backend import Backend, Layout
from attnbench.types.case import Case
from attnbench.types.record import CandidatePlan


@dataclass
class InputPools:
    """A pool for each layout in which backends take the inputs of a case, and the next place in its order.

    A backend that converts inputs has copies of its own, since nothing is known of their form.
    """

    case: Case
    files: Mapping[Layout, int]
    _next: dict[Layout, int] = field(default_factory=dict)

    def file(self, backend: Backend) -> int | None:
        """Return the descriptor of the pool that a backend shares; None if it has its own."""
        return None if backend.converts else self.files[taken_layout(self.case, backend)]

    def deal_warm_up(self) -> int:
        """Return where the warm-ups of a repetition begin. They run together, and the slots go on behind
        them."""
        begin = max(self._next.values(), default=0)
        self._next = dict.fromkeys(self.files, begin + BEFORE_SLOTS.most_calls + 1)
        return begin

    def deal(
        self, order: Sequence[str], backends: Mapping[str, Backend], plans: Mapping[str, CandidatePlan]
    ) -> dict[str, list[int]]:
        """Return for each worker where each of its slots begins in the order of its pool.

        order: the names of workers, by slot.
        """
        starts: dict[str, list[int]] = {name: [] for name in backends if not backends[name].converts}
        for name in order:
            if name in starts:
                layout = taken_layout(self.case, backends[name])
                starts[name].append(self._next[layout])
                self._next[layout] += plans[name].calls + plans[name].warm_calls
        return starts


@contextmanager
def filled_pools(pool: WorkerPool, context: CaseContext, backends: Iterable[Backend]) -> Iterator[InputPools]:
    """Fill the pools of a case with its first draw for timed calls, and free them at the end.

    A process without a plugin fills them.

    Raises:
        WorkerFailed: it failed, as where memory is short.
    """
    case, opening = parse_case(context.case), context.opening
    layouts = dict.fromkeys(taken_layout(case, backend) for backend in backends if not backend.converts)
    files = {layout: anonymous_file() for layout in layouts}
    draw = context.draws[context.pooled_draw]
    try:
        if files:
            worker = pool.new_worker(context.threads, pool.all_cpus)
            try:
                for layout, file in files.items():
                    request = m.FillPool(
                        case=context.case,
                        layout=layout,
                        arrays=draw.arrays,
                        operation_source=opening.operation_source,
                        storage_source=opening.storage_source,
                        encoding_source=opening.encoding_source,
                    )
                    worker.ask(request, m.Done, fds=(file, draw.fd))
            finally:
                worker.kill()
        yield InputPools(case, files)
    finally:
        for file in files.values():
            os.close(file)
