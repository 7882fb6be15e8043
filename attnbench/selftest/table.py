"""What a self-test found, as tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attnbench.reports.console import bare_table, string_console, written
from attnbench.selftest.findings import Finding, Outcome, Scored, percent, target, value

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

WORDS: Mapping[Outcome, str] = {
    "met": "met: shown by the bound",
    "not refuted": "neither shown nor refuted",
    "missed": "missed, but not refuted",
    "refuted": "REFUTED",
}


def tables(scored: Scored, facts: Mapping[str, Any], *, width: int = 120, colour: bool = False) -> str:
    """Findings, other tools' figures beside ours, what was planted, where the time went."""
    parts: list[RenderableType] = [_findings(scored.findings)]
    peers = [one for one in scored.findings if one.peers]
    if peers:
        parts.append(_peers(peers))
    if scored.effects:
        parts.append(_effects(scored))
    notes = [*scored.notes, *_footnotes(scored.findings), *_facts(facts)]
    return "\n".join([*(_text(part, width, colour) for part in parts), "".join(f"{n}\n" for n in notes)])


def _findings(findings: Sequence[Finding]) -> Table:
    table = _table("what", "estimate", "95 % bound", "of", "target", "", "outcome")
    for one in findings:
        table.add_row(
            one.what,
            value(one, one.estimate) or "–",
            _bound(one),
            _of(one),
            target(one),
            "" if one.first else "beyond",
            _outcome(one),
            style="bold red" if one.outcome == "refuted" and one.first else None,
        )
    return table


def _outcome(one: Finding) -> str:
    if one.estimate is None:
        return "not measured"
    # What is aimed at beyond the first targets can't be refuted in a way that fails anything.
    return "not met" if one.outcome == "refuted" and not one.first else WORDS[one.outcome]


def _bound(one: Finding) -> str:
    if one.side == "exactly":
        return (
            "" if one.low is None or one.high is None else f"{value(one, one.low)} to {value(one, one.high)}"
        )
    number = one.high if one.side == "at most" else one.low
    return "" if number is None else f"{'≤' if one.side == 'at most' else '≥'} {value(one, number)}"


def _of(one: Finding) -> str:
    return f"{one.events}/{one.trials}" if one.unit == "share" else f"{one.trials} sets"


def _peers(findings: Sequence[Finding]) -> Table:
    names = list(dict.fromkeys(name for one in findings for name in one.peers))
    table = _table("other tools' rules on the same samples", "ours", *names)
    for one in findings:
        rates = (percent(one.peers[name]) if name in one.peers else "" for name in names)
        table.add_row(one.what, value(one, one.estimate), *rates)
    return table


def _effects(scored: Scored) -> Table:
    table = _table("planted", "nominal", "realised", "95 % interval", "of")
    for one in scored.effects:
        interval = "" if one.low is None or one.high is None else f"{percent(one.low)} to {percent(one.high)}"
        table.add_row(
            one.what, f"+{percent(one.nominal)}", f"{100 * one.realised:+.3g} %", interval, f"{one.sets} sets"
        )
    return table


def _footnotes(findings: Sequence[Finding]) -> list[str]:
    fewer = [one for one in findings if one.effective and one.effective < 0.995 * one.trials]
    chance = sum(one.false_failure for one in findings if one.first)
    notes = [f"a build that meets every target exactly is refuted in {percent(chance)} of such runs, at most"]
    if fewer:
        said = ", ".join(f"{one.trials} as {one.effective:.0f} ({one.what})" for one in fewer)
        notes.append(f"cells that share a case or a baseline count as fewer that don't: {said}")
    return notes


def _facts(facts: Mapping[str, Any]) -> list[str]:
    environment = facts["environment"]
    before, after = (facts[name][0] for name in ("load_before", "load_after"))
    lines = [
        f"measuring {facts['measuring_s']:.0f} s, setting up {facts['setup_s']:.0f} s; "
        f"load average {before:.2f} before, {after:.2f} after"
    ]
    if environment:
        lines.append(
            f"{environment.get('cpu')}, {len(environment.get('cpus_allowed', []))} cores, "
            f"torch {environment.get('torch')}"
        )
    return lines


def _table(*heads: str) -> Table:
    table = bare_table()
    for position, head in enumerate(heads):
        table.add_column(head, overflow="fold", justify="left" if position == 0 else "right")
    return table


def _text(part: RenderableType, width: int, colour: bool) -> str:
    console = string_console(width, colour=colour)
    console.print(part)
    return written(console)
