"""The gate: which verdicts make a command fail, and the TOML file that configures it."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from attnbench.stats.verdict import DELTA
from attnbench.types.compared import FAILING, OUTCOMES, Compared, ComparedCell, Outcome
from attnbench.types.errors import BadFile, BadInput
from attnbench.types.words import count_of, unknown_name

FAILS_ON: tuple[Outcome, ...] = ("slower", "mismatch", "missing")
"""The default for two sides."""

FAILS_ON_WITHIN: tuple[Outcome, ...] = ("mismatch", "missing")
"""The default for one run and another baseline, where a slower backend is not a mistake."""


@dataclass(frozen=True)
class CellRule:
    """An exception for some cells. case, backend: patterns as of file names (``*``, ``?``, ``[ab]``).

    delta, fail_on: None for the values of the gate. ignore: the reason why the cells are left out; "" if they
    are not.
    """

    case: str = "*"
    backend: str = "*"
    delta: float | None = None
    fail_on: tuple[Outcome, ...] | None = None
    ignore: str = ""

    def fits(self, case: str, backend: str) -> bool:
        """Whether the rule applies to a cell."""
        return fnmatchcase(case, self.case) and fnmatchcase(backend, self.backend)


@dataclass(frozen=True)
class Gate:
    """fail_on: the verdicts that fail. delta: the least effect that counts, as a fraction.

    rules: exceptions; of several that fit a cell the last that says something counts. strict: whether any
    warning fails, and a comparison under force.
    """

    fail_on: tuple[Outcome, ...] = FAILS_ON
    delta: float = DELTA
    rules: tuple[CellRule, ...] = ()
    strict: bool = False

    def delta_of(self, case: str, backend: str) -> float:
        """The least effect that counts for a cell."""
        said = [r.delta for r in self.rules if r.delta is not None and r.fits(case, backend)]
        return said[-1] if said else self.delta

    def fail_on_of(self, case: str, backend: str) -> tuple[Outcome, ...]:
        """The verdicts that fail on a cell."""
        said = [r.fail_on for r in self.rules if r.fail_on is not None and r.fits(case, backend)]
        return said[-1] if said else self.fail_on

    def ignored(self, case: str, backend: str) -> str:
        """The reason why a cell is left out; "" if it is not."""
        return next((r.ignore for r in reversed(self.rules) if r.ignore and r.fits(case, backend)), "")


@dataclass(frozen=True)
class GateResult:
    """exit_code: 0 the gate holds, 1 it fails, 3 nothing could be compared. sentence: the same in words.

    failing: the cells it fails on. ignored: the cells left out, with reasons. warnings: those of the
    comparison, and of rules that match no cell.
    """

    exit_code: int
    sentence: str
    failing: tuple[ComparedCell, ...] = ()
    ignored: tuple[tuple[ComparedCell, str], ...] = ()
    warnings: tuple[str, ...] = ()


def hold(compared: Compared, gate: Gate) -> GateResult:
    """Hold a comparison against a gate."""
    ignored = [(cell, why) for cell in compared.cells if (why := gate.ignored(cell.case, cell.backend))]
    left_out = {(cell.case, cell.backend) for cell, _ in ignored}
    counted = [cell for cell in compared.cells if (cell.case, cell.backend) not in left_out]
    failing = tuple(c for c in counted if c.verdict in gate.fail_on_of(c.case, c.backend))
    warnings = (*compared.warnings, *_idle(gate, compared.cells))
    complaints = [_counts(failing)] if failing else []
    if gate.strict and warnings:
        complaints.append(f"{count_of(len(warnings), 'warning')} under --strict")
    if gate.strict and compared.forced:
        complaints.append("unlike environments under --strict")
    result = (1, f"fails: {', '.join(complaints)}")
    if not complaints and not any(cell.ratio is not None for cell in counted):
        result = (3, f"nothing could be compared: {_why_nothing(compared.cells, counted)}")
    elif not complaints:
        cells = count_of(len(counted), "cell")
        result = (0, f"holds: none of {cells} is {' or '.join(gate.fail_on) or 'anything that it fails on'}")
    return GateResult(*result, failing, tuple(ignored), warnings)


def _counts(cells: Sequence[ComparedCell]) -> str:
    counts = Counter(cell.verdict for cell in cells)
    return ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts[outcome])


def _why_nothing(cells: Sequence[ComparedCell], counted: Sequence[ComparedCell]) -> str:
    if not cells:
        return "neither side has a cell"
    if not counted:
        return "every cell is ignored"
    return "no cell has a time on both sides"


def _idle(gate: Gate, cells: Sequence[ComparedCell]) -> list[str]:
    return [
        f"a rule of the gate fits no cell: case {rule.case!r}, backend {rule.backend!r}"
        for rule in gate.rules
        if not any(rule.fits(cell.case, cell.backend) for cell in cells)
    ]


def outcomes(words: str) -> tuple[Outcome, ...]:
    """Verdicts from words joined by commas; ``nothing`` for none.

    Raises:
        BadInput: a word that nothing can fail on.
    """
    said = [word.strip() for word in words.split(",")]
    if said == ["nothing"]:
        return ()
    for word in said:
        if word not in FAILING:
            raise BadInput(f"{unknown_name('verdict', word, FAILING)} (to fail on; or nothing)")
    return tuple(outcome for outcome in FAILING if outcome in said)


_TOP = ("delta", "fail-on", "strict", "cells")
_OF_A_RULE = ("case", "backend", "delta", "fail-on", "ignore")


def read_gate(path: Path, gate: Gate) -> Gate:
    """A gate with what a file says in place of its own: ``delta``, ``fail-on``, ``strict``, ``[[cells]]``.

    Raises:
        BadFile: missing, no TOML, or with a key or value that can't be.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as failure:
        raise BadFile(f"can't read the gate {str(path)!r}: {failure.strerror}") from failure
    except (ValueError, RecursionError) as failure:
        # Of ValueErrors TOMLDecodeError is one; what int() says of some thousand digits is another.
        raise BadFile(f"the gate {str(path)!r} is no TOML: {failure}") from failure
    where = f"the gate {str(path)!r}"
    try:
        _check_keys(data, _TOP)
        rules = data.get("cells", [])
        if not isinstance(rules, list):
            raise BadInput("cells is no list of tables: write [[cells]]")
        strict = data.get("strict", gate.strict)
        if not isinstance(strict, bool):
            raise BadInput(f"strict = {strict!r}: give true or false")
        return replace(
            gate,
            delta=_delta(data["delta"]) if "delta" in data else gate.delta,
            fail_on=_fail_on(data["fail-on"]) if "fail-on" in data else gate.fail_on,
            strict=strict,
            rules=(*gate.rules, *(_rule(number, rule) for number, rule in enumerate(rules, start=1))),
        )
    except BadInput as failure:
        raise BadFile(f"{where}: {failure}") from failure


