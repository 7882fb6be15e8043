"""Compare within one run file: with another baseline, or both sides of a live comparison.

Ratios come from pairs of the same repetitions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from attnbench.compare.environment import unlike_versions
from attnbench.compare.stored import CellPair, DeltaOf, without_two_times
from attnbench.results.format import StoredRun, read_run
from attnbench.results.read import flaws_of, not_timed
from attnbench.stats.answer import disturbed, is_busy
from attnbench.stats.pairs import compare
from attnbench.stats.records import with_ratio
from attnbench.stats.tests import LEVEL
from attnbench.stats.verdict import DELTA, FALSE_DISCOVERIES, Verdict, verdicts
from attnbench.types.compared import BASE, HEAD, SIDES, Cell, Compared, ComparedCell, Outcome, parts_of, sided
from attnbench.types.device import device_kind, shown_kinds, without_details
from attnbench.types.errors import BadFile, BadInput
from attnbench.types.record import Record, RepetitionLine
from attnbench.types.status import MEANING
from attnbench.types.words import count_of, span_words, unknown_name

CONVENTIONS = (
    "ratio: time over the baseline's, below 1 is faster, from pairs measured next to each other",
    "verdict: same, the whole interval lies within --delta of 1; slower or faster, the ratio is beyond "
    f"it, with p ≤ {LEVEL:g} by a sign test over repetitions and ≤ {FALSE_DISCOVERIES:g} after "
    "Benjamini-Hochberg over the cells; unclear, none of these",
)


def compare_within(path: Path, baseline: str, delta_of: DeltaOf | None = None) -> Compared:
    """Compare every backend of a run with one of them, as the run itself does it.

    delta_of: None for the least effect of the run.

    Raises:
        BadFile: as :func:`attnbench.results.format.read_run`. BadInput: the run has no such backend.
    """
    run = read_run(path)
    if baseline not in run.manifest.backends:
        raise BadInput(f"{str(path)!r}: {unknown_name('backend', baseline, run.manifest.backends)}")
    of_the_run = run.manifest.protocol.get("delta", DELTA)
    if isinstance(of_the_run, bool) or not isinstance(of_the_run, int | float) or not 0 < of_the_run < 1:
        raise BadFile(f"{str(path)!r}: its manifest is damaged: the least effect is {of_the_run!r}")
    repetitions: dict[str, list[RepetitionLine]] = defaultdict(list)
    for line in run.repetitions:
        repetitions[line.case].append(line)
    bases = {record.case: record for record in run.records if record.backend == baseline}
    compared = [
        against(
            record,
            bases[record.case],
            repetitions[record.case],
            of_the_run if delta_of is None else delta_of(record.case, record.backend),
        )
        for record in run.records
        if record.backend != baseline and record.case in bases
    ]
    found = verdicts(compared)
    cells = []
    for record in compared:
        base, verdict = bases[record.case], found.get((record.case, record.backend))
        outcome = _without_ratio(record, base) if verdict is None else (verdict.word, verdict.reason)
        cells.append(_cell(run, record.backend, base, record, verdict, outcome))
    return Compared(
        base=baseline,
        new=f"other backends of {path}",
        cells=tuple(cells),
        warnings=tuple(_warnings(run, baseline, bases)),
        conventions=CONVENTIONS if found else (),
        measured=_measured(run),
    )


def against(record: Record, base: Record, repetitions: list[RepetitionLine], delta: float) -> Record:
    """Return a record with its ratio to another baseline, if both have a time.

    repetitions: those of the case. delta: the least effect that counts.
    """
    found = (
        compare(repetitions, record.backend, base.backend) if record.status == base.status == "ok" else None
    )
    of_both = 0 if found is None else found.repetitions
    return replace(with_ratio(record, found), baseline=base.backend, delta=delta, repetitions=of_both)


def compared_live(run: StoredRun, delta_of: DeltaOf | None = None) -> Compared:
    """Compare the two sides of a live run, each backend's head with its base.

    delta_of: None for the least effect of the run.

    Raises:
        BadFile: the manifest lacks a side.
    """
    sides = run.manifest.sides
    for side in SIDES:
        if side not in sides:
            raise BadFile(f"{str(run.path)!r}: its manifest is damaged: of a live run, it has no {side} side")
    judged = run.records
    if delta_of is not None:
        judged = tuple(replace(r, delta=delta_of(r.case, parts_of(r.backend)[0])) for r in judged)
    records = {(record.case, record.backend): record for record in judged}
    found = verdicts(judged)
    cells = []
    for case in run.manifest.cases:
        for backend in dict.fromkeys(parts_of(name)[0] for name in run.manifest.backends):
            base, head = (records.get((case, sided(backend, side))) for side in SIDES)
            verdict = found.get((case, sided(backend, HEAD)))
            if base is not None or head is not None:
                cells.append(_cell(run, backend, base, head, verdict, _live_outcome(base, head, verdict)))
    notes = (sides[side].get("notes") for side in SIDES)
    left_out = sides[HEAD].get("left_out")
    return Compared(
        base=str(sides[BASE].get("name", BASE)),
        new=str(sides[HEAD].get("name", HEAD)),
        cells=tuple(cells),
        differences=unlike_versions(*(_table(sides[side].get("versions")) for side in SIDES)),
        warnings=(
            *(str(note) for listed in notes if isinstance(listed, list) for note in listed),
            *flaws_of(run),
        ),
        conventions=CONVENTIONS if found else (),
        left_out=tuple(map(str, left_out)) if isinstance(left_out, list) else (),
        named=tuple(dict.fromkeys(parts_of(name)[0] for name in run.manifest.named)),
        measured=_measured(run),
    )


def _measured(run: StoredRun) -> str:
    """Say where a run was measured, how long it took, and if other work disturbed it."""
    kinds = shown_kinds(device_kind(run.manifest.environment, case) for case in run.manifest.cases)
    took = "" if run.finished is None else f" in {span_words(run.finished.wall_s)}"
    timed = [record for record in run.records if record.median_ms is not None]
    busy = is_busy(sum(map(disturbed, timed)), len(timed))
    return f"measured on {' and '.join(kinds.values())}{took}{' beside other work' if busy else ''}"


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _live_outcome(base: Record | None, head: Record | None, verdict: Verdict | None) -> tuple[Outcome, str]:
    """Return the verdict on two records; a side without a time is treated as in stored runs."""
    cells = [[_as_cell(record)] if record is not None else [] for record in (base, head)]
    alone = without_two_times(CellPair(*cells))
    if alone is not None:
        return alone
    return ("unclear", "no repetition has both sides") if verdict is None else (verdict.word, verdict.reason)


def _as_cell(record: Record) -> Cell:
    times = () if record.median_ms is None else (record.median_ms * 1e6,)
    return Cell(record.case, record.rule, record.backend, record.status, record.reason, times)


def _cell(
    run: StoredRun,
    backend: str,
    base: Record | None,
    new: Record | None,
    verdict: Verdict | None,
    outcome: tuple[Outcome, str],
) -> ComparedCell:
    """Make a cell of two records; new has the ratio if there is a verdict."""
    either = new or base
    assert either is not None
    judged = new if verdict is not None else None
    return ComparedCell(
        case=either.case,
        rule=either.rule,
        backend=backend,
        verdict=outcome[0],
        reason=outcome[1],
        base_status=None if base is None else base.status,
        new_status=None if new is None else new.status,
        base_ms=None if base is None else base.median_ms,
        new_ms=None if new is None else new.median_ms,
        ratio=None if judged is None else judged.ratio,
        low=None if judged is None else judged.ratio_low,
        high=None if judged is None else judged.ratio_high,
        confidence=None if judged is None else judged.ratio_confidence,
        p_value=None if judged is None else judged.p_value,
        p_adjusted=None if verdict is None else verdict.p_adjusted,
        delta=DELTA if new is None or new.delta is None else new.delta,
        device_kind=without_details(device_kind(run.manifest.environment, either.case)),
    )


def _without_ratio(record: Record, base: Record) -> tuple[Outcome, str]:
    if record.status == "mismatch" or (record.status == "inaccurate" and not record.passed):
        return "mismatch", record.reason
    for one in (record, base):
        meaning = MEANING[one.status]
        if meaning.declined or meaning.unknown or one.status == "inaccurate":
            return "none", _why_not(one, base)
    for one in (record, base):
        if one.status != "ok":
            return "missing", _why_not(one, base)
    return "missing", "ok, and yet without a repetition that has samples of both"


def _why_not(one: Record, base: Record) -> str:
    whose = f"the baseline {base.backend}: " if one is base else ""
    return f"{whose}{one.status.replace('_', ' ')} ({one.reason})"


def _warnings(run: StoredRun, baseline: str, bases: dict[str, Record]) -> Iterator[str]:
    yield from flaws_of(run)
    yield from not_timed(run)
    without = len({record.case for record in run.records} - bases.keys())
    if without:
        yield f"no record of {baseline} on {count_of(without, 'case')}"
