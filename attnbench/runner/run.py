"""A whole run: one case after another, each line written as soon as it is known, resumable at any line."""

from __future__ import annotations

import dataclasses
import datetime
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from attnbench import __version__
from attnbench.cases.ids import case_id, parse_case
from attnbench.inputs.draw import INPUTS_VERSION
from attnbench.plugins.calling import Raised, call, tell, traced
from attnbench.plugins.code import code_of, stamps
from attnbench.plugins.libraries import libraries
from attnbench.plugins.registry import Entry, Registry, encoding_source, storage_source
from attnbench.results.format import (
    RunWriter,
    StoredRun,
    check_new,
    new_run_path,
    part_of,
    read_runs,
    stored_manifest,
)
from attnbench.runner.case import CaseRun
from attnbench.runner.forecast import RunPlan, groups_of
from attnbench.runner.machine import allow_descriptors, check_threads, environment
from attnbench.runner.measure import run_cases
from attnbench.runner.options import options_of
from attnbench.runner.pool import ScaleMeter, WorkerPool
from attnbench.runner.processes import Interpreter
from attnbench.runner.progress import Clock, Progress
from attnbench.stats.verdict import repetitions_before_look
from attnbench.types.backend import Backend
from attnbench.types.case import Case
from attnbench.types.device import ATTACHED
from attnbench.types.errors import BadInput, Interrupted
from attnbench.types.extensions import EnvironmentFact, FactValue, Source
from attnbench.types.record import FORMAT_VERSION, EndLine, Manifest, PluginLine
from attnbench.types.rule import Rule
from attnbench.types.words import clean

_LARGEST = 2**63 - 1
"""The largest whole number in a run file."""

Unlike = Callable[[Manifest, Manifest], list[str]]
"""Returns what keeps the times of two runs from being compared, in words."""

_NEEDED = "a text, a finite number, true, false or None is needed"


def plugin_facts(entries: Iterable[Entry[EnvironmentFact]]) -> dict[str, dict[str, FactValue]]:
    """Read every fact, by distribution and name. One that fails is reported on stderr and left out."""
    found: dict[str, dict[str, FactValue]] = {}
    for entry in entries:
        fact, what = entry.record, f"{entry.source}: the fact {entry.record.name!r}"
        try:
            with traced(what):
                value = call(fact.read)
        except Raised as failure:
            tell(f"{what} raised {failure}; the run goes without it")
            continue
        if _is_fact(value):
            stated = clean(value) if isinstance(value, str) else value
            found.setdefault(entry.source.distribution, {})[fact.name] = stated
        else:
            tell(f"{what} gave {clean(value)}, where {_NEEDED}; the run goes without it")
    return found


def _is_fact(value: object) -> bool:
    # How a file would hold subclasses (numpy.float64, enumerations) is not defined.
    if type(value) is int:
        return abs(value) <= _LARGEST
    if type(value) is float:
        return isfinite(value)
    return value is None or type(value) in (bool, str)


def check_same_plugins(
    backends: Iterable[str], cases: Iterable[Case], manifest: Manifest, registry: Registry
) -> None:
    """Raise :class:`BadInput` if a run cannot go on with the code that it was begun with.

    Then a backend or rule is needed whose plugin is not loaded, or has another version.
    """
    what = "times" if manifest.protocol.get("timed", True) else "results"
    mixed = f"its {what} would mix two versions of the code; begin anew"
    begun = {(line.name, line.distribution): line for line in manifest.plugins}
    gone = begun.keys() - {(source.name, source.distribution) for source in registry.plugins}
    entries: list[Entry[Backend] | Entry[Rule] | None] = [
        *(registry.backends.get(name) for name in backends),
        *(registry.rules.get(case.rule) for case in cases),
    ]
    if None in entries and gone:
        names = sorted(f"{name} of {by} {begun[name, by].version}" for name, by in gone)
        raise BadInput(
            f"the run was begun with plugins that are not loaded here: {', '.join(names)}; "
            "install them, or give --plugin as then"
        )
    for source in (entry.source for entry in entries if entry is not None):
        was = begun.get((source.name, source.distribution))
        if was is None:
            continue
        if was.version != source.version:
            raise BadInput(
                f"the run was begun with {source.distribution} {was.version}, and here it is "
                f"{source.version}: {mixed}"
            )
        if was.code and was.code != code_of(source):
            raise BadInput(
                f"the run was begun with other code of {source.distribution} {source.version}, which was "
                f"changed since: {mixed}"
            )


@dataclass(frozen=True)
class RunSide:
    """A side of a live comparison: the interpreter of its code, and facts for the manifest."""

    interpreter: Interpreter
    facts: dict[str, Any] = field(default_factory=dict)