def _rule(number: int, said: Any) -> CellRule:
    try:
        if not isinstance(said, dict):
            raise BadInput("no table")
        _check_keys(said, _OF_A_RULE)
        for name in ("case", "backend", "ignore"):
            if not isinstance(said.get(name, "*"), str) or not said.get(name, "*"):
                raise BadInput(f"{name} = {said[name]!r}: give words; of ignore they are the reason")
        return CellRule(
            case=said.get("case", "*"),
            backend=said.get("backend", "*"),
            delta=_delta(said["delta"]) if "delta" in said else None,
            fail_on=_fail_on(said["fail-on"]) if "fail-on" in said else None,
            ignore=said.get("ignore", ""),
        )
    except BadInput as failure:
        raise BadInput(f"cells number {number}: {failure}") from failure


def _check_keys(table: dict[str, Any], known: tuple[str, ...]) -> None:
    for name in table:
        if name not in known:
            raise BadInput(unknown_name("key", name, known))


def _delta(said: Any) -> float:
    text = said.strip() if isinstance(said, str) else said
    try:
        share = float(text.removesuffix("%")) / 100 if isinstance(text, str) and "%" in text else float(text)
    except (TypeError, ValueError, OverflowError):
        share = 0.0
    if isinstance(said, bool) or not 0 < share < 1:
        raise BadInput(f"delta = {said!r}: a share between 0 and 1 is needed, as 0.02 or '2%'")
    return share


def _fail_on(said: Any) -> tuple[Outcome, ...]:
    if isinstance(said, list) and all(isinstance(word, str) for word in said):
        return outcomes(",".join(said)) if said else ()
    raise BadInput(f"fail-on = {said!r}: give a list of verdicts, as ['slower', 'mismatch']")
