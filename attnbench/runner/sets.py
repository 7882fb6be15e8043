"""One set: a fresh process of every contender, rounds of one block each in balanced random order."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from attnbench.runner.brief import Brief
from attnbench.runner.examine import Examined, give_draw, prepare_template, score_output
from attnbench.runner.link import WorkerFailed, WorkerLink
from attnbench.runner.schedule import balanced_orders
from attnbench.runner.workshop import Workshop
from attnbench.types.record import Block, Contender, Failure, SetLine
from attnbench.worker import messages as m

LARGEST_JUNK_BYTES = 64 * 1024
LONG_WORKERS = 3
"""How many times a contender that can't be forked is started anew over a case."""

_CHILD_WARM_UP = m.WarmUp(most_calls=8, most_s=0.02)


@dataclass(frozen=True)
class Entrant:
    """A contender with its plan."""

    examined: Examined
    plan: Contender


class Stable:
    """Where children come from: forked fresh for each set, or kept over several sets where that is unsafe."""

    def __init__(self, shop: Workshop, brief: Brief, sets: int) -> None:
        self._shop = shop
        self._brief = brief
        self._stretch = max(1, -(-sets // LONG_WORKERS))
        self._kept: dict[str, tuple[int, WorkerLink]] = {}

    def child(self, entrant: Entrant, index: int) -> WorkerLink:
        """A process of the contender for set ``index``, not yet pinned to the measured cores."""
        examined, cpus = entrant.examined, self._shop.all_cpus
        if entrant.plan.fresh:
            return examined.template.fork(child=True, cpus=cpus, pin_allocator=True)
        stretch = index // self._stretch
        kept = self._kept.get(examined.name)
        if kept is None or kept[0] != stretch:
            if kept is not None:
                kept[1].kill()
            link, _ = prepare_template(self._shop, self._brief, examined.entry, cpus)
            self._kept[examined.name] = kept = (stretch, link)
        return kept[1]

    def release(self, entrant: Entrant, link: WorkerLink) -> None:
        """The set is over."""
        if entrant.plan.fresh:
            link.pin(self._shop.all_cpus)
            link.kill()

    def close(self) -> None:
        """End what was kept."""
        for _, link in self._kept.values():
            link.kill()


def measure_set(
    shop: Workshop,
    brief: Brief,
    stable: Stable,
    entrants: list[Entrant],
    rounds: int,
    index: int,
    rng: Random,
) -> SetLine:
    """Measure one set; a contender that fails drops out of it and of all that follow."""
    timeout_s = shop.options.timeout_s
    draw = brief.timed_draw(index)
    order = rng.sample(entrants, len(entrants))
    links: dict[str, WorkerLink] = {}
    failed: dict[str, Failure] = {}
    warmup_ns: dict[str, list[int]] = {}
    blocks: dict[str, list[Block]] = {}
    verified: list[str] = []
    by_name = {entrant.examined.name: entrant for entrant in entrants}
    junk = [rng.randrange(LARGEST_JUNK_BYTES) for _ in order]

    def start(entrant: Entrant, junk_bytes: int) -> WorkerLink | WorkerFailed:
        try:
            link = stable.child(entrant, index)
            give_draw(link, brief, draw, timeout_s, junk_bytes)
        except WorkerFailed as failure:
            return failure
        return link

    for entrant, started in zip(order, shop.pool.map(start, order, junk), strict=True):
        name = entrant.examined.name
        try:
            if isinstance(started, WorkerFailed):
                raise started
            links[name] = started
            started.pin(shop.measured_cpus(brief.threads))
            warmed, _ = started.ask(_CHILD_WARM_UP, m.Warmed, timeout_s)
            warmup_ns[name] = list(warmed.trace_ns)
            blocks[name] = []
        except WorkerFailed as failure:
            failed[name] = Failure(failure.status, failure.reason)
    for number, names in enumerate(balanced_orders(list(links), rounds, rng)):
        for position, name in enumerate(names):
            if name in failed:
                continue
            plan = by_name[name].plan
            request = m.Measure(number, position, plan.calls, plan.samples, plan.warm_calls)
            try:
                measured, _ = links[name].ask(request, m.Measured, timeout_s)
                blocks[name].append(measured.block)
            except WorkerFailed as failure:
                failed[name] = Failure(failure.status, failure.reason)

    def finish(name: str) -> Failure | None:
        """Have the last timed output compared; gives what is wrong with it."""
        try:
            problem, _ = score_output(links[name], shop.referee, m.LastOutput(), name, draw, timeout_s)
        except WorkerFailed as failure:
            return Failure(failure.status, failure.reason)
        finally:
            stable.release(by_name[name], links[name])
        return Failure("mismatch", f"in the output of a timed call: {problem}") if problem else None

    measured_whole = [name for name in links if name not in failed]
    for name, outcome in zip(measured_whole, shop.pool.map(finish, measured_whole), strict=True):
        if outcome is not None:
            failed[name] = outcome
        else:
            verified.append(name)
    for name in failed.keys() & links.keys():
        stable.release(by_name[name], links[name])
    kept = {name: taken for name, taken in blocks.items() if name not in failed}
    return SetLine(
        case=brief.case,
        index=index,
        draw=draw,
        order=[entrant.examined.name for entrant in order],
        warmup_ns=warmup_ns,
        blocks=kept,
        verified=verified,
        failed=failed,
    )


def measure_peak(shop: Workshop, brief: Brief, entrant: Entrant) -> int | None:
    """Peak extra bytes of one call, in a process of its own, its allocator left as the system has it."""
    cpus, timeout_s = shop.all_cpus, shop.options.timeout_s
    if entrant.plan.fresh:
        link = entrant.examined.template.fork(child=True, cpus=cpus)
    else:
        link, _ = prepare_template(shop, brief, entrant.examined.entry, cpus)
    try:
        give_draw(link, brief, brief.check_draws, timeout_s)
        peak, _ = link.ask(m.MeasureMemory(), m.PeakMemory, timeout_s)
    finally:
        link.kill()
    return peak.bytes
