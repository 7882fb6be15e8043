"""What the judge refused, as tables for people, and as Markdown for the documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnbench.reports.console import bare_table, string_console, written
from attnbench.selftest.kills import Judged, Kill
from attnbench.types.words import count_of

if TYPE_CHECKING:
    from rich.table import Table

MOST_NAMED = 4


@dataclass(frozen=True)
class Rows:
    """One table as text: its heads, the first column to the left and numbers to the right, and its rows."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def judge_tables(found: Judged, facts: Mapping[str, Any], *, width: int = 120, colour: bool = False) -> str:
    """Totals by what shows a mistake, what each check is worth, each wrong animal, and what is amiss."""
    parts = (totals(found), worths(found), animals(found))
    return "\n".join([*(_printed(part, width, colour) for part in parts), *amiss(found), conditions(facts)])


def judge_markdown(found: Judged, facts: Mapping[str, Any]) -> str:
    """The same for a document."""
    parts = [_markdown(part) for part in (totals(found), worths(found), animals(found))]
    return "\n".join([conditions(facts) + "\n", *parts, *(f"- {line}" for line in amiss(found))])


def totals(found: Judged) -> Rows:
    """Wrong animals by what shows their mistake, and the right ones."""
    rows = []
    for trait in dict.fromkeys(kill.trait for kill in found.kills):
        its = [kill for kill in found.kills if kill.trait == trait]
        rows.append(_total(f"wrong: {trait}", its))
    rows.append(_total("wrong: all", found.kills))
    verdicts, wronged = found.right_verdicts, len(found.wronged)
    rows.append(
        (
            "right",
            str(found.right),
            str(len({o.animal for o in found.wronged})),
            f"{wronged}/{verdicts}",
            _share(wronged, verdicts),
        )
    )
    return Rows(("what", "animals", "refused", "of their cases", ""), tuple(rows))


def _total(what: str, kills: Sequence[Kill]) -> tuple[str, ...]:
    killed, refused = sum(not kill.survived for kill in kills), sum(kill.refused for kill in kills)
    cases = sum(kill.cases for kill in kills)
    return what, str(len(kills)), str(killed), f"{refused}/{cases}", _share(refused, cases)


def worths(found: Judged) -> Rows:
    """By check: how many wrong animals it refuses, how many only it does, and who those are."""
    rows = tuple(
        (w.check, str(len(w.kills)), str(len(w.alone)), str(len(w.nearby)), _named(w.alone))
        for w in found.worths
    )
    return Rows(("check", "refuses", "alone", "nearby only", "who nothing else refuses"), rows)


def animals(found: Judged) -> Rows:
    """Every wrong animal, by what shows its mistake."""
    rows = tuple(
        (kill.animal.removeprefix("wrong_"), kill.trait, f"{kill.refused}/{kill.cases}", ", ".join(kill.by))
        for kill in found.kills
    )
    return Rows(("wrong", "shown by", "refused", "on"), rows)


def amiss(found: Judged) -> list[str]:
    """What must not be, a line each."""
    lines = [
        f"NOT REFUSED: {kill.animal} ({kill.summary}) in seed {', '.join(map(str, kill.survived))}"
        f"{f'; it fell in {kill.fell} cases' if kill.fell else ''}"
        for kill in found.survivors
    ]
    lines += [f"REFUSED THOUGH RIGHT: {o.animal} on {o.case}: {o.status}: {o.reason}" for o in found.wronged]
    if found.unasked:
        lines.append(f"NOT ASKED, for want of a case: {', '.join(found.unasked)}")
    fell = [kill.animal for kill in found.kills if kill.fell]
    if fell:
        lines.append(f"crashed, raised or too slow in some cases, which is not counted: {', '.join(fell)}")
    return lines


def last_line(found: Judged) -> str:
    """The verdict in one line."""
    wrong = len(found.kills)
    killed = wrong - len(found.survivors)
    seeds = count_of(len(found.seeds), "seed")
    said = (
        f"{killed} of {wrong} wrong backends refused in {seeds}, "
        f"{len({o.animal for o in found.wronged})} of {found.right} right ones"
    )
    left = f"; {len(found.unasked)} not asked" if found.unasked else ""
    return f"selftest judge: {'' if found.fine else 'FAILED: '}{said}{left}"


def conditions(facts: Mapping[str, Any]) -> str:
    """When and on what this was found."""
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


def _printed(part: Rows, width: int, colour: bool) -> str:
    table: Table = bare_table()
    for position, head in enumerate(part.heads):
        numeric = position > 0 and all(row[position][:1].isdigit() for row in part.rows)
        table.add_column(head, overflow="fold", justify="right" if numeric else "left")
    for row in part.rows:
        table.add_row(*row)
    console = string_console(width, colour=colour)
    console.print(table)
    return written(console)


def _markdown(part: Rows) -> str:
    lines = [part.heads, tuple("---" for _ in part.heads), *part.rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
