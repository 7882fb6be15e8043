"""The fastest of each case, as rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attnbench.reports.columns import name_text, time_text
from attnbench.reports.html.lead_sentences import times_as_long
from attnbench.reports.html.leads import Kind, Lead
from attnbench.reports.html.times import time_interval

_SAID: dict[Kind, str] = {
    "sole": "proved", "level": "shared", "unclear": "not proved", "alone": "no other", "none": "no time",
}  # fmt: skip


@dataclass(frozen=True)
class LeadRow:
    """A case: its fastest, how long it takes, the next one, how many times as long that takes, how sure."""

    case: str
    best: str
    time: str
    interval: str
    following: str
    times_as_long: str
    said: str
    kind: Kind


def lead_rows(leads: Sequence[Lead]) -> list[LeadRow]:
    """A row for each case, in their order."""
    return [_row(lead) for lead in leads]


def _row(lead: Lead) -> LeadRow:
    best, following = lead.best, lead.rivals[0].record if lead.rivals else None
    taken = ""
    if following is not None:
        taken = times_as_long(following.ratio, following.ratio_low, following.ratio_high)
    return LeadRow(
        case=lead.case,
        best="" if best is None else name_text(best),
        time="" if best is None else time_text(best) or "",
        interval="" if best is None else time_interval(best),
        following="" if following is None else name_text(following),
        times_as_long=taken,
        said=_SAID[lead.kind],
        kind=lead.kind,
    )
