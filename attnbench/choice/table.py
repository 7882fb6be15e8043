"""The decision table: which backend is proved to be faster than torch's own function, in which cases."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import ceil
from pathlib import Path
from typing import Any

import msgspec

from attnbench.cases.ids import case_id, parse_case
from attnbench.cases.work import human_bytes
from attnbench.compare.environment import changed
from attnbench.plugins.registry import Registry
from attnbench.reports.run import Run
from attnbench.reports.units import duration
from attnbench.results.read import facts_of
from attnbench.results.targets import FileKind
from attnbench.stats.answer import by_repetition, by_stage, extra_bytes, over_another, rivals_of, saved
from attnbench.stats.tests import Interval, ends
from attnbench.timing.cards import card_names
from attnbench.types.case import Case
from attnbench.types.device import (
    ATTACHED,
    DEVICES,
    UNKNOWN,
    device_kind,
    device_of,
    kind_of_device,
    may_be_one,
)
from attnbench.types.encoding import is_encoded
from attnbench.types.errors import BadFile, BadInput
from attnbench.types.files import parse_toml, read_text
from attnbench.types.record import Manifest, Record
from attnbench.types.status import status_words
from attnbench.types.words import first_of, printable_json, without_home

TABLE = FileKind("a table of choices", b"# Written by attnbench choose, for attnbench.choice.load.")
_MOST_TIES = 3
"""So many backends of a tie are named."""
LEAST_SAVED_MS = 0.1
"""A backend that saves less of a call isn't chosen. Between two calls a program does other work, which takes
their code out of the caches: ``python tests/benchmarks/dispatch.py`` measures what that costs a call through
a choice: the lookup, and the several functions of torch that a backend calls where torch's own is one.
"""
_SLOW_FIRST_MS = 300.0
"""A first call that takes less is not counted."""
_NEAR = 1.1
"""A backend that takes at most so many times as long as the fastest is chosen to serve lengths between."""
MUCH_COARSER = 2.0
"""A choice whose error is so many times that of torch's function says so."""
_LEAST_SAVED = f"the {LEAST_SAVED_MS:g} ms that a choice may cost a call"


