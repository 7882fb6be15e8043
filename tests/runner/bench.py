"""Children of contenders as a set has them, for tests of stretches without the rest of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from run_parts import LESS_CHECKED, PLAIN

from attnbench.ipc import verifier_messages as rm
from attnbench.plugins.registry import load_registry
from attnbench.runner.check import give_draw
from attnbench.runner.context import Brief, open_brief
from attnbench.runner.examine import prepare_template
from attnbench.runner.handoff import Stretch, take_stretch
from attnbench.runner.link import WorkerLink
from attnbench.runner.pool import Workshop
from attnbench.types.record import Accuracy, CandidatePlan

ENOUGH_S = 60.0
MEMORY_BYTES = 2 * 1024**3
_RIGHT = Accuracy(0, 0, 0, 0, 1, 1, 1, 1, 1)


def plan(samples: int, calls: int = 1, warm_calls: int = 0) -> CandidatePlan:
    return CandidatePlan(calls, samples, warm_calls, 1, _RIGHT, 0.0, 0.0, [0.1], fresh=True)


class Bench:
    """Templates of backends, and children of them on the measured core."""

    def __init__(self, shop: Workshop, brief: Brief) -> None:
        self._shop, self._brief = shop, brief
        self._registry = load_registry()
        self._templates: dict[str, WorkerLink] = {}

    def children(self, *names: str) -> dict[str, WorkerLink]:
        """A child of each, with inputs."""
        return {name: self._child(name) for name in names}

    def _child(self, name: str) -> WorkerLink:
        child = self.template(name).fork(child=True, cpus=self._shop.measured_cpus(1))
        give_draw(child, self._brief.draws[0], ENOUGH_S, fresh=True)
        child.put_first()
        return child

    def kept(self, *names: str) -> dict[str, WorkerLink]:
        """The templates themselves with inputs, for what can't be forked."""
        links = {name: self.template(name) for name in names}
        for link in links.values():
            give_draw(link, self._brief.draws[0], ENOUGH_S, fresh=True)
            link.pin(self._shop.measured_cpus(self._brief.threads))
            link.put_first()
        return links

    def template(self, name: str) -> WorkerLink:
        """The template of a backend, made once."""
        if name not in self._templates:
            entry = self._registry.backends[name]
            self._templates[name], _ = prepare_template(self._shop, self._brief, entry, self._shop.all_cpus)
        return self._templates[name]

    def close(self) -> None:
        for template in self._templates.values():
            template.kill()


@contextmanager
def open_bench(shop: Workshop, case: str = PLAIN, threads: int = 1) -> Iterator[Bench]:
    """On a small case."""
    shop.start_servers(threads)
    source = load_registry().rules["dot"].source
    opening = rm.OpenCase(
        case, source, timed_entropy=1, timed_draws=2, oracle_flops=4e9, without=LESS_CHECKED
    )
    with ExitStack() as stack:
        brief = stack.enter_context(open_brief(shop.verifier, opening, threads, MEMORY_BYTES))
        bench = Bench(shop, brief)
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
) -> Stretch:
    """A stretch in this order."""
    turns = Counter(order)
    plans = {name: plan(turns[name], calls, warm_calls) for name in links}
    return take_stretch(number, order, links, plans, patience_s)
