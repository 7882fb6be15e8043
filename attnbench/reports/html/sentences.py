"""A run in sentences: who leads where, by how much, how surely; what failed, and why. No word is firmer than
the verdicts and intervals that it rests on.
"""

from __future__ import annotations

from attnbench.reports.html.against_baseline import against_baseline
from attnbench.reports.html.failures import failures
from attnbench.reports.html.lead_sentences import lead_sentences
from attnbench.reports.html.short_ids import common_part
from attnbench.reports.html.shown import Shown
from attnbench.reports.html.words import Name, Sentence, sentence, some


def summary(run: Shown) -> list[Sentence]:
    """What there is to say of a run, the most important first."""
    return [*_scope(run), *lead_sentences(run.leads), *against_baseline(run.judged), *failures(run.judged)]


def _scope(run: Shown) -> list[Sentence]:
    records = run.records
    cases = {record.case for record in records}
    backends = {record.backend for record in records}
    if not records:
        return [sentence("The run has no outcome yet.", tone="bad")]
    ok = sum(record.status == "ok" for record in records)
    checked = "its output was checked and is right" if ok == 1 else "their outputs were checked and are right"
    said = [
        sentence(
            f"{some(len(backends), 'backend')} on {some(len(cases), 'case')}: of "
            f"{some(len(records), 'outcome')} {ok:,} {'is' if ok == 1 else 'are'} ok",
            f", which says that {checked}." if ok else ".",
        )
    ]
    common = common_part([record.case for record in records])
    if common.text:
        said.append(
            sentence("All cases have in common: ", Name(common.text), ". Their names leave that out here.")
        )
    if run.manifest.protocol.get("timed") is False:
        said.append(sentence("Nothing was timed: this run only checked."))
    if run.ended is None:
        said.append(
            sentence(
                "The run was cut off",
                f": {some(run.missing, 'outcome')} of it are missing" if run.missing > 1 else "",
                "; nothing here speaks for what it had not got to. Go on with it by attnbench run --resume ",
                Name(str(run.path)), ".",
                tone="bad",
            )
        )  # fmt: skip
    return said
