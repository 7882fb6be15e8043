"""The gate: which verdicts make a command fail, and the TOML file that configures it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from attnbench.stats.unpaired import percent
from attnbench.stats.verdict import DELTA
from attnbench.types.compared import FAILING, OUTCOMES, Compared, ComparedCell, Outcome
from attnbench.types.errors import BadFile, BadInput
from attnbench.types.exit_status import UNJUDGED
from attnbench.types.files import parse_toml, read_text
from attnbench.types.status import MEANING
from attnbench.types.words import count_of, share_of, unknown_name

FAILS_ON: tuple[Outcome, ...] = ("slower", "mismatch", "missing")
"""The default for two sides."""

FAILS_ON_WITHIN: tuple[Outcome, ...] = ("mismatch", "missing")
"""The default for one run and another baseline; there a slower backend is not a mistake."""


_Words = Annotated[str, Meta(min_length=1)]


class CellRule(Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    """An exception for some cells.

    case, backend: patterns as for file names (``*``, ``?``, ``[ab]``). delta, fail_on: None for the values of
    the gate. ignore: the reason to leave the cells out; "" to keep them. accept: the reason why they may be
    slower, missing or unclear. at_most: a ratio; a cell whose whole interval is above it still counts.
    """

    case: _Words = "*"
    backend: _Words = "*"
    delta: float | None = None
    fail_on: tuple[Outcome, ...] | None = None
    ignore: _Words = ""
    accept: _Words = ""
    at_most: Annotated[float, Meta(gt=1)] | None = None

    def fits(self, case: str, backend: str) -> bool:
        """Return whether the rule applies to a cell."""
        return fnmatchcase(case, self.case) and fnmatchcase(backend, self.backend)


class Gate(Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    """The conditions of a comparison; in a file the rules are called ``cells``.

    fail_on: the verdicts that fail. delta: the least effect that counts, as a share. rules: exceptions; the
    last one that fits a cell and has a value counts. strict: warnings and forced comparisons fail too.
    """

    fail_on: tuple[Outcome, ...] = FAILS_ON
    delta: float = DELTA
    rules: tuple[CellRule, ...] = field(default=(), name="cells")
    strict: bool = False

    @property
    def least_delta(self) -> float:
        """The smallest effect that counts for any cell."""
        return min([self.delta, *(rule.delta for rule in self.rules if rule.delta is not None)])

    def delta_of(self, case: str, backend: str) -> float:
        """Return the least effect that counts for a cell."""
        values = [r.delta for r in self.rules if r.delta is not None and r.fits(case, backend)]
        return values[-1] if values else self.delta

    def fail_on_of(self, case: str, backend: str) -> tuple[Outcome, ...]:
        """Return the verdicts that fail on a cell."""
        values = [r.fail_on for r in self.rules if r.fail_on is not None and r.fits(case, backend)]
        return values[-1] if values else self.fail_on

    def ignored(self, case: str, backend: str) -> str:
        """Return the reason to leave a cell out; "" to keep it."""
        return next((r.ignore for r in reversed(self.rules) if r.ignore and r.fits(case, backend)), "")


PLACEHOLDER = "say why"
"""The reason in the lines that a red gate prints, until the user writes the real one."""

ACCEPTABLE: tuple[Outcome, ...] = ("slower", "missing", "unclear")
"""A wrong output is not accepted: mend it, or ignore the cell."""


def with_accepted(compared: Compared, gate: Gate) -> Compared:
    """Return a comparison in which the cells that a gate accepts have the verdict ``accepted``."""
    return dataclasses.replace(compared, cells=tuple(_accepted(cell, gate) for cell in compared.cells))


def _accepted(cell: ComparedCell, gate: Gate) -> ComparedCell:
    if cell.verdict not in ACCEPTABLE or cell.verdict not in gate.fail_on_of(cell.case, cell.backend):
        return cell
    for rule in reversed(gate.rules):
        if not (rule.accept and rule.fits(cell.case, cell.backend)):
            continue
        least = cell.ratio if cell.low is None else cell.low
        if rule.at_most is None or least is None or least <= rule.at_most:
            reason = f"{cell.verdict}; {rule.accept}"
            return dataclasses.replace(cell, verdict="accepted", reason=reason)
        reason = f"all of its interval is above at-most = {rule.at_most:g}"
        return dataclasses.replace(cell, reason=reason, most_accepted=rule.at_most)
    return cell


def without_accepted(gate: Gate, before: Gate) -> tuple[Gate, tuple[CellRule, ...]]:
    """Return a gate without what another one accepts already, and the entries that accept nothing now.

    before: of the base side. What was accepted there is part of its times, so the same entry would accept as
    much again. An entry is the same if all of it is, its reason too.
    """
    there = [rule for rule in gate.rules if rule.accept and rule in before.rules]
    rules = []
    for rule in gate.rules:
        rest = replace(rule, accept="", at_most=None) if rule in there else rule
        # An entry that says nothing else would also be told of where it fits no cell.
        if rule not in there or rest != CellRule(rule.case, rule.backend):
            rules.append(rest)
    return replace(gate, rules=tuple(rules)), tuple(there)


def idle_entries(compared: Compared, gate: Gate) -> list[str]:
    """Return a sentence for each entry that accepts nothing, because none of its cells would fail.

    compared: as :func:`with_accepted` returns it.
    """
    told = []
    for rule in gate.rules:
        cells = [cell for cell in compared.cells if rule.accept and rule.fits(cell.case, cell.backend)]
        used = (c.verdict == "accepted" or c.verdict in gate.fail_on_of(c.case, c.backend) for c in cells)
        if cells and not any(used):
            told.append(f"not needed here: the gate accepts {rule_words(rule)}, which would not fail")
    return told


def rule_words(rule: CellRule) -> str:
    """The cells of an entry."""
    return f"case {rule.case!r}, backend {rule.backend!r}"


@dataclass(frozen=True)
class GateResult:
    """The result of a gate.

    exit_code: 0 the gate holds, 1 it fails, 3 nothing could be compared, 4 nothing is known of a cell, which
    attnbench could not judge. sentence: the same in words.
    failing: the cells it fails on. ignored: the cells left out, with reasons. warnings: those of the
    comparison, and of rules that match no cell. hints: on entries that were not needed. file: of the gate,
    "" where none was given. plugins: words of --plugin, for commands that it advises.
    """

    exit_code: int
    sentence: str
    failing: tuple[ComparedCell, ...] = ()
    ignored: tuple[tuple[ComparedCell, str], ...] = ()
    warnings: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    file: str = ""
    plugins: tuple[str, ...] = ()


def hold(compared: Compared, gate: Gate, file: str = "", plugins: tuple[str, ...] = ()) -> GateResult:
    """Apply a gate to a comparison. file: the gate's own, as a command names it. plugins: likewise."""
    ignored = [(cell, why) for cell in compared.cells if (why := gate.ignored(cell.case, cell.backend))]
    left_out = {(cell.case, cell.backend) for cell, _ in ignored}
    counted = [cell for cell in compared.cells if (cell.case, cell.backend) not in left_out]
    failing = tuple(c for c in counted if c.verdict in gate.fail_on_of(c.case, c.backend))
    warnings = (*compared.warnings, *_idle(gate, compared.cells))
    of_all = count_of(len(counted), "cell")
    complaints = [f"{_counts(failing)} of {of_all}"] if failing else []
    if gate.strict and warnings:
        complaints.append(f"{count_of(len(warnings), 'warning')} under --strict")
    if gate.strict and compared.forced:
        complaints.append("different conditions under --strict")
    others = _other_counts(counted, gate)
    one_sided = ((cell.base_status is None) != (cell.new_status is None) for cell in compared.cells)
    if compared.cells and all(one_sided):
        failing = ()
        result = (3, f"nothing could be compared: no cell is on both sides{_new_words(compared)}")
    elif _only_checked(counted):
        failing = ()
        result = (3, "nothing could be compared: neither side was timed; attnbench run times")
    elif complaints:
        result = (1, _joined(f"fails: {', '.join(complaints)}", others))
    elif unjudged := [cell for cell in counted if _unknown(cell)]:
        cells = count_of(len(unjudged), "cell")
        result = (UNJUDGED, f"nothing is known of {cells}: attnbench could not judge, twice; measure again")
    elif not compared.cells and compared.left_out:
        result = (0, "holds: nothing was measured, because no code of a backend differs between the sides")
    elif not any(cell.ratio is not None for cell in counted):
        result = (3, f"nothing could be compared: {_why_nothing(compared.cells, counted)}")
    elif unseen := _unseen(compared.named, counted):
        result = (3, unseen)
    elif all(cell.verdict == "unclear" for cell in counted if cell.ratio is not None):
        result = (0, f"holds, but nothing was decided: {others}")
    else:
        rest = [cell for cell in counted if cell.verdict != "accepted"]
        result = (0, _joined(f"holds: {_none_words(counted, gate.fail_on)}", _other_counts(rest, gate)))
    hints = tuple(idle_entries(compared, gate))
    if any(cell.verdict == "accepted" for cell in counted):
        hints += (f"after the merge, take the lines that accept out of {file or 'the gate file'}",)
    return GateResult(*result, failing, tuple(ignored), warnings, hints, file, plugins)


