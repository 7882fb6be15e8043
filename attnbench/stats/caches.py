"""What each way to hold a cache costs: time of a step, bytes of a token, and error of the exact output.

Cases that differ in ``kv=`` alone hold the same cache in several ways. A step of a model has one of them, so
the counted calls of a stage are summed for each way by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt

from attnbench.cases.ids import case_id, parse_case
from attnbench.stats.answer import (
    TimeRatio,
    Times,
    Total,
    by_repetition,
    by_stage,
    sums_of,
    sums_over,
    totals,
)
from attnbench.types.encoding import DTYPE, is_encoded, unencoded
from attnbench.types.record import Record

Variants = Mapping[str, str]
"""The ids of cases that differ in ``kv=`` alone, by its word."""


@dataclass(frozen=True)
class CacheCost:
    """One way to hold keys and values.

    word: of ``kv=``, ``dtype`` for numbers of the dtype. totals: of one step, first with the backends to
    use, then with every backend that has a time in all cases, the least first. over: each of them,
    by its backend, over the first of the cache in the dtype; empty without one. kv_bytes: what a token takes
    in all layers of the step; share: that over the bytes in the dtype. error: of the exact output, root of
    the mean square over calls. None stands for what is not known.
    """

    word: str
    totals: tuple[Total, ...]
    over: Mapping[str | None, TimeRatio]
    kv_bytes: float | None
    share: float | None
    error: float | None


@dataclass(frozen=True)
class CacheStep:
    """Several ways to hold the cache of one step: the counted calls of a stage, or one call of a case.

    stage: as ``decode``; threads: as of :class:`attnbench.stats.answer.Total`; case: without ``kv=``, where
    nobody counted; stage or case is "". dtype: of its cases, that which ``dtype`` stands for. caches: in the
    order of the run. missing: the words of those that lack a case or a time. without: as of
    :class:`attnbench.stats.answer.Total`.
    """

    stage: str
    threads: int
    case: str
    dtype: str
    caches: tuple[CacheCost, ...]
    missing: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    @property
    def plain(self) -> CacheCost | None:
        """The cache in the dtype, if it was measured."""
        return next((cache for cache in self.caches if cache.word == DTYPE.name), None)


def variants_of(cases: Iterable[str]) -> dict[str, dict[str, str]]:
    """Group cases by what they are without ``kv=``."""
    found: dict[str, dict[str, str]] = {}
    for text in cases:
        case = parse_case(text)
        found.setdefault(case_id(unencoded(case)), {})[case.kv] = text
    return found


def stages_of_one_cache(counts: Mapping[str, float], stages: Mapping[str, str]) -> dict[str, float]:
    """Return the counts of those stages that have each case with one cache only, which one sum can hold."""
    if not any(map(_is_encoded, counts)):
        return dict(counts)
    return {
        case: count
        for its in by_stage(counts, stages).values()
        if all(len(variants) == 1 for variants in variants_of(its).values())
        for case, count in its.items()
    }


def cache_steps(
    records: Sequence[Record],
    chosen: Mapping[str, str],
    times: Iterable[tuple[str, int, Mapping[str, float]]],
    counts: Mapping[str, float],
    stages: Mapping[str, str],
    without: tuple[str, ...] = (),
) -> tuple[CacheStep, ...]:
    """Return what the ways to hold a cache cost, of each step whose cases hold it in several.

    records, times, counts, stages and without: as :func:`attnbench.stats.answer.answer` has them; chosen:
    from there.
    Without counts a step is one call of a case.
    """
    if not any(_is_encoded(record.case) for record in records):
        return ()
    by_case, known = by_repetition(times), {one.case: one for one in records if one.kv_bytes is not None}
    steps = []
    if counts:
        for (stage, threads), its in by_stage(counts, stages).items():
            steps.append((stage, threads, "", variants_of(its), its))
    else:
        for case, variants in variants_of(dict.fromkeys(record.case for record in records)).items():
            steps.append(("", 0, case, {case: variants}, dict.fromkeys(variants.values(), 1.0)))
    return tuple(
        replace(_step(stage, threads, case, found, its, chosen, by_case, known), without=without)
        for stage, threads, case, found, its in steps
        if any(len(variants) > 1 for variants in found.values())
    )


def _is_encoded(case: str) -> bool:
    return "/kv=" in case and is_encoded(parse_case(case))


def _step(
    stage: str,
    threads: int,
    case: str,
    found: Mapping[str, Variants],
    counts: Mapping[str, float],
    chosen: Mapping[str, str],
    times: Times,
    known: Mapping[str, Record],
) -> CacheStep:
    several = [variants for variants in found.values() if len(variants) > 1]
    # A layer with one cache, as a recurrent one, is the same in each step.
    alone = [text for variants in found.values() if len(variants) == 1 for text in variants.values()]
    words = dict.fromkeys(word for variants in several for word in variants)
    caches, missing = [], []
    plain: Mapping[int, float] = {}
    plain_bytes = None
    for word in sorted(words, key=lambda word: word != DTYPE.name):
        own = [variants.get(word, "") for variants in several]
        if not all(text in chosen for text in own):
            missing.append(word)
            continue
        its = {text: counts[text] for text in (*alone, *own)}
        timed = {text: count for text, count in its.items() if text in chosen}
        found_totals = totals(chosen, times, its, stage, threads)
        sums = {
            total.backend: sums_of(
                dict.fromkeys(timed, total.backend) if total.backend else chosen, times, timed
            )
            for total in found_totals
        }
        kv_bytes = _bytes(its, known)
        if word == DTYPE.name:
            plain, plain_bytes = sums[None], kv_bytes
        caches.append(
            CacheCost(
                word,
                found_totals,
                _over(sums, plain),
                kv_bytes,
                kv_bytes / plain_bytes if kv_bytes and plain_bytes else None,
                _error([(counts[variants[word]], _error_of(word, variants, known)) for variants in several]),
            )
        )
    dtypes = dict.fromkeys(parse_case(text).dtype for variants in several for text in variants.values())
    return CacheStep(
        stage,
        threads,
        case,
        next(iter(dtypes)) if len(dtypes) == 1 else DTYPE.name,
        tuple(caches),
        tuple(missing),
    )


def _over(
    sums: Mapping[str | None, Mapping[int, float]], plain: Mapping[int, float]
) -> dict[str | None, TimeRatio]:
    """Divide the times of steps, by backend and repetition, by those of the cache in the dtype."""
    found = {backend: sums_over(own, plain) for backend, own in sums.items()}
    return {backend: over for backend, over in found.items() if over is not None}


def _bytes(counts: Mapping[str, float], known: Mapping[str, Record]) -> float | None:
    """Sum the bytes of a token over calls. Operations without keys and values of their own count nothing."""
    found = [(count, known[case].kv_bytes) for case, count in counts.items() if case in known]
    return sum(count * each for count, each in found if each is not None) if found else None


def _error_of(word: str, variants: Variants, known: Mapping[str, Record]) -> float | None:
    """Return the error of a cache; that of the dtype stands in the records of the same case with codes."""
    if word != DTYPE.name:
        return known[variants[word]].encoding_error if variants[word] in known else None
    found = (known[case].dtype_error for case in variants.values() if case in known)
    return next((error for error in found if error is not None), None)


def _error(found: Sequence[tuple[float, float | None]]) -> float | None:
    squares = [count * error**2 for count, error in found if error is not None]
    whole = sum(count for count, _ in found)
    return sqrt(sum(squares) / whole) if len(squares) == len(found) and whole else None
