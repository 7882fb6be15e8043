"""Ids of cases for tables: shortened to what differs between the rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from types import MappingProxyType

from attnbench.cases.ids import parse_case
from attnbench.cases.suites import DEFAULT_SUITE
from attnbench.types.case import Case
from attnbench.types.device import CPU
from attnbench.types.errors import BadCase
from attnbench.types.record import Manifest
from attnbench.types.words import first_of

_BETWEEN_WORDS = re.compile(r"-(?!\d)")
"""A minus sign before a digit belongs to a constant."""
_SAME_LENGTHS = re.compile(r"Lq(\d+)-Lk\1\b")


_MOST_VALUES = 5
"""Of more values a clause has the first."""
_DEFAULTS = {"attention", "B1", "none"}
"""Words that a short name may leave out: those of an ordinary case."""


def short_names(cases: Iterable[str]) -> dict[str, str]:
    """Shorten ids to the parts in which they differ; Lq128-Lk128 becomes L128.

    A single id stays whole.
    """
    parts = _parts(cases)
    shared = _shared(parts)
    if not shared:
        return {case: case for case in parts}
    return {
        case: _joined(segments, shared | _DEFAULTS) or _joined(segments, shared) or case
        for case, segments in parts.items()
    }


def with_stages(names: Mapping[str, str], stages: Mapping[str, str]) -> dict[str, str]:
    """Return names of cases with the stage of a step that each is of, if it has one."""
    return {case: f"{name} {stages.get(case, '')}".strip() for case, name in names.items()}


def conditions_words(cases: Iterable[str], stages: Mapping[str, str] = MappingProxyType({})) -> str:
    """Say in a clause under which conditions cases were measured: lengths, dtype, pass and threads.

    Lengths stand by stage where cases have one; a pass that is ``forward`` is left out.
    """
    parsed = {case: parse_case(case) for case in cases}
    by_stage: dict[str, list[Case]] = {}
    for case, one in parsed.items():
        by_stage.setdefault(stages.get(case, ""), []).append(one)
    lengths = [f"{stage} {_lengths(those)}".strip() for stage, those in by_stage.items()]
    every = list(parsed.values())
    passes = listed_values(one.pass_ for one in every)
    words = (listed_values(one.dtype for one in every), "" if passes == "forward" else passes)
    return ", ".join(filter(None, (*lengths, *words, threads_text(every))))


def _lengths(cases: Sequence[Case]) -> str:
    """Return lengths as ids have them: L1024, or Lq1 Lk512–640. A layer's one step has no past of its own."""
    of_past = [one.Lk for one in cases if one.Lk > 1] or [1]
    if all(one.Lq == one.Lk for one in cases):
        return f"L{span([one.Lk for one in cases])}"
    return f"Lq{span([one.Lq for one in cases])} Lk{span(of_past)}"


def threads_text(cases: Iterable[Case]) -> str:
    """Return the numbers of threads of cases on the host; "" without any."""
    threads = {case.threads for case in cases if case.on_host}
    if not threads:
        return ""
    return f"{span(sorted(threads))} {'thread' if threads == {1} else 'threads'}"


def span(values: Sequence[int]) -> str:
    """Return the least and the greatest of some numbers: 512–640."""
    least, most = min(values), max(values)
    return str(least) if least == most else f"{least}–{most}"


def listed_values(values: Iterable[str]) -> str:
    """Return each word once; of many the first, and the number of the others."""
    found = list(dict.fromkeys(values))
    return first_of(found, _MOST_VALUES)


def suite_of(manifest: Manifest) -> str:
    """The words after ``attnbench run``, up to its first option: suites, files of them, and cases by number.

    A single case is told by its id, several by what they share: "4 cases of attention/scaled_dot".
    """
    if manifest.command[1:2] != ["run"]:
        return ""
    words = list(takewhile(lambda word: not word.startswith("-"), manifest.command[2:]))
    if not words and "--resume" not in manifest.command:
        words = [DEFAULT_SUITE]
    cases = [word for word in words if _is_case(word)]
    names = [word for word in words if word not in cases]
    if len(cases) < 2:
        return " ".join([*names, *cases])
    of = {"/".join(case.split("/")[:2]) for case in cases}
    told = f"{len(cases):,} cases{f' of {of.pop()}' if len(of) == 1 else ''}"
    return " ".join([*names, told])


def heading_of(manifest: Manifest) -> str:
    """Return :func:`suite_of` without the endings of files."""
    return _without_endings(suite_of(manifest))


def _without_endings(suite: str) -> str:
    return " ".join(word.removesuffix(".toml") for word in suite.split(" "))


def _is_case(word: str) -> bool:
    try:
        parse_case(word)
    except BadCase:
        return False
    return True


_MOST_SUITES = 6
"""Of more suites no case tells its own."""


def suites_apart(manifests: Mapping[str, Manifest], report: Iterable[Manifest] = ()) -> dict[str, str]:
    """Return the suite of each case where a report has several, but few. Endings of files tell some apart.

    manifests: by case, of its run. report: of all runs that are told beside these, on other devices too.
    """
    found = {case: suite_of(manifest) for case, manifest in manifests.items()}
    names = set(found.values())
    every = names.union(map(suite_of, report))
    few = len(names) <= _MOST_SUITES and not any(name == "" or _is_case(name) for name in names)
    if len(every) < 2 or not few:
        return {}
    if len(set(map(_without_endings, every))) < len(every):
        return found
    return {case: _without_endings(name) for case, name in found.items()}


def shared_words(cases: Iterable[str]) -> str:
    """Return the parts that all ids share, in their order; "" for a single id."""
    parts = _parts(cases)
    shared = _shared(parts)
    first = next(iter(parts.values()), [])
    return _joined(first, {word for segment in first for word in segment} - shared)


def _joined(segments: list[list[str]], left_out: set[str]) -> str:
    return " ".join(
        filter(None, ("-".join(word for word in segment if word not in left_out) for segment in segments))
    )


def _parts(cases: Iterable[str]) -> dict[str, list[list[str]]]:
    parts = {
        case: [_BETWEEN_WORDS.split(segment) for segment in _SAME_LENGTHS.sub(r"L\1", case).split("/")]
        for case in cases
    }
    if any(_threads(segments) for segments in parts.values()):
        # An id leaves out its one thread; beside cases with more it is a difference like any other.
        for segments in parts.values():
            if [CPU.name] in segments and not _threads(segments):
                segments.append(["threads1"])
    return parts


def _threads(segments: list[list[str]]) -> bool:
    return any(segment[0].startswith("threads") for segment in segments)


def _shared(parts: dict[str, list[list[str]]]) -> set[str]:
    words = [{word for segment in segments for word in segment} for segments in parts.values()]
    return set.intersection(*words) if len(words) > 1 else set()
