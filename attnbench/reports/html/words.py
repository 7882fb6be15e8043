"""The words of the page and of notebooks: findings, what to use in each case, failures, facts of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attnbench.cases.work import human_bytes
from attnbench.reports.answer import (
    ABSENT,
    ASKED_KEY,
    NOT_ASKED,
    TIED,
    busy_text,
    case_cell,
    disturbed_words,
    missing_mark,
    next_text,
    slower,
    times_text,
)
from attnbench.reports.columns import KERNEL_CONVENTION, name_text, time_text
from attnbench.reports.formats import plain
from attnbench.reports.judged import JudgedRecord, ReportPart
from attnbench.reports.names import short_names
from attnbench.reports.overview import asked_counts, counted, is_slow, told_reasons
from attnbench.reports.run import Run
from attnbench.reports.sentences import failure_sentences, is_proved, use_sentences
from attnbench.stats.answer import contended, disturbed, is_failure
from attnbench.types.compared import BASE, HEAD
from attnbench.types.record import Manifest
from attnbench.types.status import MEANING, STATUSES, Status, status_words
from attnbench.types.words import capital, count_of, first_of


@dataclass(frozen=True)
class Sentence:
    """A sentence of the page.

    subject: the name at its beginning, "" for none. tone: ``good``, ``unsure``, ``bad`` or ``plain``. run:
    the label of the run that it is on, where it stands among those of others.
    """

    subject: str
    text: str
    tone: str = "plain"
    run: str = ""


@dataclass(frozen=True)
class FailedOutcomes:
    """Outcomes of one backend that have the same status and reason."""

    status: Status
    backend: str
    reason: str
    cases: tuple[str, ...]


def isolated(text: str) -> str:
    """Wrap a name that may switch the writing direction, so that it cannot reverse the text around it.

    Source: Unicode Standard Annex 9, section 2.7.
    """
    return text if text.isascii() else f"\u2068{text}\u2069"


def minute(moment: str) -> str:
    """Return a moment of a run file, which is in UTC, to the minute."""
    return f"{moment[:16].replace('T', ' ')} UTC"


def kinds_of(part: ReportPart) -> list[str]:
    """The kinds of device of the outcomes of a part."""
    return sorted({one.device_kind for one in part.judged})


def findings(part: ReportPart, manifest: Manifest) -> list[Sentence]:
    """The scope of a run, with backends that it did not ask; then in a live comparison what became slower."""
    judged, records = part.judged, [one.record for one in part.judged]
    if not records:
        return [Sentence("", "The run has no outcome yet.", "bad")]
    asked, _ = asked_counts(records, ())
    rest = f"; not asked: {first_of(part.not_asked, MOST_NOT_ASKED)}" if part.not_asked else ""
    found = [Sentence("", f"{count_of(asked, 'backend')} on {counted(records)}{rest}.")]
    if manifest.protocol.get("timed") is False:
        found.append(Sentence("", "Nothing was timed: this run only checked outputs."))
    if manifest.sides:
        base, head = (isolated(str(manifest.sides.get(side, {}).get("name") or "?")) for side in (BASE, HEAD))
        found.append(
            Sentence("", f"@{BASE} is {base}; @{HEAD} is {head}. Each backend is compared with itself.")
        )
        slower = Counter(one.record.backend for one in judged if one.verdict == "slower")
        return found + [
            Sentence(name, f"became slower in {count_of(count, 'case')}.", "bad")
            for name, count in slower.most_common()
        ]
    return found


def against_words(one: JudgedRecord) -> str:
    """Say what a verdict is against, as "than eager"; "" for the baseline itself."""
    joined = _AGAINST.get(one.verdict or "")
    return f"{joined} {one.record.baseline}" if joined else ""


def verdict_words(one: JudgedRecord) -> str:
    """Return a verdict with the backend that it is against, as "faster than eager"."""
    return f"{one.verdict or ''} {against_words(one)}".strip()


def use_words(part: ReportPart, run: str = "") -> list[Sentence]:
    """Say which backends to use in a part, and which fail. run: its label, as of :class:`Sentence`."""
    records = [one.record for one in part.judged]
    names = short_names(record.case for record in records)
    told = [] if part.answer is None else use_sentences(part.answer, names, part.suites, part.asked)
    found = []
    for answer, words in told:
        text = isolated(words) if part.suites else capital(words)
        found.append(Sentence("", f"{text}.", "good" if is_proved(answer) else "unsure", run))
        winners = disturbed_words(answer, {case: names[case] for case in answer.chosen})
        if winners and (part.suites or run):
            # Of one run the sentence on all measurements says it.
            suite = dict.fromkeys(part.suites[case] for case in answer.chosen) if part.suites else {}
            text = isolated(f"{', '.join(suite)}: {winners}") if suite else capital(winners)
            found.append(Sentence("", f"{text}.", "unsure", run))
    return [*found, *failure_words(part, run)]


def failure_words(part: ReportPart, run: str = "") -> list[Sentence]:
    """Name the backends of a part that fail, with their cases."""
    records = [one.record for one in part.judged]
    told = list(failure_sentences(records, short_names(record.case for record in records)))
    found = [
        Sentence("", f"{words}.", _TONES.get(MEANING[status].kind, "bad"), run) for status, words in told
    ]
    if len(found) > MOST_FAILURES:
        left = count_of(len(found) - MOST_FAILURES, "more failure")
        found[MOST_FAILURES:] = [Sentence("", f"{left}: see Failures.", "bad", run)]
    return found


def busy(part: ReportPart) -> list[Sentence]:
    """Say that other processes disturbed a part, in a list that is empty where they did not.

    A sentence on all runs says what helps.
    """
    words = "" if part.answer is None else busy_text(part.answer, of_all=False)
    return [Sentence("", f"{words}.", "unsure")] if words else []


def calls_of(run: Run, part: ReportPart) -> dict[str, float]:
    """Return the calls of each case in a step, where they were counted."""
    return {case: count for one in part.runs for case, count in run.manifests[one].counts.items()}


def stages_of(run: Run, part: ReportPart) -> dict[str, str]:
    """Return the stage of the step that each case is of, as ``decode``, where that is known."""
    return {case: stage for one in part.runs for case, stage in run.manifests[one].stages.items()}


_RATIOS_TOO = "disturbed, ratio too"


@dataclass(frozen=True)
class LeadRow:
    """What to use in a case.

    case: its id. also: what may be as fast, "" for nothing. fails: of a backend to use that fails in other
    cases, as "wrong in 2 cases", else "". disturbed: in words, what other processes disturbed, else "".
    users: for each backend that users have its time over that of the fastest; users_disturbed: whether other
    processes disturbed it, where it is not the one to use. following: the next backend
    with its own. Ratios are those of the terminal, with their intervals. far: it is red.
    """

    case: str
    use: str
    also: str
    fails: str
    time: str
    disturbed: str
    users: tuple[str, ...]
    users_disturbed: tuple[bool, ...]
    following: str
    far: bool


def lead_rows(part: ReportPart, users: Sequence[str]) -> list[LeadRow]:
    """Return a row for each case with a time. users: backends that have a column of their own."""
    if part.answer is None:
        return []
    cells = {(one.record.case, one.record.backend): one for one in part.judged}
    failed: dict[str, list[Status]] = {}
    for one in part.judged:
        if is_failure(one.record):
            failed.setdefault(one.record.backend, []).append(one.record.status)
    fails = {
        name: ", ".join(
            f"{status_words(status)} in {count_of(n, 'case')}" for status, n in Counter(its).items()
        )
        for name, its in failed.items()
    }

    def told(name: str) -> str:
        return f"{name} ({fails[name]})" if name in fails else name

    rows = []
    for lead in part.answer.leads:
        use = cells[lead.best.case, part.answer.chosen[lead.best.case]].record
        also = [name for name in lead.candidates if name != use.backend]
        following = next(iter(slower(lead).values()), None)
        row = LeadRow(
            lead.best.case,
            name_text(use),
            f"{TIED} {first_of(list(map(told, also)), MOST_TIES)}" if also else "",
            fails.get(use.backend, ""),
            time_text(use) or "",
            (_RATIOS_TOO if contended(use) else "disturbed") if disturbed(use) else "",
            tuple(
                case_cell(
                    cells.get((lead.best.case, user)),
                    lead,
                    bounds=True,
                    missing=missing_mark(part, lead.best.case, user),
                )
                for user in users
            ),
            tuple(
                user != use.backend
                and (lead.best.case, user) in cells
                and disturbed(cells[lead.best.case, user].record)
                for user in users
            ),
            "alone" if lead.sure == "alone" else next_text(lead, details=True),
            following is not None and is_slow(times_text(following)),
        )
        rows.append(row)
    return rows


def leads_key(rows: Sequence[LeadRow]) -> str:
    """Explain the marks of the table of what to use: ratios, and ties, disturbed times and arrows it has."""
    told = [f"×: so many times as long as the fastest, with its interval; {TIED}: may be as fast"]
    if any(row.also for row in rows):
        told.append("of several the first serves most cases, and need not have the least time")
    if any(row.disturbed for row in rows):
        told.append("disturbed: other work made this time less sure; ratios leave such samples out")
    if any(row.disturbed == _RATIOS_TOO for row in rows):
        told.append("ratio too: most samples were such, so ratios are less sure as well")
    if any(ABSENT in row.users for row in rows):
        told.append(f"{ABSENT}: does not run this case")
    if any(NOT_ASKED in row.users for row in rows):
        told.append(ASKED_KEY)
    if any("→" in row.use for row in rows):
        told.append(KERNEL_CONVENTION)
    return f"{'; '.join(told)}."


def failures(judged: Sequence[JudgedRecord]) -> tuple[list[FailedOutcomes], list[FailedOutcomes]]:
    """Failed outcomes, grouped by status, backend and reason; then those that could not run here."""
    records = [one.record for one in judged if one.record.status != "ok"]
    groups: dict[tuple[Status, str, str], list[str]] = {}
    for record, reason in zip(records, told_reasons(records), strict=True):
        groups.setdefault((record.status, record.backend, reason), []).append(record.case)
    worst_first = sorted(groups, key=lambda key: (STATUSES.index(key[0]), *key[1:]))
    found = [FailedOutcomes(*key, tuple(groups[key])) for key in worst_first]
    quiet = [one for one in found if MEANING[one.status].declined]
    return [one for one in found if not MEANING[one.status].declined], quiet


_AGAINST = {"faster": "than", "slower": "than", "same": "as", "unclear": "vs"}
MOST_TIES = 3
"""A row names no more backends that may be as fast."""
MOST_NOT_ASKED = 12
"""A sentence names no more backends that were not asked; a page lists more below it."""
MOST_FAILURES = 4
"""Sentences on failures of a run."""
_TONES = {"inexact": "unsure", "doubtful": "unsure", "unknown": "unsure"}
"""Of failures that are no fault of a backend's outputs."""
MOST_VALUES = 6
"""A fact that differs between runs shows no more values."""