class Choice(msgspec.Struct, frozen=True):
    """A backend for a case.

    upto: the greatest length for which it holds as well: lengths of the same kind of case (one query, or as
    many queries as keys) were measured in between, and all chose alike. gain: the time of torch's function
    over the backend's, with its interval; of several lengths the least.
    """

    case: str
    backend: str
    gain: float
    low: float
    high: float
    upto: int = 0


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A choice file.

    default: the backend that stood for torch's function. facts: the kinds of device, by ``cpu`` and ``cuda``,
    and the version of torch, as in the runs; plugins too. threads: the numbers of threads that were measured,
    also where nothing was proved; older files have none. stays: the measured cases in which torch's function
    stays.
    """

    attnbench: str
    runs: list[str]
    default: str
    facts: dict[str, Any]
    plugins: dict[str, str]
    choices: list[Choice] = []
    threads: list[int] = []
    stays: list[str] = []


@dataclass(frozen=True)
class Decision:
    """The verdict of a case's records.

    choice: None if torch's function stays; why: in words. may_be: the backend that may be faster, by more
    than a choice costs, where that is not proved; else "". settled: whether a longer run can't change it.
    most_ms: what a call may gain at most by what is not proved. kept: whether it was faster with memory that
    workers keep, so that a run with --allocator default decides. errors: the RMS error of the choice over
    that of torch's function; None where it isn't known. first_ms: what its preparation and first call took;
    saved_ms: what each call saves. also: the decisions for backends that are proved too, and may be as fast
    as the choice, or nearly.
    """

    case: str
    choice: Choice | None
    why: str
    may_be: str = ""
    settled: bool = False
    most_ms: float = 0.0
    kept: bool = False
    errors: float | None = None
    first_ms: float = 0.0
    saved_ms: float = 0.0
    also: tuple[Decision, ...] = ()


def decide(run: Run, registry: Registry, default: str, calls: int) -> list[Decision]:
    """Decide for each case of the runs; of one that several runs have the newest counts.

    Of backends that may be as fast, or nearly, neighbouring lengths get the same, which then serves those
    between. calls: as many of a case as a process makes at least; what compiles has to pay in so many.

    Raises:
        BadInput: the runs are of different machines or versions, or compare two sides.
    """
    check_alike(run)
    found: dict[str, Decision] = {}
    runs = zip(run.manifests, run.by_file, run.times, strict=True)
    for head, records, taken in sorted(runs, key=lambda one: one[0].started):
        by_case, kept = by_repetition(taken), bool(head.protocol.get("allocator_pinned", True))
        cases: dict[str, list[Record]] = {}
        for record in records:
            cases.setdefault(record.case, []).append(record)
        for case, those in cases.items():
            found[case] = _decision(case, those, by_case.get(case, {}), registry, default, kept, calls)
    # Of both, what was measured with cold inputs is nearer to a program.
    found = {case: one for case, one in found.items() if _cold(case) == case or _cold(case) not in found}
    agreed = {one.case: one for row in _rows(found.values()) for one in _agreed(row)}
    return [agreed[case] for case in found]


def _cold(case: str) -> str:
    """Return the id of a case whose inputs come from memory."""
    return case_id(replace(parse_case(case), cache="rotating"))


def check_timed(run: Run, default: str) -> None:
    """Raise :class:`BadInput` if no case has a time of the default, so that nothing can be chosen."""
    records = [record for records in run.by_file for record in records]
    if any(one.backend == default and one.status == "ok" and one.median_ms is not None for one in records):
        return
    reasons = Counter(one.status for one in records if one.backend == default)
    if not reasons:
        raise BadInput(
            f"the runs did not measure {default}: add --backend {default}, or name another by --default"
        )
    said = ", ".join(f"{number} {status_words(status)}" for status, number in reasons.items())
    raise BadInput(f"no case has a time of {default} ({said}), so there is nothing to choose")


def saving(
    run: Run, decisions: Iterable[Decision], default: str
) -> dict[tuple[str, int], tuple[float, Interval | None]]:
    """Return the ms that choices save in a step, with an interval, by stage and number of threads.

    As :func:`~attnbench.stats.answer.by_stage` has them; empty if nobody counted, or if several runs counted
    other calls of the same stage, of which no sum is right. Of runs with the same counts the newest has the
    times, as :func:`decide` takes them. Cases of :func:`alone` are left out: their counts may be of lengths
    between.
    """
    decisions = list(decisions)
    left = set(alone(decisions))
    chosen = {
        one.case: one.choice.backend for one in decisions if one.choice is not None and one.case not in left
    }
    found: dict[tuple[str, int], tuple[float, Interval | None]] = {}
    several = {stage for head in run.manifests for stage in by_stage(head.counts, head.stages) if stage[1]}
    seen: dict[tuple[str, int], Mapping[str, float]] = {}
    runs = zip(run.manifests, run.times, strict=True)
    for head, times in sorted(runs, key=lambda one: one[0].started):
        of_case = by_repetition(times)
        for stage, counts in by_stage(head.counts, head.stages).items():
            # A longer run may have one of the numbers of threads that the first had.
            threads = {parse_case(case).threads for case in counts}
            if len(threads) == 1 and (own := (stage[0], *threads)) in several:
                stage = own
            if seen.setdefault(stage, _as_cold(counts)) != _as_cold(counts):
                return {}
            its = {case: name for case, name in chosen.items() if case in counts}
            if its:
                found[stage] = saved(default, its, of_case, counts)
    return found


def _as_cold(counts: Mapping[str, float]) -> dict[str, float]:
    """Return counts by the same calls, wherever these found their inputs."""
    return {_cold(case): count for case, count in counts.items()}


@dataclass(frozen=True)
class Recorded:
    """A program that was recorded.

    share: the part of its time that attention took. attention_ms: the time of all its calls by torch's
    function, by the number of threads as :func:`~attnbench.stats.answer.by_stage` has it.
    """

    share: float
    attention_ms: Mapping[int, float]

    def part(self, ms: float, threads: int) -> float | None:
        """Return which part of the program's time so many ms of its attention are; None if nobody knows."""
        all_ms = self.attention_ms.get(threads)
        return None if all_ms is None else min(1.0, self.share * ms / all_ms)


