"""What is written down of contenders that passed the check: plans, or records where nothing is timed."""

from __future__ import annotations

from attnbench.cases.identity import case_id
from attnbench.plugins.registry import Registry
from attnbench.runner.examine import Examined
from attnbench.runner.forking import can_be_forked
from attnbench.runner.machine import sharing_note
from attnbench.runner.outcome import dropout_notes
from attnbench.runner.plan import Calls, plan_all, prepared_anew
from attnbench.runner.traced import kernel_of
from attnbench.runner.workshop import Workshop
from attnbench.types.case import Case
from attnbench.types.record import Contender, Record


def checked_record(case: Case, examined: Examined, registry: Registry) -> Record:
    """The record of a backend that passed, where nothing is timed."""
    ran = examined.ran
    return Record(
        case_id(case), case.rule, examined.name, "ok", accuracy=examined.accuracy, parts=examined.parts,
        notes=[*examined.notes, *ran.notes, *dropout_notes(case, examined.dropout)],
        ran=list(ran.ops), kernel_of=_kernel_of(registry, examined), dropout=examined.dropout,
    )  # fmt: skip


def _kernel_of(registry: Registry, examined: Examined) -> str:
    installed = (entry.record for entry in registry.backends.values())
    return kernel_of(examined.ran.ops, examined.entry.record, installed)


def plans(shop: Workshop, case: Case, registry: Registry, passed: list[Examined]) -> dict[str, Contender]:
    """How each contender of a case is going to be measured."""
    calls = plan_all({examined.name: examined.trace_ns for examined in passed}, shop.options)
    return {examined.name: _plan(shop, case, registry, examined, calls[examined.name]) for examined in passed}


def _plan(shop: Workshop, case: Case, registry: Registry, examined: Examined, calls: Calls) -> Contender:
    options, backend = shop.options, examined.entry.record
    fresh = can_be_forked(backend, case)
    shared = sharing_note(shop.all_cpus, case.threads)
    notes = [shared] if shared else []
    if not fresh:
        notes.append("can't be forked once prepared: restarted every few sets instead of for each")
    if calls.sets < options.sets:
        notes.append(f"slow: measured in {calls.sets} of {options.sets} sets")
    return Contender(
        calls=calls.calls,
        samples=calls.samples,
        warm_calls=calls.warm_calls,
        sets=calls.sets,
        accuracy=examined.accuracy,
        prepare_ms=examined.prepare_ns / 1e6,
        first_call_ms=examined.first_call_ns / 1e6,
        warmup_ms=[ns / 1e6 for ns in examined.trace_ns],
        fresh=fresh,
        # What is compared live must not stand on the luck of one template, however long preparing takes.
        anew=fresh
        and (bool(examined.entry.side) or prepared_anew(examined.prepare_ns, examined.first_call_ns)),
        ran=list(examined.ran.ops),
        kernel_of=_kernel_of(registry, examined),
        notes=[
            *notes,
            *examined.notes,
            *examined.ran.notes,
            *dropout_notes(case, examined.dropout),
        ],
        parts=examined.parts,
        dropout=examined.dropout,
    )
