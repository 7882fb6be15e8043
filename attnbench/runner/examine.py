"""Before anything is timed: prepare every candidate of a case, check it, trace a call, warm up."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field

from attnbench.cases.ids import parse_case
from attnbench.check.reference import counts_in_turn
from attnbench.ipc import messages as m
from attnbench.ipc import verifier_messages as rm
from attnbench.ipc.names import PLAIN
from attnbench.plugins.registry import Entry
from attnbench.runner.check import check_draw, check_draws, compared, give_checked, give_draw, score_output
from attnbench.runner.context import Brief
from attnbench.runner.link import VerifierLink, WorkerFailed, WorkerLink
from attnbench.runner.pool import Workshop
from attnbench.stats.protocol import can_be_forked
from attnbench.types.backend import Backend
from attnbench.types.operation import operation_of
from attnbench.types.record import Accuracy, DropoutNumbers
from attnbench.types.words import clean

_COUNT = re.compile(r" x\d+$")


@dataclass(frozen=True)
class Ran:
    """What one call ran, names with counts in order (``bmm x2``). notes: what could not be told, and why."""

    ops: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def trace_call(link: WorkerLink, timeout_s: float) -> Ran:
    """Have a prepared worker that has inputs tell what one call runs; where it can't, a note says why.

    The worker is to be timed no more: it may be gone then.
    """
    try:
        traced, _ = link.ask(m.TraceCall(), m.Traced, timeout_s)
    except WorkerFailed as failure:
        return Ran(notes=(clean(f"what ran is not known: {failure.reason}"),))
    return Ran(tuple(clean(text) for text in traced.ran), (clean(traced.problem),) if traced.problem else ())


def kernel_of(ran: Sequence[str], backend: Backend, others: Iterable[Backend]) -> str:
    """The name of the other backend whose kernel is among what ran; "" where there is none.

    A mark that the backend declares too is its own. Of several the one that ran first.
    """
    owners = {mark: other.name for other in others if other.name != backend.name for mark in other.marks}
    names = (_COUNT.sub("", text) for text in ran)
    return next((owners[name] for name in names if name in owners and name not in backend.marks), "")


@dataclass(frozen=True)
class Examined:
    """A contender that passed, its template ready to be forked.

    accuracy: of the output, or of the worst gradient; parts: of each part of the answer, where there are
    several; dropout: in a case with it, instead of both. notes: what preparation changed, in words.
    """

    name: str
    entry: Entry[Backend]
    template: WorkerLink
    prepare_ns: int
    first_call_ns: int
    trace_ns: tuple[int, ...]
    accuracy: Accuracy | None
    ran: Ran
    parts: dict[str, Accuracy] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    dropout: DropoutNumbers | None = None


def prepare_template(
    shop: Workshop,
    brief: Brief,
    entry: Entry[Backend] | None,
    cpus: tuple[int, ...],
    *,
    pin_allocator: bool = False,
    launch: int = 0,
) -> tuple[WorkerLink, m.Prepared]:
    """A new template with a backend (None: the plain reference) prepared; gives it and what it told.

    launch: which of the servers it comes from.

    Raises:
        WorkerFailed: it could not be prepared; the template is gone.
    """
    known = (
        [brief.rule_source] if brief.operation_source is None else [brief.operation_source, brief.rule_source]
    )
    sources = (*known,) if entry is None else (*known, entry.source)
    side = "" if entry is None else entry.side
    template = shop.new_template(
        brief.threads, cpus, sources, pin_allocator=pin_allocator, launch=launch, side=side
    )
    request = m.Prepare(
        case=brief.case,
        backend=PLAIN if entry is None else entry.record.name,
        backend_source=None if entry is None else entry.source,
        rule_source=brief.rule_source,
        parameters=brief.parameters.arrays,
        operation_source=brief.operation_source,
        memory_limit_bytes=None if entry is None else brief.memory_limit_bytes,
    )
    try:
        prepared, _ = template.ask(request, m.Prepared, shop.options.timeout_s, (brief.parameters.fd,))
    except WorkerFailed:
        template.kill()
        raise
    return template, prepared


def examine_plain(shop: Workshop, brief: Brief) -> None:
    """Compute the plain reference on every draw, so that the verifier knows the error of the dtype.

    Raises:
        WorkerFailed: it could not be computed: nothing can be judged on this case.
    """
    case = parse_case(brief.case)
    if operation_of(case).reference is None:
        return
    template, _ = prepare_template(shop, brief, None, shop.all_cpus)
    try:
        for index in range(len(brief.draws)):
            give_draw(template, brief.draws[index], shop.options.timeout_s)
            if case.pass_ != "forward":
                _expect(template, brief.verifier, index, shop.options.timeout_s)
            score_output(template, brief.verifier, PLAIN, index, shop.options.timeout_s)
            if counts_in_turn(case, brief.family(index)):
                for backwards in (False, True):
                    turn = m.ComputeInTurn(backwards)
                    score_output(template, brief.verifier, PLAIN, index, shop.options.timeout_s, turn)
    finally:
        template.kill()


def _expect(link: WorkerLink, verifier: VerifierLink, index: int, timeout_s: float) -> None:
    """Have the verifier know the exact gradients on the inputs that the plain reference holds."""
    gradients, fd = link.ask(m.ExactGradients(), m.Output, timeout_s)
    with compared(verifier, fd):
        verifier.ask(rm.Expect(index, gradients.parts), rm.Scored, fd)


def examine(shop: Workshop, brief: Brief, entry: Entry[Backend]) -> Examined:
    """Prepare one contender, have all its outputs judged, and warm it up.

    The template makes one call, so that what is made at the first is there; the rest of the check goes on in
    a fork of it, where it can be forked: children begin with a template that has had no more past than that.

    Raises:
        WorkerFailed: with the status and reason of its record; its template is gone.
    """
    template, prepared = prepare_template(shop, brief, entry, shop.all_cpus)
    try:
        first_ns = check_draw(shop, brief, template, entry.name, 0)
        if not can_be_forked(entry.record, parse_case(brief.case)):
            judged, trace, ran = _examine_rest(shop, brief, template, entry)
        else:
            fork = template.fork(child=True, cpus=shop.all_cpus)
            try:
                judged, trace, ran = _examine_rest(shop, brief, fork, entry)
            finally:
                fork.kill()
    except BaseException:
        template.kill()
        raise
    return Examined(
        name=entry.name,
        entry=entry,
        template=template,
        prepare_ns=prepared.ns,
        first_call_ns=first_ns,
        trace_ns=trace,
        accuracy=judged.accuracy,
        parts=judged.parts,
        ran=ran,
        notes=prepared.notes,
        dropout=judged.dropout,
    )


def _examine_rest(
    shop: Workshop, brief: Brief, link: WorkerLink, entry: Entry[Backend]
) -> tuple[rm.Judged, tuple[int, ...], Ran]:
    """All draws but the first, the verdict, the warm-up's trace where there will be timing, what ran."""
    # Where nothing will be timed, the secret draws are part of the check.
    draws = brief.check_draws if shop.options.timed else len(brief.draws)
    judged = check_draws(shop, brief, link, entry, range(1, draws))
    if not shop.options.timed:
        return judged, (), trace_call(link, shop.options.timeout_s)
    # The last of the check may have arrived in another way than those that are timed.
    give_checked(shop, brief, link, 0)
    warmed, _ = link.ask(m.WarmUp(), m.Warmed, shop.options.timeout_s)
    # Last: what is traced is timed no more.
    return judged, warmed.trace_ns, trace_call(link, shop.options.timeout_s)