def recorded(run: Run, default: str) -> Recorded | None:
    """Return what is known of the recorded program whose calls runs counted; None if nothing, or of several.

    Of a case that several runs have, the newest counts.
    """
    shares = {head.share for head in run.manifests}
    share = shares.pop()
    if share is None or shares:
        return None
    every = {
        _cold(case) for head in run.manifests for case in (head.shard.cases if head.shard else head.cases)
    }
    counts: dict[str, float] = {}
    stages: dict[str, str] = {}
    taken_ms: dict[str, float] = {}
    for head, records in sorted(zip(run.manifests, run.by_file, strict=True), key=lambda one: one[0].started):
        counts |= _as_cold(head.counts)
        stages |= {_cold(case): stage for case, stage in head.stages.items()}
        for one in records:
            if one.backend == default and one.status == "ok" and one.median_ms is not None:
                taken_ms[_cold(one.case)] = one.median_ms
    if not every <= counts.keys() <= taken_ms.keys():
        return None
    attention_ms: dict[int, float] = {}
    for (_, threads), its in by_stage(counts, stages).items():
        of_stage_ms = sum(count * taken_ms[case] for case, count in its.items())
        attention_ms[threads] = attention_ms.get(threads, 0.0) + of_stage_ms
    return Recorded(share, attention_ms)


def on_kind(run: Run, kind: str) -> Run:
    """Return what runs measured on one kind of device.

    Raises:
        BadInput: they measured nothing on this kind.
    """
    by_file = [
        tuple(one for one in records if may_be_one(device_kind(head.environment, one.case), kind))
        for head, records in zip(run.manifests, run.by_file, strict=True)
    ]
    kept = [place for place, records in enumerate(by_file) if records]
    if not kept:
        named = "; ".join(sorted(found for _, found in kinds_of(run)))
        raise BadInput(f"nothing was measured on {kind!r}; the kinds of device are: {named}")
    return Run(
        tuple(run.paths[place] for place in kept),
        tuple(run.manifests[place] for place in kept),
        tuple(by_file[place] for place in kept),
        times=tuple(run.times[place] for place in kept),
    )


def kinds_of(run: Run) -> set[tuple[str, str]]:
    """Return the kinds of device of the records, each behind ``cpu`` or ``cuda``."""
    return {
        (device_of(one.case), device_kind(head.environment, one.case))
        for head, records in zip(run.manifests, run.by_file, strict=True)
        for one in records
    }


def check_alike(run: Run) -> None:
    """Raise :class:`BadInput` if runs are not of one kind of device, or under unlike conditions."""
    if any(manifest.sides for manifest in run.manifests):
        raise BadInput("a live comparison has two sides of one code: choose from ordinary runs")
    kinds = kinds_of(run)
    if len(kinds) > len(dict(kinds)):
        named = "; ".join(sorted(kind for _, kind in kinds))
        raise BadInput(f"the runs are of {len(kinds)} kinds of device; name one by --on-device: {named}")
    first = run.manifests[0]
    for other in run.manifests[1:]:
        unlike = changed(_conditions(first), _conditions(other))
        if by_plugin := differences(_plugins(first), _plugins(other)):
            unlike.append(by_plugin)
        if unlike:
            raise BadInput(f"the runs can't be put together: {'; '.join(unlike)}")


_OF_DEVICES = (
    "cpu", "cpu_quota",
    *(name for device in ATTACHED for name in (device.names_fact, device.details_fact)),
)  # fmt: skip
"""Facts that the kinds of device hold. Of several runs one may be of the processor, and one of a card."""


def _conditions(manifest: Manifest) -> dict[str, Any]:
    return {name: fact for name, fact in facts_of(manifest).items() if name not in _OF_DEVICES}


def _decision(
    name: str, records: Iterable[Record], repetitions: Mapping[int, Mapping[str, float]], registry: Registry,
    default: str, kept: bool, calls: int,
) -> Decision:  # fmt: skip
    case = parse_case(name)
    refused = not_servable(case, registry)
    timed = [one for one in records if one.status == "ok" and one.median_ms is not None]
    ours = next((one for one in timed if one.backend == default), None)
    if refused is not None:
        return Decision(name, None, refused)
    if ours is None:
        status = next((one.status for one in records if one.backend == default), None)
        reason = f": {status_words(status)}" if status is not None else ""
        return Decision(name, None, f"{default} has no time{reason}", default if status == "suspect" else "")
    dear = [one for one in timed if one is not ours and _is_dear(one, ours, calls)]
    found = _of_timed(ours, [one for one in timed if one not in dear], repetitions, kept, calls)
    if dear and found.choice is None and found.settled:
        return _against(ours, min(dear, key=lambda one: one.median_ms or 0.0), repetitions, kept, calls)
    return found


