"""What each way to hold a cache costs, in a table and in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from attnbench.cases.ids import parse_case
from attnbench.cases.work import human_bytes
from attnbench.reports.answer import (
    FASTEST_OF_EACH,
    STEP,
    WIDE,
    Grid,
    stage_words,
    times_text,
    use_text,
    without,
)
from attnbench.reports.names import short_names
from attnbench.reports.units import duration, reach
from attnbench.stats.answer import RunAnswer, Total
from attnbench.stats.caches import CacheCost, CacheStep
from attnbench.stats.tests import ends
from attnbench.types.encoding import DTYPE

_LEAST_ERROR = 1e-4
_UNKNOWN = "?"
_FEW = 3
"""So many caches have a sentence each."""
_SLOWER = 4
"""So many backends of a cache have a row below the fastest, or all but those that one row counts."""


def cache_name(step: CacheStep, cache: CacheCost) -> str:
    """Name a cache: by its word, or by the dtype of the cases."""
    return step.dtype if cache.word == DTYPE.name else cache.word


def error_text(error: float | None) -> str:
    """Write an error as a share in two digits: 0.62%."""
    if error is None:
        return _UNKNOWN
    return f"{100 * error:.2g}%" if error >= _LEAST_ERROR else f"<{100 * _LEAST_ERROR:g}%"


def step_labels(steps: Sequence[CacheStep]) -> list[str]:
    """Name steps by their stage, their batch, or what their case has that others lack, and by what they lack.

    One that lacks nothing needs no name.
    """
    if len(steps) == 1 and not steps[0].without:
        return [stage_words(steps[0].stage, steps[0].threads)]
    names = short_names(step.case for step in steps if step.case)
    return [
        (stage_words(one.stage, one.threads) or names.get(one.case) or _batches(one)) + without(one.without)
        for one in steps
    ]


def _batches(step: CacheStep) -> str:
    """Name a step whose counted calls are of no stage, as those of a step of a serving engine."""
    cases = (case for cache in step.caches for case in cache.totals[0].by_case)
    return " ".join(filter(None, dict.fromkeys(parse_case(case).batch for case in cases))) or STEP


def _fastest(total: Total, answer: RunAnswer) -> tuple[str, str]:
    """Return the backend to use in each case of a step, "" if they differ, and its name in a table."""
    leads = [lead for lead in answer.leads if lead.best.case in total.by_case]
    found = {answer.chosen[lead.best.case] for lead in leads}
    if len(found) > 1:
        return "", FASTEST_OF_EACH
    backend = found.pop()
    return backend, use_text(leads[0], backend) if len(leads) == 1 else backend


def caches_grid(
    steps: Sequence[CacheStep], answer: RunAnswer, width: int = 1000, *, details: bool = False
) -> Grid | None:
    """Return a row for each way to hold a cache with each backend, the fastest of a cache first; None where
    there is nothing to compare.

    width: as of :func:`attnbench.reports.answer.cases_grid`. details: with all backends of a cache.
    """
    rows: list[dict[str, str]] = []
    for step, label in zip(steps, step_labels(steps), strict=True):
        for cache in step.caches:
            best, *others = cache.totals
            fastest, use = _fastest(best, answer)
            held = _UNKNOWN if cache.kv_bytes is None else human_bytes(cache.kv_bytes)
            told = {"step": label, "cache": cache_name(step, cache), "bytes/token": held}
            told |= {"memory ×": share_text(cache), "error": error_text(cache.error)}
            rows.append(told | {"backend": use} | _time(cache, best))
            label = ""
            slower = [other for other in others if other.backend != fastest]
            shown = slower if details or len(slower) <= _SLOWER else slower[: _SLOWER - 1]
            rows += [{"backend": other.backend or ""} | _time(cache, other) for other in shown]
            if shown != slower:
                rows.append({"backend": f"{len(slower) - len(shown)} more: --details"})
    if not rows:
        return None
    columns = ("step", "cache", "bytes/token", "memory ×", "error", "backend", "time", "time ×")
    left_out = {"step"} - {head for row in rows for head in row if row[head]}
    heads = tuple(head for head in columns if head not in left_out)
    gap = 2 if width >= WIDE else 1
    longest = [max(len(row.get(head, "")) for row in (*rows, {head: head})) for head in heads]
    if sum(longest) + gap * (len(heads) - 1) > width:
        # The bytes say as much as their share.
        heads = tuple(head for head in heads if head != "memory ×")
    return Grid(
        heads,
        tuple(tuple(row.get(head, "") for head in heads) for row in rows),
        frozenset(heads) - {"step", "cache", "backend"},
        gap,
        f"×: over the cache in {plain_name(steps)}   error: what a cache changes in exact outputs",
    )


def plain_name(steps: Sequence[CacheStep]) -> str:
    """Name the cache that others are compared with."""
    dtypes = {step.dtype for step in steps}
    return dtypes.pop() if len(dtypes) == 1 else "the dtype"


def share_text(cache: CacheCost) -> str:
    """Write the bytes of a cache over those in the dtype."""
    if cache.share is None:
        return _UNKNOWN
    return "1" if cache.word == DTYPE.name else f"{cache.share:.2f}"


def _time(cache: CacheCost, total: Total) -> dict[str, str]:
    low, high, _ = ends(total)
    time = duration(total.ms, reach(total.ms, low, high))
    return {"time": time, "time ×": _over(cache, total.backend)}


def _over(cache: CacheCost, backend: str | None = None) -> str:
    """The time of a step over that of the cache in the dtype; backend: None for the fastest of each case."""
    if backend not in cache.over:
        return _UNKNOWN
    return "1" if cache.word == DTYPE.name and backend is None else times_text(cache.over[backend])


def cache_words(steps: Sequence[CacheStep]) -> list[str]:
    """Say what is lost and gained by each cache; of more than a few by those that no other beats in memory,
    time and error.

    Of several cases that nobody counted only the table tells.
    """
    told: list[str] = []
    if len(steps) > 1 and steps[0].case:
        return told
    for step, label in zip(steps, step_labels(steps), strict=True):
        before = f"{label}: " if label else ""
        for cache in step.caches:
            if len(step.caches) <= 1 + _FEW or not any(_beats(one, cache) for one in step.caches):
                told += [before + words for words in _against_plain(step, cache)]
        if step.missing:
            told.append(f"{before}without a time in each case: {', '.join(step.missing)}")
    return told


def _against_plain(step: CacheStep, cache: CacheCost) -> list[str]:
    """Compare a cache with that in the dtype, in a list that is empty where there is nothing to compare."""
    plain = step.plain
    if plain is None or plain is cache:
        return []
    time = f" and {_over(cache)} × the time" if cache.over else ""
    return [
        f"{cache.word} takes {share_text(cache)} of the memory{time} of {step.dtype}, with "
        f"{error_text(cache.error)} error ({step.dtype}: {error_text(plain.error)})"
    ]


def _beats(one: CacheCost, other: CacheCost) -> bool:
    """Return whether a cache is as good as another in memory, time and error as they are shown, and better
    in one."""
    mine, theirs = _shown(one), _shown(other)
    return mine != theirs and all(a <= b for a, b in zip(mine, theirs, strict=True))


def _shown(cache: CacheCost) -> tuple[float, float, float]:
    least = float("inf")
    return (
        least if cache.share is None else round(cache.share, 2),
        float(_over(cache)) if cache.over else least,
        least if cache.error is None else float(f"{cache.error:.2g}"),
    )
