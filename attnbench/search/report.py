"""The failures that a search found, as findings of the kit's report."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from attnbench.search.run import Fault, Searched
from attnbench.testing.findings import Finding, Report, merged

KEEPS = (
    "It is right on the same case alone in a new process: look for what it keeps from one call to the next, "
    "by a shape or an address, and for memory that it reads before writing it."
)


SHARED = (
    "It was right when this case was asked again: threads meet by chance. Look for memory that calls share, "
    "such as a buffer that preparation allocates, or don't declare concurrent."
)


def with_searches(
    report: Report, searches: Sequence[Searched], plugins: Sequence[str], *, several: bool
) -> Report:
    """Return a report with what searches found.

    plugins: as a command names them. several: whether they bring several backends, so that one is named.
    """
    by_name = {one.backend: one for one in searches}
    counts = [
        replace(one, searched=str(by_name[one.backend])) if one.backend in by_name else one
        for one in report.counts
    ]
    found = [
        _finding(group, one, plugins, several=several)
        for one in searches
        for group in _by_mistake(one.failures)
    ]
    return Report(tuple(counts), merged([*report.findings, *found]))


def _by_mistake(failures: Sequence[Fault]) -> list[list[Fault]]:
    """Return failures in groups: those of one known mistake are one problem."""
    groups: dict[object, list[Fault]] = {}
    for failure in failures:
        groups.setdefault(failure.known.mistake if failure.known else id(failure), []).append(failure)
    return list(groups.values())


def _finding(group: Sequence[Fault], searched: Searched, plugins: Sequence[str], *, several: bool) -> Finding:
    failure = group[0]
    outcome, point = failure.outcome, str(failure.point)
    wrong = outcome.status == "wrong"
    words = [word for plugin in plugins for word in ("--plugin", plugin)]
    named = (searched.backend,) if several else ()
    words += [word for name in named for word in ("--backend", name)]
    command = shlex.join(["attnbench", "check", *words, "--replay", point])
    test = f"replay({', '.join(map(repr, (point, plugins[-1], *named)))})"
    return Finding(
        searched.backend,
        f"{'wrong answers' if wrong else 'it fails'}, found by searching: {outcome.problem}",
        f"{failure.known.do} {_condition(failure)}" if failure.known else _condition(failure),
        tuple(str(one.point) for one in group),
        about="answers" if failure.alone else "steadiness",
        check=outcome.check if failure.alone else "repeatability",
        exit_code=1 if wrong else 3,
        mistake=failure.known.mistake if failure.known else "",
        again=(command, f"in a test: from attnbench.search import replay; {test}"),
    )


def _condition(failure: Fault) -> str:
    """Say what a case needs for the fault to show."""
    if not failure.alone:
        return SHARED if failure.found.way.at_once else KEEPS
    needed, since = failure.shrunk.needed, failure.since
    where = f", {since}" if since else ""
    if not needed:
        return f"It shows in a plain case{where}."
    if not failure.shrunk.done:
        return f"It shows with {_all_of(needed)}{where}; not all of these may be needed."
    if len(needed) == 1:
        return f"It shows only with {needed[0]}{where}."
    shown = f"It shows only with {_all_of(needed)} together{where}"
    return f"{shown}." if failure.known else f"{shown}; without any one of them this case is right."


def _all_of(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
