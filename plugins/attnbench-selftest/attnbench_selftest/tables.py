"""The findings of each command as tables: for a terminal, and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attnbench.reports.formats import bare_table, string_console, written
from attnbench_selftest.judge import Judged, Kill
from attnbench_selftest.live import LiveComparison
from attnbench_selftest.rates import Finding, Outcome, Scored, percent, target_text

MOST_NAMED = 4

WORDS: Mapping[Outcome, str] = {
    "met": "met: shown by the bound",
    "not refuted": "neither shown nor refuted",
    "missed": "missed, but not refuted",
    "refuted": "REFUTED",
}


@dataclass(frozen=True)
class Table:
    """Text by row and column; the first column is aligned left, numbers right."""

    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def print(self, width: int, colour: bool) -> str:
        """The table for a terminal of ``width`` columns."""
        table = bare_table()
        for position, head in enumerate(self.heads):
            numeric = position > 0 and all(row[position][:1] in "+-≤≥0123456789" for row in self.rows)
            table.add_column(head, overflow="fold", justify="right" if numeric else "left")
        for row in self.rows:
            table.add_row(*row)
        console = string_console(width, colour=colour)
        console.print(table)
        return written(console)

    def markdown(self) -> str:
        """The table for a document."""
        lines = [self.heads, tuple("---" for _ in self.heads), *self.rows]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def rate_text(scored: Scored, facts: Mapping[str, Any], *, width: int, colour: bool) -> str:
    """Findings, other tools' rates beside ours, planted slowdowns, and where the time went."""
    tables = [_findings(scored.findings)]
    peers = [one for one in scored.findings if one.peers]
    if peers:
        tables.append(_peers(peers))
    if scored.effects:
        tables.append(_effects(scored))
    notes = [*_footnotes(scored.findings), *_facts(facts)]
    return "\n".join([*(table.print(width, colour) for table in tables), "".join(f"{n}\n" for n in notes)])


def live_text(scored: Scored, comparisons: Sequence[LiveComparison], *, width: int, colour: bool) -> str:
    """Findings of live comparisons, and how long a comparison takes."""
    seconds = [one.seconds for one in comparisons]
    cells = sum(len(one.cells) for one in comparisons)
    note = (
        f"{len(comparisons)} comparisons, {cells} cells; a comparison took {min(seconds):.0f} to "
        f"{max(seconds):.0f} s\n"
    )
    return "\n".join([_findings(scored.findings).print(width, colour), note])


def _findings(findings: Sequence[Finding]) -> Table:
    rows = []
    for one in findings:
        number, sign = (one.high, "≤") if one.side == "at most" else (one.low, "≥")
        outcome = WORDS[one.outcome]
        if one.estimate is None:
            outcome = "not measured"
        elif one.outcome == "refuted" and not one.first:
            outcome = "not met"
        rows.append(
            (
                one.what,
                percent(one.estimate) or "–",
                "" if number is None else f"{sign} {percent(number)}",
                f"{one.events}/{one.trials}",
                target_text(one),
                "" if one.first else "informational",
                outcome,
            )
        )
    return Table(("what", "estimate", "95 % bound", "of", "target", "", "outcome"), rows)


def _peers(findings: Sequence[Finding]) -> Table:
    names = tuple(dict.fromkeys(name for one in findings for name in one.peers))
    rows = [
        (one.what, percent(one.estimate), *(percent(one.peers.get(name)) for name in names))
        for one in findings
    ]
    return Table(("other tools' rules on the same samples", "ours", *names), rows)


def _effects(scored: Scored) -> Table:
    rows = [
        (
            one.what,
            f"+{percent(one.nominal)}",
            f"{100 * one.realised:+.3g} %",
            "" if one.low is None else f"{percent(one.low)} to {percent(one.high)}",
            f"{one.repetitions} repetitions",
        )
        for one in scored.effects
    ]
    return Table(("planted", "nominal", "realised", "95 % interval", "of"), rows)


def _footnotes(findings: Sequence[Finding]) -> list[str]:
    chance = sum(one.false_failure for one in findings if one.first)
    notes = [f"a build that meets every target exactly is refuted in at most {percent(chance)} of such runs"]
    fewer = [one for one in findings if one.effective and one.effective < 0.995 * one.trials]
    if fewer:
        counts = ", ".join(f"{one.trials} as {one.effective:.0f} ({one.what})" for one in fewer)
        notes.append(f"cells that share a case or a baseline count as fewer independent ones: {counts}")
    return notes