def _new_words(compared: Compared) -> str:
    """Say what a comparison is whose base has none of the backends that head has."""
    if any(cell.base_status is not None or cell.new_status != "ok" for cell in compared.cells):
        return ""
    return (
        f". {compared.base} has no such backend: the commit that brings one is right here, and has nothing "
        "to be compared with. Merge it, and the next is compared"
    )


_NOUNS: dict[Outcome, str] = {"mismatch": "a mismatch"}


def _none_words(counted: Sequence[ComparedCell], fail_on: Sequence[Outcome]) -> str:
    """Say that no cell has a verdict that fails, or that all that would fail are accepted."""
    cells = len(counted)
    if accepted := sum(cell.verdict == "accepted" for cell in counted):
        if cells == 1:
            return "the only cell would fail, and is accepted"
        return f"{accepted:,} of {cells:,} cells would fail, all accepted"
    *some, last = (_NOUNS.get(word, word) for word in fail_on) if fail_on else ("",)
    listed = f"{', '.join(some)} or {last}" if some else last
    if not fail_on:
        return "no verdict fails it"
    return f"none of {cells:,} cells is {listed}" if cells > 1 else f"the only cell is not {listed}"


def _unknown(cell: ComparedCell) -> bool:
    """Return whether a cell has no ratio because attnbench could not judge a side, which may be wrong."""
    statuses = (status for status in (cell.base_status, cell.new_status) if status is not None)
    return cell.ratio is None and any(MEANING[status].unknown for status in statuses)


