"""The answer of a run in sentences, for terminals, pages and notebooks: what to use, and what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from attnbench.cases.suites import TORCHS
from attnbench.reports.answer import (
    MOST_LISTED,
    count_asked,
    lead_text,
    listed,
    named,
    range_text,
    ratios_text,
    slower,
    tied_words,
)
from attnbench.reports.names import conditions_words
from attnbench.stats.answer import Lead, RunAnswer, is_failure
from attnbench.types.record import Record
from attnbench.types.status import MEANING, STATUSES, Status
from attnbench.types.words import count_of, first_of

_MOST_CHOSEN = 6
"""A sentence names no more backends to use."""


def use_sentences(
    answer: RunAnswer,
    names: Mapping[str, str],
    suites: Mapping[str, str] = MappingProxyType({}),
    asked: Mapping[str, frozenset[str]] = MappingProxyType({}),
) -> Iterator[tuple[RunAnswer, str]]:
    """Yield :func:`use_sentence` of all cases, or of each of several suites, with the answer that it is of.

    suites: by case, where a report has several. A sentence then begins with its suite and its conditions.
    asked: as of :class:`~attnbench.reports.judged.ReportPart`; the sentence then says of how many it is.
    """
    for suite in dict.fromkeys(suites.values()) or ("",):
        own = {case: name for case, name in names.items() if suites.get(case, "") == suite}
        leads = tuple(lead for lead in answer.leads if lead.best.case in own)
        chosen = {case: name for case, name in answer.chosen.items() if case in own}
        part = replace(answer, leads=leads, chosen=chosen)
        if words := use_sentence(part, own):
            if count := count_asked(asked, own):
                words = f"of the {count} backends asked, {words}"
            yield part, f"{suite} ({conditions_words(own)}): {words}" if suite else words


def use_sentence(answer: RunAnswer, names: Mapping[str, str]) -> str:
    """Say which backends to use in how many cases, how sure that is, and what others take; "" without a time.

    names: of the cases. As few backends as possible are named, and one that fails in no case comes first. The
    sentence has neither a capital letter nor a full stop.
    """
    leads = answer.leads
    if not leads:
        return ""
    if len(names) == 1:
        return lead_text(leads[0], answer.known)
    chosen: dict[str, list[Lead]] = {}
    its = {lead.best.case: lead for lead in leads}
    for case, name in answer.chosen.items():
        chosen.setdefault(name, []).append(its[case])
    shaky = {case for case, ratio in answer.chosen_disturbed.items() if ratio}
    which = _whole(leads, names, shaky) if len(chosen) == 1 else _divided(chosen, leads, shaky)
    told = [f"use {which}"]
    without = [name for case, name in names.items() if case not in {lead.best.case for lead in leads}]
    told += [f"{_counted(without, len(names))} without a time"] if without else []
    gains, takes = _gains(answer), _next(answer)
    if takes and gains:
        gains += f", the next backend {takes}"
    elif takes:
        gains = f"the next backend takes {takes} times as long"
    return "; ".join(filter(None, [told[0], gains, *told[1:]]))


def is_proved(answer: RunAnswer) -> bool:
    """Return whether the sentence of a run is proved for one of its cases at least.

    There one backend is the fastest, or torch's function or the baseline is slower than those that tie.
    """
    users = {TORCHS, answer.baseline}
    sure = {lead.sure for lead in answer.leads if not answer.chosen_disturbed.get(lead.best.case)}
    behind = any(lead.sure == "tie" and not users.isdisjoint(slower(lead)) for lead in answer.leads)
    return "few repetitions" not in sure and ("clear" in sure or behind)


def _whole(leads: Sequence[Lead], names: Mapping[str, str], shaky: Collection[str]) -> str:
    """Name what may be used in all cases: several backends where no case tells them apart.

    shaky: cases in which other work disturbed the ratios of the one to use.
    """
    every = [name for name in leads[0].candidates if all(name in lead.candidates for lead in leads)]
    which = f"any of {len(every)} backends" if len(every) > MOST_LISTED else " or ".join(every)
    if len(every) == 1:
        which = named(every[0])
        if every[0] == TORCHS and all(lead.sure == "clear" for lead in leads):
            which += ", nothing is faster,"
    where = {1: "the only case", 2: "both cases"}.get(len(leads), f"all {len(leads):,} cases")
    timed = "" if len(leads) == len(names) else " with a time"
    return f"{which} in {where}{timed}{_sureness(leads, shaky, names)}"


def _divided(chosen: Mapping[str, Sequence[Lead]], leads: Sequence[Lead], shaky: Collection[str]) -> str:
    """Name the backends to use with the number of their cases."""
    told = [
        f"{name} in {len(its)}{'' if place else f' of {len(leads):,} cases'}{_sureness(its, shaky, use=name)}"
        for place, (name, its) in enumerate(chosen.items())
    ]
    return first_of(told, _MOST_CHOSEN)


def _sureness(
    leads: Sequence[Lead], shaky: Collection[str], names: Mapping[str, str] | None = None, use: str = ""
) -> str:
    """Say in brackets in how many cases a choice is proved, and in which it ties; "" if proved in all.

    shaky: cases in which it is less sure than its ratio says. use: the backend that is chosen, where it is
    one: ties then name the others.
    """
    unsure = [lead.best.case for lead in leads if lead.sure == "clear" and lead.best.case in shaky]
    count: Counter[str] = Counter(lead.sure for lead in leads)
    count["clear"] -= len(unsure)
    count["less sure"] = len(unsure)
    if count["clear"] == len(leads):
        return ""
    words = {
        "clear": "sure",
        "less sure": "less sure",
        "few repetitions": "too few repetitions",
        "alone": "no other has a time",
    }
    told = [
        f"{word}{'' if count[sure] == len(leads) else f' in {count[sure]}'}"
        for sure, word in words.items()
        if count[sure]
    ]
    if names and 0 < len(unsure) < len(leads):
        where = listed([names[case] for case in unsure])
        told = [f"{one}: {where}" if one.startswith("less sure") else one for one in told]
    tied = [lead.best.case for lead in leads if lead.sure == "tie"]
    if use:
        told += filter(None, [tied_words(leads, use)])
    elif tied and len(tied) == len(leads):
        told.append("tied" if len(leads) == 1 else "tied in each")
    elif tied:
        told.append(f"tied in {len(tied)}{f': {listed([names[case] for case in tied])}' if names else ''}")
    return f" ({', '.join(told)})"


def _gains(answer: RunAnswer) -> str:
    """Say what torch's function, the baseline and what users brought take, where not the fastest."""
    found: list[tuple[str, str, int]] = []
    for name in dict.fromkeys(filter(None, (TORCHS, answer.baseline, *answer.known))):
        takes, count = range_text(answer.leads, name)
        if count:
            found.append((name, takes, count))
    everywhere = all(count == len(answer.leads) for *_, count in found)
    told: list[str] = []
    for name, takes, count in found:
        words = f"{named(name)} {takes}" if told else f"{named(name)} takes {takes} times as long"
        where = f" in {count:,}" if told else f" in {count_of(count, 'case')}"
        told.append(words if everywhere else words + where)
    return ", ".join(told)