def facts(
    manifests: Sequence[Manifest], paths: Sequence[str], finished: Sequence[bool]
) -> dict[str, list[tuple[str, str]]]:
    """The facts of runs as pairs of name and text, in three parts; what differs between runs in one text."""
    parts: dict[str, dict[str, dict[str, None]]] = {"Run": {}, "Environment": {}, "Protocol": {}}
    for manifest, path, whole in zip(manifests, paths, finished, strict=True):
        brought: dict[str, list[str]] = {}
        for one in manifest.plugins:
            brought.setdefault(f"{one.distribution} {one.version}", []).append(one.name)
        plugins = "; ".join(f"{what} ({', '.join(names)})" for what, names in brought.items())
        run = {
            "file": path,
            "run": manifest.run_id,
            "started": minute(manifest.started),
            "finished": whole,
            "attnbench": manifest.attnbench,
            "command": " ".join(manifest.command),
            "plugins": plugins,
            "side": manifest.sides,
        }
        environment = dict(manifest.environment)
        if isinstance(flags := environment.get("torch_flags"), Mapping):
            # Of the process that read the facts; each case has its own number of threads.
            environment["torch_flags"] = {name: flag for name, flag in flags.items() if name != "threads"}
        for part, values in zip(parts.values(), (run, environment, manifest.protocol), strict=True):
            for name, text in _flat(values):
                part.setdefault(name, {})[text] = None
    return {
        title: [(name, first_of(list(texts), MOST_VALUES, "; ")) for name, texts in part.items()]
        for title, part in parts.items()
    }


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        words = before + str(name).replace("_", " ")
        if isinstance(value, Mapping):
            yield from _flat(value, f"{words}: ")
        elif value is not None and value != "":
            of_bytes = str(name).endswith("bytes") and isinstance(value, int | float)
            yield words, human_bytes(value) if of_bytes else plain(value)