def _facts(facts: Mapping[str, Any]) -> list[str]:
    environment = facts["environment"]
    before, after = facts["load_before"][0], facts["load_after"][0]
    lines = [
        f"measuring {facts['measuring_s']:.0f} s, setting up {facts['setup_s']:.0f} s; "
        f"load average {before:.2f} before, {after:.2f} after"
    ]
    if environment:
        cores = len(environment.get("cpus_allowed", []))
        lines.append(f"{environment.get('cpu')}, {cores} cores, torch {environment.get('torch')}")
    return lines


def judge_text(found: Judged, facts: Mapping[str, Any], *, width: int, colour: bool) -> str:
    """Totals by what shows a mistake, each check's worth, each wrong mutant, and what failed."""
    tables = (table.print(width, colour) for table in judge_tables(found))
    return "\n".join([*tables, *failures(found), conditions(facts)])


def judge_markdown(found: Judged, facts: Mapping[str, Any]) -> str:
    """The same for a document."""
    tables = (table.markdown() for table in judge_tables(found))
    return "\n".join([conditions(facts) + "\n", *tables, *(f"- {line}" for line in failures(found))])


def judge_tables(found: Judged) -> tuple[Table, Table, Table]:
    """Totals, checks, and wrong mutants."""
    return _totals(found), _checks(found), _mutants(found)


def _totals(found: Judged) -> Table:
    groups: dict[str, list[Kill]] = {}
    for kill in found.kills:
        groups.setdefault(f"wrong: {kill.trait}", []).append(kill)
    groups["wrong: all"] = list(found.kills)
    rows = []
    for what, kills in groups.items():
        refused, cases = sum(kill.refused for kill in kills), sum(kill.cases for kill in kills)
        killed = sum(not kill.survived for kill in kills)
        rows.append((what, str(len(kills)), str(killed), f"{refused}/{cases}", _share(refused, cases)))
    refused, cases = len(found.wronged), found.right_verdicts
    names = {one.mutant for one in found.wronged}
    rows.append(("right", str(found.right), str(len(names)), f"{refused}/{cases}", _share(refused, cases)))
    return Table(("what", "mutants", "refused", "of their cases", ""), rows)


def _checks(found: Judged) -> Table:
    rows = [(one.check, str(len(one.kills)), str(len(one.alone)), _named(one.alone)) for one in found.checks]
    return Table(("check", "refuses", "alone", "mutants that nothing else refuses"), rows)


def _mutants(found: Judged) -> Table:
    rows = [
        (kill.mutant.removeprefix("wrong_"), kill.trait, f"{kill.refused}/{kill.cases}", ", ".join(kill.by))
        for kill in found.kills
    ]
    return Table(("wrong", "shown by", "refused", "by"), rows)


def failures(found: Judged) -> list[str]:
    """A line for each thing that fails the command, and one for mutants that failed by themselves."""
    lines = [
        f"NOT REFUSED: {kill.mutant} ({kill.summary}) in seed {', '.join(map(str, kill.survived))}"
        for kill in found.survivors
    ]
    lines += [
        f"REFUSED THOUGH RIGHT: {one.mutant} on {one.case}: {one.status}: {one.reason}"
        for one in found.wronged
    ]
    if found.unasked:
        lines.append(f"NOT ASKED, for want of a case: {', '.join(found.unasked)}")
    failed = [kill.mutant for kill in found.kills if kill.failed]
    if failed:
        lines.append(f"crashed, raised or too slow in some cases, which is not counted: {', '.join(failed)}")
    return lines


def conditions(facts: Mapping[str, Any]) -> str:
    """When and on what machine this was found."""
    without = f", without {', '.join(facts['without'])}" if facts["without"] else ""
    seeds = ", ".join(map(str, facts["seeds"]))
    return (
        f"{facts['date']}: seed {seeds}{without}; {facts['verdicts']} verdicts in {facts['wall_s']:.0f} s on "
        f"{facts['cpu']}, {facts['cores']} cores, torch {facts['torch']}; load average "
        f"{facts['load_before']:.2f} before, {facts['load_after']:.2f} after"
    )


def _named(names: Sequence[str]) -> str:
    shown = [name.removeprefix("wrong_") for name in names[:MOST_NAMED]]
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(shown) + more


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.3g} %" if whole else "–"
