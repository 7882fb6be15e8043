"""The comparison that a live run is: each backend's head against its base, paired set by set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from attnbench.compare.environment import unlike_versions
from attnbench.compare.pairing import Pair, has_time, without_two_times
from attnbench.compare.sides import DELTA
from attnbench.compare.within import CONVENTIONS
from attnbench.results.format import StoredRun
from attnbench.results.ours import flaws_of
from attnbench.stats.verdict import Verdict, verdicts
from attnbench.types.compared import BASE, HEAD, SIDES, Cell, Compared, ComparedCell, Outcome, parts_of, sided
from attnbench.types.errors import BadFile
from attnbench.types.record import Record

_Records = Mapping[tuple[str, str], Record]


def compared_live(run: StoredRun, delta_of: Callable[[str, str], float] | None = None) -> Compared:
    """What a live run says, from its records; verdicts are those of the run, corrected over its cells.

    delta_of: by case and backend the least effect that counts, as a fraction; None for that of the run.

    Raises:
        BadFile: the run doesn't say what its two sides are.
    """
    sides = _sides(run)
    judged = run.records
    if delta_of is not None:
        judged = tuple(replace(r, delta=delta_of(r.case, parts_of(r.backend)[0])) for r in judged)
    records = {(record.case, record.backend): record for record in judged}
    said = verdicts(judged)
    backends = dict.fromkeys(parts_of(contender)[0] for contender in run.manifest.backends)
    cells = [
        _cell(records, case, backend, said.get((case, sided(backend, HEAD))))
        for case in run.manifest.cases
        for backend in backends
    ]
    notes = [str(note) for side in SIDES for note in _listed(sides[side].get("notes"))]
    return Compared(
        base=str(sides[BASE].get("name", BASE)),
        new=str(sides[HEAD].get("name", HEAD)),
        cells=tuple(cell for cell in cells if cell is not None),
        differences=unlike_versions(*(_table(sides[side].get("versions")) for side in SIDES)),
        warnings=(*notes, *flaws_of(run)),
        conventions=CONVENTIONS if said else (),
    )


def _sides(run: StoredRun) -> Mapping[str, Mapping[str, Any]]:
    sides = run.manifest.sides
    for side in SIDES:
        if side not in sides:
            raise BadFile(f"{str(run.path)!r}: its manifest is damaged: of a live run, it has no {side} side")
    return sides


def _listed(said: Any) -> list[Any]:
    return said if isinstance(said, list) else []


def _table(said: Any) -> dict[str, Any]:
    return said if isinstance(said, dict) else {}


def _cell(records: _Records, case: str, backend: str, verdict: Verdict | None) -> ComparedCell | None:
    base, head = records.get((case, sided(backend, BASE))), records.get((case, sided(backend, HEAD)))
    either = head or base
    if either is None:
        return None
    word, reason = _outcome(base, head, backend, verdict)
    told = None if verdict is None else head
    return ComparedCell(
        case=case,
        rule=either.rule,
        backend=backend,
        verdict=word,
        reason=reason,
        base_status=None if base is None else base.status,
        new_status=None if head is None else head.status,
        base_ms=None if base is None else base.median_ms,
        new_ms=None if head is None else head.median_ms,
        ratio=None if told is None else told.ratio,
        low=None if told is None else told.ratio_low,
        high=None if told is None else told.ratio_high,
        confidence=None if told is None else told.ratio_confidence,
        p_value=None if told is None else told.p_value,
        p_adjusted=None if verdict is None else verdict.p_adjusted,
        delta=DELTA if head is None or head.delta is None else head.delta,
    )


def _outcome(
    base: Record | None, head: Record | None, backend: str, verdict: Verdict | None
) -> tuple[Outcome, str]:
    before, after = _cells(base, backend), _cells(head, backend)
    pair = Pair(before, after, list(filter(has_time, before)), list(filter(has_time, after)))
    alone = without_two_times(pair)
    if alone is not None:
        return alone
    return ("unclear", "no set has both sides") if verdict is None else (verdict.word, verdict.reason)


def _cells(record: Record | None, backend: str) -> list[Cell]:
    if record is None:
        return []
    times = () if record.median_ms is None else (record.median_ms * 1e6,)
    return [Cell(record.case, record.rule, backend, record.status, record.reason, times)]