def _next(answer: RunAnswer) -> str:
    """Return the ratios of the next backends; "" unless torch's function is the fastest of each case."""
    after = [next(iter(slower(lead).items()), None) for lead in answer.leads if lead.best.backend == TORCHS]
    found = [one for one in after if one is not None]
    if len(found) < len(answer.leads) or {name for name, _ in found} <= {answer.baseline}:
        return ""
    return ratios_text(takes for _, takes in found)[0]


def _counted(places: Sequence[str], cases: int) -> str:
    """Count cases among all, and name the first of them."""
    if len(places) == cases:
        return "both cases" if cases == 2 else f"all {cases:,} cases"
    return f"{len(places):,} of {count_of(cases, 'case')} ({listed(places)})"


def failed_words(status: Status, backends: Sequence[str], places: Sequence[str], cases: int) -> str:
    """Say what is wrong with backends, and in which of so many cases. places: names of these cases."""
    subject = backends[0] if len(backends) == 1 else f"each of {listed(backends)}"
    where = f" in {_counted(places, cases)}" if cases > 1 else ""
    return f"{subject} {MEANING[status].verb}{where}"


def failure_sentences(records: Sequence[Record], names: Mapping[str, str]) -> Iterator[tuple[Status, str]]:
    """Yield the status and a sentence for each group of backends that fail alike in the same cases."""
    failed: dict[tuple[Status, str], list[str]] = {}
    for record in filter(is_failure, records):
        failed.setdefault((record.status, record.backend), []).append(record.case)
    alike: dict[tuple[Status, tuple[str, ...]], list[str]] = {}
    for (status, backend), cases in failed.items():
        alike.setdefault((status, tuple(cases)), []).append(backend)
    for (status, where), backends in sorted(alike.items(), key=lambda one: STATUSES.index(one[0][0])):
        yield status, failed_words(status, backends, [names[case] for case in where], len(names))