def examine_all(
    shop: Workshop,
    brief: Brief,
    entries: list[Entry[Backend]],
    failed: Callable[[str, WorkerFailed], None],
    begun: Callable[[str], None],
) -> list[Examined]:
    """Examine contenders, as many at once as there are cores, those that compile first.

    ``failed`` is called for each that drops out, from this thread, in the given order; ``begun`` from
    the examining threads. Gives those that passed in the given order.
    """

    def one(entry: Entry[Backend]) -> Examined | WorkerFailed:
        begun(entry.name)
        try:
            return examine(shop, brief, entry)
        except WorkerFailed as failure:
            return failure

    slow_first = sorted(entries, key=lambda entry: not entry.record.compiles)
    futures = {entry.name: shop.pool.submit(one, entry) for entry in slow_first}
    # All of them before any failure is raised: what they use is closed by whoever catches it.
    wait(futures.values())
    outcomes = {name: future.result() for name, future in futures.items() if not future.exception()}
    broken = [failure for future in futures.values() if (failure := future.exception()) is not None]
    if broken:
        for outcome in outcomes.values():
            if isinstance(outcome, Examined):
                outcome.template.kill()
        raise broken[0]
    passed: list[Examined] = []
    for entry in entries:
        outcome = outcomes[entry.name]
        if isinstance(outcome, Examined):
            passed.append(outcome)
        else:
            failed(entry.name, outcome)
    return passed