def _of_timed(
    ours: Record,
    timed: Sequence[Record],
    repetitions: Mapping[int, Mapping[str, float]],
    kept: bool,
    calls: int,
) -> Decision:
    """Decide between torch's function and others, all of which have times."""
    name, default = ours.case, ours.backend
    best = min(timed, key=lambda one: (one.backend != one.best, one.median_ms))
    assert ours.median_ms is not None
    assert best.median_ms is not None
    if best is ours:
        others = sorted((one for one in timed if one is not ours), key=lambda one: one.median_ms or 0.0)
        compared = {one.backend: over_another(one, ours, repetitions) for one in others}
        rivals = rivals_of(ours, others, repetitions)
        if not rivals:
            return Decision(name, None, f"{default} is the fastest", settled=True)
        tie = f"{default} ties with {first_of(rivals, _MOST_TIES)}"
        lows = {rival: ends(compared[rival].compared)[0] for rival in rivals}
        # Without an interval it may save all of the call.
        most_ms = {rival: (1 - (low or 0.0)) * ours.median_ms for rival, low in lows.items()}
        enough = [rival for rival, ms in most_ms.items() if ms >= LEAST_SAVED_MS]
        if not enough:
            return Decision(name, None, f"{tie}, which can't save {_LEAST_SAVED}", settled=True)
        paid = [
            one.backend for one in others if one.backend in enough and _pays(one, most_ms[one.backend], calls)
        ]
        if not paid:
            why = f"{tie}, which can't save what its first call takes in {calls:,} calls"
            return Decision(name, None, why, settled=True)
        most = max(most_ms[rival] for rival in paid)
        return Decision(name, None, f"{tie}: which is faster is not proved", paid[0], most_ms=most)
    found = _against(ours, best, repetitions, kept, calls)
    rest = [one for one in timed if one is not best]
    rivals = rivals_of(best, rest, repetitions)
    ties = (
        _against(ours, one, repetitions, kept, calls)
        for one in rest
        if one is not ours and (one.backend in rivals or _is_near(one, best, repetitions))
    )
    proved = [one for one in (found, *ties) if one.choice is not None]
    return replace(proved[0], also=tuple(proved[1:])) if proved else found


def _first_ms(record: Record) -> float:
    """Return what preparation and first call of a backend take in each process; 0 for a short time."""
    first_ms = (record.prepare_ms or 0.0) + (record.first_call_ms or 0.0)
    return first_ms if first_ms >= _SLOW_FIRST_MS else 0.0


def _pays(record: Record, saved_ms: float, calls: int) -> bool:
    """Return whether so many calls that each save this time save what the first one takes."""
    return _first_ms(record) <= calls * saved_ms


def _is_dear(one: Record, ours: Record, calls: int) -> bool:
    """Return whether a backend is faster than torch's function, and so many calls don't save its first."""
    assert ours.median_ms is not None
    assert one.median_ms is not None
    saved_ms = ours.median_ms - one.median_ms
    return saved_ms > 0 and not _pays(one, saved_ms, calls)


def _is_near(one: Record, best: Record, repetitions: Mapping[int, Mapping[str, float]]) -> bool:
    """Return whether a backend takes hardly longer than the fastest."""
    over = over_another(one, best, repetitions).compared
    return over is not None and over.ratio <= _NEAR


