"""The gate as a TOML file."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

from attnbench.stored.gate import CellRule, Gate, outcomes
from attnbench.types.compared import Outcome
from attnbench.types.errors import BadFile, BadInput
from attnbench.types.names import unknown_name

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