def start_run(
    plan: RunPlan,
    out: Path,
    progress: Progress | None = None,
    sides: Mapping[str, RunSide] | None = None,
) -> StoredRun:
    """Make a new run, and return the content of its file.

    out: a folder, or the run file itself if it ends in .jsonl. sides: of a live comparison, whose registry
    has each backend on each of them.

    Raises:
        BadInput: there is nothing to run, or the file cannot be made.
        MeasuringFailed: the machinery or the disk failed; what was measured before is in the file.
        Interrupted: by Ctrl-C; likewise.
    """
    check_plan(plan, out, resumable=not sides)
    sides = sides or {}
    interpreters = {name: side.interpreter for name, side in sides.items()}
    with closing(WorkerPool(plan.options, interpreters)) as pool:
        manifest = _manifest(plan, pool, sides)
        path = new_run_path(out, manifest.run_id)
        with RunWriter.create(path, manifest) as writer, _interruptible(writer, live=bool(sides)):
            _run_cases(plan, pool, writer, progress)
            return writer.run


def check_plan(plan: RunPlan, out: Path, *, resumable: bool = True) -> None:
    """Raise :class:`BadInput` if there is nothing to run, there are too few cores, or the file exists.

    resumable: whether the command could go on with that file.
    """
    if not plan.cases:
        raise BadInput("nothing to run: no cases" + (f" in shard {plan.shard}" if plan.shard else ""))
    if not plan.backends:
        raise BadInput("nothing to run: no backends")
    check_threads(max(case.threads for case in plan.cases))
    allow_descriptors()
    check_new(new_run_path(out, "a new run"), resumable=resumable)


def resume_run(
    path: Path, registry: Registry, progress: Progress | None, unlike: Unlike, *, force: bool = False
) -> list[StoredRun]:
    """Go on with a run that was cut off, by its own manifest, and return the runs of its file.

    unlike: returns what keeps times of two runs from being compared. force: where there is any of it, measure
    the cases that lack records as a run of their own, behind the first in the file.

    Raises:
        BadFile, BadInput: the file cannot be read or written, a plugin is missing or has changed, or this
            machine or its software is not that of the run.
        MeasuringFailed, Interrupted: as in :func:`start_run`.
    """
    writer, runs = RunWriter.reopen(path)
    stored = runs[-1]
    manifest = stored.manifest
    with writer, _interruptible(writer):
        if manifest.sides:
            raise BadInput(f"{str(path)!r} is a live comparison, which can't be resumed: compare again")
        if stored.finished is not None:
            # Nothing is left to measure, so its plugins are not needed.
            return runs
        cases = tuple(parse_case(text) for text in manifest.cases)
        check_same_plugins(manifest.backends, cases, manifest, registry)
        for name in manifest.backends:
            registry.backend(name)
        for case in cases:
            registry.rule(case.rule)
        plan = RunPlan(
            cases=cases,
            backends=tuple(manifest.backends),
            registry=registry,
            options=options_of(manifest.protocol),
            named=tuple(manifest.named),
            compiled_on=None if manifest.compiled_on is None else frozenset(manifest.compiled_on),
            command=tuple(manifest.command),
        )
        if plan.options.baseline:
            registry.backend(plan.options.baseline)
        check_threads(max(case.threads for case in plan.cases))
        allow_descriptors()
        with closing(WorkerPool(plan.options)) as pool:
            for line in stored.cases:
                for name, begun in line.candidates.items():
                    pool.go_on_with(f" {registry.backends[name].source.module}", begun.code)
            here = stored_manifest(_manifest(plan, pool, {}))
            left = [case for case, backends in stored.recorded.items() if backends != set(manifest.backends)]
            found = unlike(manifest, here)
            if manifest.inputs != here.inputs:
                found.append(f"inputs (version {manifest.inputs}, then {here.inputs})")
            if left and found:
                _check_elsewhere(manifest, here, found, force=force)
                writer.begin_behind(
                    replace(
                        here,
                        cases=left,
                        counts={case: count for case, count in manifest.counts.items() if case in left},
                        shard=part_of(manifest),
                        continues=manifest.run_id,
                        unlike=found,
                        not_asked=manifest.not_asked,
                    )
                )
                plan = dataclasses.replace(plan, cases=tuple(map(parse_case, left)))
            _run_cases(plan, pool, writer, progress)
        return read_runs(writer.path, samples=False)


