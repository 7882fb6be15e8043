"""What has no time that counts, and why, in sentences: wrong answers first."""

from __future__ import annotations

from collections.abc import Sequence

from attnbench.reports.html.words import Name, Sentence, Tone, isolated, listed, sentence
from attnbench.reports.judged import Judged
from attnbench.types.record import Record, Status
from attnbench.types.words import count_of

MOST_GROUPS = 8
MOST_NAMES = 6
_SAID: dict[Status, tuple[str, Tone]] = {
    "mismatch": (" gave a wrong output in ", "bad"),
    "crashed": (" crashed in ", "bad"),
    "timeout": (" did not answer in ", "bad"),
    "out_of_memory": (" had too little memory in ", "bad"),
    "error": (" failed with an error in ", "bad"),
    "suspect": (" has a time that can't be believed, and ranks nowhere, in ", "unsure"),
}
_QUIET: dict[Status, str] = {
    "unsupported": "the backend can't, or the suite leaves it out", "unavailable": "can't run here",
}  # fmt: skip


def failures(judged: Sequence[Judged]) -> list[Sentence]:
    """A sentence for each backend, status and reason; the quiet statuses in one sentence each."""
    records = [one.record for one in judged]
    groups: dict[tuple[Status, str, str], list[Record]] = {}
    for status in _SAID:
        for record in records:
            if record.status == status:
                groups.setdefault((status, record.backend, record.reason), []).append(record)
    said = [_of_group(key, those) for key, those in list(groups.items())[:MOST_GROUPS]]
    rest = [record for those in list(groups.values())[MOST_GROUPS:] for record in those]
    if rest:
        said.append(
            sentence(
                f"{count_of(len(rest), 'more outcome')} failed or can't be believed: "
                "the table has each reason.",
                tone="bad", cases=list(dict.fromkeys(record.case for record in rest)),
            )
        )  # fmt: skip
    return [*said, *(quiet for status in _QUIET for quiet in _quiet(status, records))]


def _of_group(key: tuple[Status, str, str], records: Sequence[Record]) -> Sentence:
    status, backend, reason = key
    words, tone = _SAID[status]
    cases = [record.case for record in records]
    return sentence(
        Name(backend), f"{words}{count_of(len(cases), 'case')}", f": {isolated(reason)}." if reason else ".",
        tone=tone, cases=cases,
    )  # fmt: skip


def _quiet(status: Status, records: Sequence[Record]) -> list[Sentence]:
    those = [record for record in records if record.status == status]
    if not those:
        return []
    names = list(dict.fromkeys(record.backend for record in those))
    verb = "is" if len(those) == 1 else "are"
    return [
        sentence(
            f"{count_of(len(those), 'outcome')} {verb} {status} ({_QUIET[status]}): of ",
            listed(names) if len(names) <= MOST_NAMES else [count_of(len(names), "backend")],
            ".",
        )
    ]