def _counts(cells: Sequence[ComparedCell]) -> str:
    counts = Counter(cell.verdict for cell in cells)
    told = {outcome: f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts[outcome]}
    if counts["mismatch"] > 1:
        told["mismatch"] += "es"
    return ", ".join(told.values())


def _other_counts(cells: Sequence[ComparedCell], gate: Gate) -> str:
    """Count the cells that the gate does not fail on, by verdict; "" for none."""
    others = [c for c in cells if c.verdict not in gate.fail_on_of(c.case, c.backend)]
    counts = Counter(cell.verdict for cell in others)
    notes: dict[Outcome, str] = dict.fromkeys(FAILING, " (allowed)")
    notes["unclear"] = _hidden_words([cell for cell in others if cell.verdict == "unclear"])
    told = [
        f"{counts[outcome]:,} {outcome.replace('none', 'not compared')}{notes.get(outcome, '')}"
        for outcome in OUTCOMES
        if counts[outcome]
    ]
    return ", ".join(told)


def _joined(*words: str) -> str:
    return "; ".join(filter(None, words))


def _hidden_words(unclear: Sequence[ComparedCell]) -> str:
    """Say how large a difference may hide in unclear cells, and in which backend; "" if unknown."""
    hidden = [(share, cell) for cell in unclear if (share := _most_hidden(cell)) is not None]
    if not hidden:
        return ""
    most, where = max(hidden, key=lambda one: one[0])
    # In one backend alone there is no other to tell it from.
    several = len({cell.backend or cell.case for cell in unclear}) > 1
    named = f", most in {where.backend or where.case}" if several else ""
    return f" (differences of up to {percent(most)} may hide{named})"


def _most_hidden(cell: ComparedCell) -> float | None:
    """Return the largest difference that may hide in a cell, as a share of base; None if unknown.

    It is how far its interval reaches from 1, so that it agrees with the interval that the table shows.
    """
    low, high = cell.low, cell.high
    if cell.ratio is not None and cell.resolution is not None and (low is None or high is None):
        low, high = cell.ratio / (1 + cell.resolution), cell.ratio * (1 + cell.resolution)
    if low is None or high is None:
        return None
    reach = max(1 - low, high - 1)
    return max(reach, cell.delta) if isfinite(reach) else None


def _only_checked(cells: Sequence[ComparedCell]) -> bool:
    """Return whether both sides are right and neither has a time, as after ``attnbench check``."""
    right = any(cell.base_status == cell.new_status == "ok" for cell in cells)
    timed = any(cell.base_ms is not None or cell.new_ms is not None for cell in cells)
    return right and not timed and all(cell.verdict in ("missing", "none") for cell in cells)