def _against(
    ours: Record, other: Record, repetitions: Mapping[int, Mapping[str, float]], kept: bool, calls: int
) -> Decision:
    """Decide between torch's function and one other backend, whose times are known."""
    name, backend = ours.case, other.backend
    assert ours.median_ms is not None
    assert other.median_ms is not None
    found = over_another(ours, other, repetitions)
    if not found.slower or found.compared is None or (gain := found.compared.interval) is None:
        high = ends(found.compared)[1]
        # No more than all of the call, however wide the interval is.
        most_ms = ours.median_ms
        if high is not None:
            most_ms = min(most_ms, (high - 1) * other.median_ms)
        if not found.few and most_ms < LEAST_SAVED_MS:
            why = f"{backend} may be faster, but can't save {_LEAST_SAVED}"
            return Decision(name, None, why, settled=True)
        if not _pays(other, most_ms, calls):
            why = f"{backend} may be faster, but can't save what its first call takes in {calls:,} calls"
            return Decision(name, None, why, settled=True)
        few = "too few repetitions" if found.few else "not proved"
        return Decision(name, None, f"{backend} may be faster: {few}", backend, most_ms=most_ms)
    most_ms = other.median_ms * (gain.high - 1)
    if most_ms < LEAST_SAVED_MS:
        why = f"{backend} is faster, but saves less than {_LEAST_SAVED}"
        return Decision(name, None, why, settled=True)
    saved_ms = other.median_ms * (found.compared.ratio - 1)
    first_ms = _first_ms(other)
    if not _pays(other, saved_ms, calls):
        needed, first = ceil(first_ms / saved_ms), duration(first_ms)
        why = (
            f"{backend} is faster, but in each process its first call takes {first}, "
            f"which {needed:,} calls save: --calls {needed} takes it"
        )
        return Decision(name, None, why, settled=True)
    if other.median_ms * (gain.low - 1) < LEAST_SAVED_MS:
        why = f"{backend} is faster, but it is not proved that it saves {_LEAST_SAVED}"
        return Decision(name, None, why, backend, most_ms=most_ms)
    more_bytes = extra_bytes(other, ours)
    if kept and parse_case(name).on_host and more_bytes:
        why = (
            f"{backend} is faster with memory that workers keep, of which it takes "
            f"{human_bytes(more_bytes)} more a call"
        )
        return Decision(name, None, why, backend, most_ms=most_ms, kept=True)
    choice = Choice(name, backend, found.compared.ratio, gain.low, gain.high)
    errors = None
    if other.accuracy is not None and ours.accuracy is not None and ours.accuracy.rms_error > 0:
        errors = other.accuracy.rms_error / ours.accuracy.rms_error
    return Decision(name, choice, "", errors=errors, first_ms=first_ms, saved_ms=saved_ms)


def not_servable(case: Case, registry: Registry) -> str | None:
    """Return why a call of torch's function can't be this case, or None."""
    rule = registry.rules.get(case.rule)
    if case.storage != "dense":
        return f"torch's function takes no {case.storage} sequences"
    if is_encoded(case):
        return f"torch's function takes no keys and values as {case.kv}"
    if case.operation != "attention" or rule is None or rule.record.parameters(case):
        return "torch's function does not compute this"
    if case.dropout:
        return "with dropout the default stays"
    if case.mask.is_drawn:
        return "the program's mask is not that of the case"
    if case.pass_ == "backward":
        return "only the passes forward and both can be chosen"
    return None


def put_together(decisions: Iterable[Decision]) -> list[Choice]:
    """Return the choices; neighbouring lengths that chose alike are one."""
    return [choice for row in _rows(decisions) for choice in _ranges(row)]


def alone(decisions: Iterable[Decision]) -> list[str]:
    """Return cases with a choice that no neighbouring length has, so that lengths between keep torch's."""
    return [
        choice.case for row in _rows(decisions) for choice in _ranges(row) if len(row) > 1 and not choice.upto
    ]


def _rows(decisions: Iterable[Decision]) -> list[list[Decision]]:
    """Return the decisions of each kind of case by length."""
    rows: dict[object, list[Decision]] = {}
    for one in decisions:
        rows.setdefault(kind_of(parse_case(one.case)), []).append(one)
    return [sorted(row, key=lambda one: parse_case(one.case).Lk) for row in rows.values()]


def _agreed(row: list[Decision]) -> list[Decision]:
    """Return decisions in which neighbouring lengths have one backend, where one is good for each.

    Of several it is the one that most of them chose.
    """
    found: list[Decision] = []
    while len(found) < len(row):
        start = len(found)
        common = set(_by_backend(row[start]))
        end = start + 1
        while end < len(row) and common & _by_backend(row[end]).keys():
            common &= _by_backend(row[end]).keys()
            end += 1
        chosen = Counter(one.choice.backend for one in row[start:end] if one.choice is not None)
        backend = max(sorted(common), key=lambda name: chosen[name], default="")
        found += [_instead(one, backend) for one in row[start:end]]
    return found


def _instead(decision: Decision, backend: str) -> Decision:
    """Return a decision for one of its backends; as it is, for another."""
    by_backend = _by_backend(decision)
    if backend not in by_backend:
        return decision
    others = tuple(replace(one, also=()) for name, one in by_backend.items() if name != backend)
    return replace(by_backend[backend], also=others)