def _check_elsewhere(begun: Manifest, here: Manifest, unlike: Sequence[str], *, force: bool) -> None:
    """Raise :class:`BadInput` if a run must not go on here, where ``unlike`` differs."""
    words = f"the run was begun under other conditions: {', '.join(unlike)}"
    for device in ATTACHED:
        needed = any(parse_case(case).device == device.name for case in begun.cases)
        had, has = begun.environment.get(device.names_fact), here.environment.get(device.names_fact)
        if needed and had and not has:
            raise BadInput(f"{words}; its cases need a {device.title}: go on where there is one")
    if not force:
        raise BadInput(
            f"{words}; go on where they are the same, or measure the cases that are left as a part of their "
            "own, with --force"
        )
    print(f"attnbench: {words}; the cases that are left become a part of their own", file=sys.stderr)  # noqa: T201


@contextmanager
def _interruptible(writer: RunWriter, *, live: bool = False) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as stop:
        writer.keep_file()
        raise Interrupted(writer.path, live=live) from stop


def _run_cases(plan: RunPlan, pool: WorkerPool, writer: RunWriter, progress: Progress | None) -> None:
    """Run the cases that lack a record, and go on with what is stored of them."""
    before = writer.run
    recorded = before.recorded
    cases = {case_id(case): case for case in plan.cases}
    left = [each for each in plan.forecast.cases if recorded[each.case] != set(plan.backends)]
    groups = groups_of(left, cases, plan.options.repetitions)
    look = repetitions_before_look(plan.forecast.cells // 2) if pool.live else 0
    clock = Clock(progress, [{each.case: each.total_s for each in group} for group in groups], list(cases))
    clock.spend("start")
    scale = ScaleMeter(pool)

    backends = plan.registry.backends
    compiling = [name for name, entry in backends.items() if entry.record.compiles]

    def case_run(name: str) -> CaseRun:
        return CaseRun(
            pool=pool,
            scale=scale,
            registry=plan.registry,
            case=cases[name],
            names=plan.names(name),
            left_out=plan.left_out(name),
            clock=clock,
            write=writer.append,
            look=look,
            planned=next((line for line in before.cases if line.case == name), None),
            repetitions=[line for line in before.repetitions if line.case == name],
            recorded=recorded[name],
        )

    try:
        for group in groups:
            clock.begin_group()
            run_cases([case_run(each.case) for each in group])
            stored = writer.run
            for each in group:
                clock.finish(each.case, stored, compiling)
            clock.spend("other")
    finally:
        scale.close()
    if all(record.status != "interrupted" for record in writer.run.records):
        writer.append(EndLine(_now(), clock.elapsed_s, clock.phases_s, list(os.getloadavg())))


def _manifest(plan: RunPlan, pool: WorkerPool, sides: Mapping[str, RunSide]) -> Manifest:
    started = _now()
    stamp = started.replace("-", "").replace(":", "")[:15]
    facts = plugin_facts(plan.registry.environment_facts.values())
    machine = environment()
    needed = {name: found for name, found in _libraries(plan).items() if name not in machine["libraries"]}
    return Manifest(
        format=FORMAT_VERSION,
        run_id=f"{stamp}-{secrets.token_hex(4)}",
        started=started,
        attnbench=__version__,
        command=list(plan.command),
        cases=[case_id(case) for case in plan.cases],
        backends=list(plan.backends),
        named=list(plan.named),
        compiled_on=None if plan.compiled_on is None else sorted(plan.compiled_on),
        counts=dict(plan.counts),
        stages=dict(plan.stages),
        without=list(plan.without),
        share=plan.share,
        shard=plan.shard,
        protocol=plan.options.protocol(),
        plugins=[_plugin_line(source, pool) for source in plan.registry.plugins],
        environment=machine
        | ({"plugin_facts": facts} if facts else {})
        | ({"plugin_libraries": needed} if needed else {})
        | {
            "torch": pool.torch.torch,
            "torch_flags": pool.torch.flags,
        }
        | pool.torch.card_facts(),
        sides={name: side.facts for name, side in sides.items()},
        inputs=INPUTS_VERSION,
        not_asked=list(plan.not_asked),
    )


def _plugin_line(source: Source, pool: WorkerPool) -> PluginLine:
    """Return the line of a plugin. Workers must then have its modules as they were before its digest."""
    pool.same_code(f" {source.module}", stamps([source], beside=False))
    return PluginLine(source.name, source.distribution, source.version, code_of(source))


def _libraries(plan: RunPlan) -> dict[str, str]:
    """Return the libraries that the plugins of a plan's backends, rules and operations need, by name."""
    registry = plan.registry
    backends = [registry.backends[name] for name in plan.backends]
    sources = [
        *(entry.source for entry in backends),
        *(registry.rules[case.rule].source for case in plan.cases),
        *(registry.operations[case.operation].source for case in plan.cases),
        *filter(None, (storage_source(registry, case) for case in plan.cases)),
        *filter(None, (encoding_source(registry, case) for case in plan.cases)),
    ]
    return libraries(
        {source.distribution for source in sources} - {"attnbench"},
        {module for entry in backends for module in entry.record.requires},
    )


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
