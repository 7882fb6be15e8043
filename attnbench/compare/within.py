"""One run, its ratios taken to another baseline than when it was measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec.structs import replace

from attnbench.compare.sides import DELTA
from attnbench.results.format import StoredRun, read_run
from attnbench.results.ours import flaws_of
from attnbench.stats.pairs import Comparison, compare
from attnbench.stats.summary import summarise
from attnbench.stats.verdict import FALSE_DISCOVERIES, LEVEL, Verdict, verdicts
from attnbench.types.compared import Compared, ComparedCell, Outcome
from attnbench.types.errors import BadFile, BadInput
from attnbench.types.record import Record, SetLine
from attnbench.types.status import MEANING, status_words
from attnbench.types.words import count_of, unknown_name

CONVENTIONS = (
    "ratio: time over the baseline's, below 1 is faster, from pairs measured next to each other",
    "verdict: same, the whole interval lies within the least effect; slower or faster, the ratio is beyond "
    f"it, with p ≤ {LEVEL:g} by a sign test over sets and ≤ {FALSE_DISCOVERIES:g} after Benjamini-Hochberg "
    "over the cells; unclear, none of these",
)


def compare_within(
    path: Path, baseline: str, delta_of: Callable[[str, str], float] | None = None
) -> Compared:
    """Every backend of a run against one of them, from pairs of the same sets, as the run itself does it.

    delta_of: by case and backend the least effect that counts, as a fraction; None for that of the run.

    Raises:
        BadFile: as :func:`attnbench.results.format.read_run`. BadInput: the run has no such backend.
    """
    run = read_run(path)
    if baseline not in run.manifest.backends:
        raise BadInput(f"{str(path)!r}: {unknown_name('backend', baseline, run.manifest.backends)}")
    of_the_run = _delta_of(run)
    sets: dict[str, list[SetLine]] = defaultdict(list)
    for line in run.sets:
        sets[line.case].append(line)
    bases = {record.case: record for record in run.records if record.backend == baseline}
    others = [record for record in run.records if record.backend != baseline and record.case in bases]
    compared = [
        against(
            record,
            bases[record.case],
            sets[record.case],
            of_the_run if delta_of is None else delta_of(record.case, record.backend),
        )
        for record in others
    ]
    said = verdicts(compared)
    return Compared(
        base=baseline,
        new=str(path),
        cells=tuple(
            _cell(record, bases[record.case], sets[record.case], said.get((record.case, record.backend)))
            for record in compared
        ),
        warnings=tuple(_warnings(run, baseline, bases)),
        conventions=CONVENTIONS if said else (),
    )


def _delta_of(run: StoredRun) -> float:
    said = run.manifest.protocol.get("delta", DELTA)
    if isinstance(said, bool) or not isinstance(said, int | float) or not 0 < said < 1:
        raise BadFile(f"{str(run.path)!r}: its manifest is damaged: the least effect is {said!r}")
    return float(said)


def against(record: Record, base: Record, sets: list[SetLine], delta: float) -> Record:
    """A record with its ratio to that of another baseline; without one where either has no time.

    sets: those of the case. delta: the least effect that counts.
    """
    found: Comparison | None = None
    if record.status == base.status == "ok":
        found = compare(sets, record.backend, base.backend)
    interval = None if found is None else found.interval
    return replace(
        record,
        baseline=base.backend,
        delta=delta,
        ratio=None if found is None else found.ratio,
        ratio_low=None if interval is None else interval.low,
        ratio_high=None if interval is None else interval.high,
        ratio_confidence=None if interval is None else interval.confidence,
        p_value=None if found is None else found.p_value,
        sets=0 if found is None else found.sets,
    )


def _cell(record: Record, base: Record, sets: list[SetLine], said: Verdict | None) -> ComparedCell:
    outcome, reason = (said.word, said.reason) if said is not None else _without_ratio(record, base)
    return ComparedCell(
        case=record.case,
        rule=record.rule,
        backend=record.backend,
        verdict=outcome,
        reason=reason,
        base_status=base.status,
        new_status=record.status,
        base_ms=_ms(base, sets),
        new_ms=_ms(record, sets),
        ratio=record.ratio,
        low=record.ratio_low,
        high=record.ratio_high,
        confidence=record.ratio_confidence,
        p_value=record.p_value,
        p_adjusted=None if said is None else said.p_adjusted,
        delta=record.delta or 0.0,
        least_told=None if said is None else record.delta,
    )


def _without_ratio(record: Record, base: Record) -> tuple[Outcome, str]:
    if record.status == "mismatch":
        return "mismatch", record.reason
    for one in (record, base):
        if MEANING[one.status].declined:
            return "none", _why_not(one, base)
    for one in (record, base):
        if one.status != "ok":
            return "missing", _why_not(one, base)
    return "missing", "ok, and yet without a set that has samples of both"


def _why_not(one: Record, base: Record) -> str:
    whose = f"the baseline {base.backend}: " if one is base else ""
    return f"{whose}{status_words(one.status)} ({one.reason})"


def _ms(record: Record, sets: list[SetLine]) -> float | None:
    timing = summarise(sets, record.backend) if record.status == "ok" else None
    return None if timing is None else timing.median_ms


def _warnings(run: StoredRun, baseline: str, bases: dict[str, Record]) -> Iterator[str]:
    yield from flaws_of(run)
    without = len({record.case for record in run.records} - bases.keys())
    if without:
        yield f"no record of {baseline} on {count_of(without, 'case')}"