def _by_backend(decision: Decision) -> dict[str, Decision]:
    """Return the decision by its backend, and those for backends that are nearly as fast."""
    return {one.choice.backend: one for one in (decision, *decision.also) if one.choice is not None}


def kind_of(case: Case) -> object:
    """Return what cases of one kind have in common: all but the length, where a single one varies."""
    if not case.batch and case.mask.unlisted() == case.mask and case.Lq in (1, case.Lk):
        return replace(case, Lq=1, Lk=1), case.Lq == 1
    return case


def _ranges(row: list[Decision]) -> Iterator[Choice]:
    for _, alike in groupby(row, key=lambda one: one.choice and one.choice.backend):
        choices = [one.choice for one in alike if one.choice is not None]
        if choices:
            upto = parse_case(choices[-1].case).Lk if len(choices) > 1 else 0
            least = min(choices, key=lambda each: each.gain)
            ends = {"upto": upto, "gain": least.gain, "low": least.low, "high": least.high}
            yield msgspec.structs.replace(choices[0], **ends)


def table_of(run: Run, decisions: Iterable[Decision], default: str) -> Table:
    """Return the table of decisions."""
    first, decisions = run.manifests[0], list(decisions)
    cases = [parse_case(one.case) for one in decisions]
    return Table(
        first.attnbench, [str(path) for path in dict.fromkeys(run.paths)], default, _facts(run),
        _plugins(first), put_together(decisions), sorted({case.threads for case in cases if case.on_host}),
        [one.case for one in decisions if one.choice is None],
    )  # fmt: skip


def write_table(table: Table) -> str:
    """Return the table as TOML."""
    lines = [TABLE.mark.decode(), f"attnbench = {_toml(table.attnbench)}"]
    lines += [f"runs = {_toml(table.runs)}", f"default = {_toml(table.default)}"]
    lines += [f"threads = {_toml(table.threads)}", f"stays = {_toml(table.stays)}", "", "[facts]"]
    lines += [f"{name} = {_toml(value)}" for name, value in table.facts.items()]
    lines += ["", "[plugins]", *(f"{_toml(k)} = {_toml(v)}" for k, v in table.plugins.items())]
    for choice in table.choices:
        lines += ["", "[[choices]]"]
        lines += [
            f"{name} = {_toml(value)}"
            for name, value in msgspec.structs.asdict(choice).items()
            if name != "upto" or value
        ]
    return without_home("\n".join(lines) + "\n")


def _toml(value: object) -> str:
    return json.dumps(printable_json(value), ensure_ascii=False)


def read_table(path: Path) -> Table:
    """Read a choice file; raises :class:`BadFile`."""
    try:
        return msgspec.convert(parse_toml(read_text(path)), Table)
    except OSError as failure:
        raise BadFile(f"can't read the choice {str(path)!r}: {failure.strerror}") from failure
    except ValueError as failure:
        raise BadFile(f"{str(path)!r} is not a choice of attnbench: {failure}") from failure


def differences(facts: Mapping[str, Any], others: Mapping[str, Any]) -> str:
    """Return in words which facts, plugins among them, are others on another machine; "" if none are."""
    unlike = [
        name
        for name, fact in facts.items()
        if others.get(name) != fact and not (name in DEVICES and may_be_one(fact, str(others.get(name))))
    ]
    return "; ".join(f"{name} {facts[name]!r} and {others.get(name)!r}" for name in unlike)


def _facts(run: Run) -> dict[str, Any]:
    """Return what must be the same where a choice is used: kinds of device, and the version of torch."""
    facts = dict(kinds_of(run)) | {"torch": run.manifests[0].environment.get("torch")}
    return {name: value for name, value in facts.items() if value and value != UNKNOWN}


def _plugins(manifest: Manifest) -> dict[str, str]:
    return {line.distribution: line.version for line in manifest.plugins}


def machine_of(registry: Registry) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the facts and plugins of this process, as in a table."""
    import torch

    from attnbench.runner.machine import environment

    here = environment()
    for device in ATTACHED:
        here[device.names_fact] = list(card_names(device.name))
    kinds = {device: kind_of_device(here, device) for device in DEVICES}
    facts = {device: kind for device, kind in kinds.items() if kind != UNKNOWN} | {"torch": torch.__version__}
    return facts, {source.distribution: source.version for source in registry.plugins}
