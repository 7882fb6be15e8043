"""A run in sentences: who leads where, by how much, how surely; what failed, and why. No word is firmer than
the verdicts and intervals that it rests on.
"""

from __future__ import annotations

from attnbench.reports.html.against_baseline import against_baseline
from attnbench.reports.html.failures import failures
from attnbench.reports.html.lead_sentences import lead_sentences
from attnbench.reports.html.short_ids import common_part
from attnbench.reports.html.shown import Shown
from attnbench.reports.html.words import Name, Piece, Sentence, sentence
from attnbench.types.sides import BASE, HEAD, parts_of
from attnbench.types.words import count_of


def summary(run: Shown) -> list[Sentence]:
    """What there is to say of a run, the most important first: of a live comparison that is how its sides
    compare, of any other who leads.
    """
    leads, compared = lead_sentences(run.leads), against_baseline(run.judged, run.foremost)
    found = [*compared, *leads] if run.manifest.sides else [*leads, *compared]
    return [*_scope(run), *found, *failures(run.judged)]


def _scope(run: Shown) -> list[Sentence]:
    records = run.records
    cases = {record.case for record in records}
    sides = run.manifest.sides
    backends = {parts_of(record.backend)[0] if sides else record.backend for record in records}
    if not records:
        return [*_sides(run), sentence("The run has no outcome yet.", tone="bad"), *_cut_off(run)]
    ok = sum(record.status == "ok" for record in records)
    checked = "its output was checked and is right" if ok == 1 else "their outputs were checked and are right"
    on_both = ", on two sides," if sides else ""
    said = [
        *_sides(run),
        sentence(
            f"{count_of(len(backends), 'backend')}{on_both} on {count_of(len(cases), 'case')}: of "
            f"{count_of(len(records), 'outcome')} {ok:,} {'is' if ok == 1 else 'are'} ok",
            f", which says that {checked}." if ok else ".",
        ),
    ]
    common = common_part([record.case for record in records])
    if common.text:
        said.append(
            sentence("All cases have in common: ", Name(common.text), ". Their names leave that out here.")
        )
    if run.manifest.protocol.get("timed") is False:
        said.append(sentence("Nothing was timed: this run only checked."))
    return [*said, *_cut_off(run)]


def _sides(run: Shown) -> list[Sentence]:
    """Of a live comparison, what its sides are and what is held against what."""
    sides = run.manifest.sides
    if not sides:
        return []
    base, head = (str(sides.get(side, {}).get("name") or "not told") for side in (BASE, HEAD))
    return [
        sentence(
            "Two sides were measured beside each other: ", Name(f"@{BASE}"), " is ", Name(base), ", ",
            Name(f"@{HEAD}"), " is ", Name(head),
            ". The baseline of each backend is itself on the base side.",
        )
    ]  # fmt: skip


def _cut_off(run: Shown) -> list[Sentence]:
    if run.ended is not None:
        return []
    missing = f": {count_of(run.missing, 'outcome')} of it {'is' if run.missing == 1 else 'are'} missing"
    go_on: list[Piece] = ["Go on with it by attnbench run --resume ", Name(str(run.path))]
    if run.manifest.sides:
        go_on = ["Compare anew: the sides of a live comparison are gone when it ends"]
    return [
        sentence(
            "The run was cut off", missing if run.missing else "",
            "; nothing here speaks for what it had not got to. ", go_on, ".",
            tone="bad",
        )
    ]  # fmt: skip