def _unseen(named: Sequence[str], cells: Sequence[ComparedCell]) -> str:
    """Return a sentence on a named backend that has no time on both sides in any cell; "" for none."""
    for name in named:
        own = [cell for cell in cells if cell.backend == name]
        if all(cell.ratio is None for cell in own):
            why = own[0].reason if own else "it has no cell"
            return f"nothing could be compared of {name}: {why}"
    return ""


def _why_nothing(cells: Sequence[ComparedCell], counted: Sequence[ComparedCell]) -> str:
    if not cells:
        return "neither side has a cell"
    if not counted:
        return "every cell is ignored"
    return "no cell has a time on both sides"


def _idle(gate: Gate, cells: Sequence[ComparedCell]) -> list[str]:
    return [
        f"a rule of the gate fits no cell: {rule_words(rule)}"
        for rule in gate.rules
        if not any(rule.fits(cell.case, cell.backend) for cell in cells)
    ]


def outcomes(words: str) -> tuple[Outcome, ...]:
    """Read verdicts from words joined by commas; ``nothing`` stands for none.

    Raises:
        BadInput: a word is not a verdict that can fail.
    """
    given = [word.strip() for word in words.split(",")]
    if given == ["nothing"]:
        return ()
    for word in given:
        if word not in FAILING:
            why = f"{word!r} can't fail the gate; these can: {', '.join(FAILING)}."
            if word not in OUTCOMES:
                why = unknown_name("verdict", word, FAILING)
            raise BadInput(f"{why} Or give 'nothing': then no verdict fails the gate.")
    return tuple(outcome for outcome in FAILING if outcome in given)


_KEYS = (
    "allowed keys: delta, fail-on, strict, [[cells]]; in [[cells]]: case, backend, delta, fail-on, ignore, "
    "accept, at-most"
)


def read_gate(path: Path, gate: Gate) -> Gate:
    """Return a gate with the values of a TOML file in place of its own: ``delta``, ``fail-on``, and so on.

    Raises:
        BadFile: the file is missing or is not TOML, a key or value is wrong, or a reason is still to be
            written.
    """
    where = f"the gate {str(path)!r}"
    try:
        return gate_of(read_text(path), gate, where)
    except OSError as failure:
        raise BadFile(f"can't read {where}: {failure.strerror}") from failure
    except UnicodeDecodeError as failure:
        raise BadFile(f"{where} is not TOML: {failure}") from failure


def gate_of(text: str, gate: Gate, where: str) -> Gate:
    """Return a gate with the values of TOML in place of its own. where: names the text.

    Raises:
        BadFile: as :func:`read_gate`.
    """
    try:
        content = parse_toml(text)
    except ValueError as failure:
        raise BadFile(f"{where} is not TOML: {failure}") from failure
    try:
        read = msgspec.convert(msgspec.to_builtins(gate) | _read(content), Gate)
    except msgspec.ValidationError as failure:
        raise BadFile(f"{where}: {failure}; {_KEYS}") from failure
    except BadInput as failure:
        raise BadFile(f"{where}: {failure}") from failure
    open_ones = [rule for rule in read.rules if PLACEHOLDER in (rule.accept.strip(), rule.ignore.strip())]
    if open_ones:
        more = f", and {len(open_ones) - 1} more" if len(open_ones) > 1 else ""
        raise BadFile(
            f"{where}: write your reason in place of {PLACEHOLDER!r} for {rule_words(open_ones[0])}{more}"
        )
    return read


def overridden(gate: Gate, fail_on: tuple[Outcome, ...] | None, delta: float | None) -> Gate:
    """Return a gate with values in place of its own, those of its rules too; None leaves them."""
    if fail_on is not None:
        rules = tuple(replace(rule, fail_on=None) for rule in gate.rules)
        gate = replace(gate, fail_on=fail_on, rules=rules)
    if delta is not None:
        rules = tuple(replace(rule, delta=None) for rule in gate.rules)
        gate = replace(gate, delta=delta, rules=rules)
    return gate


def _read(table: dict[str, Any]) -> dict[str, Any]:
    """Return a table of the file with shares and verdicts read; values of other types stay for msgspec."""
    read = dict(table)
    if isinstance(table.get("delta"), float | int | str):
        read["delta"] = _share(table["delta"])
    if isinstance(words := table.get("fail-on"), list) and words and all(isinstance(w, str) for w in words):
        read["fail-on"] = outcomes(",".join(words))
    if isinstance(cells := table.get("cells"), list):
        read["cells"] = [_read(cell) if isinstance(cell, dict) else cell for cell in cells]
    return read


def _share(given: float | str) -> float:
    try:
        share = share_of(given)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise BadInput(f"delta = {given!r}: give a share between 0 and 1, for example 0.02 or '2%'")
    return share
