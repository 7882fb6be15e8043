"""Who is the fastest where, by how much, and how surely, in sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from attnbench.reports.columns import UNCERTAIN, name_text
from attnbench.reports.html.leads import Lead, Rival
from attnbench.reports.html.short_ids import common_part, shortened
from attnbench.reports.html.spans import span
from attnbench.reports.html.words import Name, Piece, Sentence, listed, sentence, share
from attnbench.reports.units import ratio
from attnbench.types.words import count_of

MOST_OF_A_KIND = 4
"""Sentences of a kind; the others are told in one, and stand in the table of leads."""
MOST_BESIDE = 6
"""Backends that are named as sharing a lead; of more it is told how many they are."""
TABLE_OF_LEADS = "The fastest of each case"
"""What the table is called on the page."""
Key = TypeVar("Key")
Say = Callable[[list[Lead]], Sentence]


def lead_sentences(leads: Sequence[Lead]) -> list[Sentence]:
    """First what is proved, then what isn't, then the cases in which there is nothing to win."""
    common = common_part([lead.case for lead in leads])

    def where(those: Sequence[Lead]) -> list[Piece]:
        if len(leads) > 1 and len(those) == 1:
            return ["on ", Name(shortened(those[0].case, common))]
        return [f"in {share(len(those), len(leads), 'case')}"]

    def unfolded(those: Sequence[Lead]) -> list[str]:
        """Cases that aren't named in the sentence."""
        return [] if 1 == len(those) < len(leads) else [lead.case for lead in those]

    by_kind = {kind: [lead for lead in leads if lead.kind == kind] for kind in ("sole", "level", "unclear")}

    def saying(say: Callable[[list[Lead], list[Piece], list[str]], Sentence]) -> Say:
        return lambda those: say(those, where(those), unfolded(those))

    said = [
        *_grouped(by_kind["sole"], _best, saying(_sole), "with a proved winner"),
        *_grouped(by_kind["level"], _together, saying(_level), "with a shared lead"),
        *_grouped(by_kind["unclear"], _together, saying(_unclear), "without a proved winner"),
    ]
    alone = [lead for lead in leads if lead.kind == "alone"]
    if alone:
        said.append(
            sentence(
                _capital(where(alone)),
                " only one backend has a time, so nothing is won there.",
                cases=unfolded(alone),
            )
        )
    return said


def _grouped(leads: Sequence[Lead], key: Callable[[Lead], Key], say: Say, others: str) -> list[Sentence]:
    """A sentence for each key, that of the most cases first; what is beyond ``MOST_OF_A_KIND`` in one."""
    groups: dict[Key, list[Lead]] = {}
    for lead in leads:
        groups.setdefault(key(lead), []).append(lead)
    ordered = sorted(groups.values(), key=len, reverse=True)
    said = [say(those) for those in ordered[:MOST_OF_A_KIND]]
    rest = [lead.case for those in ordered[MOST_OF_A_KIND:] for lead in those]
    if rest:
        said.append(
            sentence(f"{count_of(len(rest), 'more case')} {others}: see “{TABLE_OF_LEADS}”.", cases=rest)
        )
    return said


def _best(lead: Lead) -> str:
    return "" if lead.best is None else name_text(lead.best)


def _together(lead: Lead) -> tuple[str, ...]:
    return (_best(lead), *sorted(name_text(rival.record) for rival in lead.beside))


def _sole(leads: list[Lead], where: list[Piece], cases: list[str]) -> Sentence:
    best = _best(leads[0])
    words: list[Piece] = [Name(best), " is the fastest ", *where, ", and that is proved: "]
    if len(leads) == 1:
        (lead,) = leads
        words += _next_takes(lead)
    else:
        by = span([lead.rivals[0].record for lead in leads])
        by = by if " to " in by else f"about {by}"
        words.append(
            f"every other backend with a time is slower there, the next one taking {by} times as long."
        )
    return sentence(words, tone="good", cases=cases)


def _next_takes(lead: Lead) -> list[Piece]:
    following = lead.rivals[0].record
    return [
        "the next one, " if len(lead.rivals) > 1 else "the only other, ",
        Name(name_text(following)),
        f", takes {times_as_long(following.ratio, following.ratio_low, following.ratio_high)} times as long.",
    ]


def _level(leads: list[Lead], where: list[Piece], cases: list[str]) -> Sentence:
    deltas = {lead.best.delta for lead in leads if lead.best is not None and lead.best.delta}
    within = " or ".join(f"{100 * delta:g} %" for delta in sorted(deltas)) or "the least effect"
    beside = [name_text(rival.record) for rival in leads[0].beside]
    others = "all others with a time are proved slower"
    if len(leads[0].rivals) == len(beside):
        others = "no other has a time"
    names = listed([_best(leads[0]), *beside])
    if len(beside) > MOST_BESIDE:
        names = [Name(_best(leads[0])), f" and {count_of(len(beside), 'other')}"]
    return sentence(
        names,
        " share the lead ",
        where,
        f": they are proved to take the same time, within {within} of the fastest, and {others}.",
        tone="good",
        cases=cases,
    )


def _unclear(leads: list[Lead], where: list[Piece], cases: list[str]) -> Sentence:
    beside = leads[0].beside
    doubtful = [name_text(rival.record) for rival in beside]
    return sentence(
        _capital(where),
        " it is not proved who is the fastest: ",
        Name(_best(leads[0])),
        " has the least median, but ",
        listed(doubtful) if len(doubtful) <= MOST_OF_A_KIND else [count_of(len(doubtful), "other")],
        f" {'is' if len(doubtful) == 1 else 'are'} not proved slower",
        _ratio_of(beside[0]) if len(leads) == len(beside) == 1 else "",
        ".",
        tone="unsure",
        cases=cases,
    )


def _ratio_of(rival: Rival) -> str:
    record = rival.record
    if record.ratio is None:
        return ""
    return f" ({times_as_long(record.ratio, record.ratio_low, record.ratio_high)} times its time)"


def times_as_long(value: float | None, low: float | None, high: float | None) -> str:
    """A ratio with its interval: 1.31 [1.28, 1.35]; 1.3? where there are too few sets for one."""
    if value is None:
        return "?"
    text, bounds = ratio(value, low, high)
    return f"{text} {bounds}" if bounds else f"{text}{UNCERTAIN}"


def _capital(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces as the beginning of a sentence."""
    first, *rest = pieces
    return [f"{first[:1].upper()}{first[1:]}" if isinstance(first, str) else first, *rest]
