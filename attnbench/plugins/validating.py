"""Whether what a plugin brings is what it should be, so that one bad record harms nobody else."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any, get_args

from attnbench.types.backend import Backend, Layout
from attnbench.types.case import DEVICES, DTYPES, OPERATIONS, PASSES, Case
from attnbench.types.rule import Law, Rule
from attnbench.types.suite import Suite
from attnbench.types.verdict import VerdictRule

NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*", re.IGNORECASE)
"""Names stand in ids, files, tables and on command lines."""


def fault(record: object) -> str | None:
    """What is wrong with what a plugin brings, in words; None where nothing is."""
    name = getattr(record, "name", None)
    if not isinstance(name, str) or not NAME.fullmatch(name):
        return f"the name {name!r}: letters, digits, '_', '.' and '-', beginning with a letter or digit"
    if isinstance(record, Backend):
        wrong = _backend_fault(record)
    elif isinstance(record, Rule):
        wrong = _rule_fault(record)
    elif isinstance(record, Suite):
        wrong = _suite_fault(record)
    else:
        assert isinstance(record, VerdictRule)
        wrong = _not_text("summary", record.summary) or _not_callable("decide", record.decide)
    return None if wrong is None else f"{name}: {wrong}"


def _backend_fault(backend: Backend) -> str | None:
    copies = backend.quadratic_copies
    return (
        _not_text("summary", backend.summary)
        or _not_callable("prepare", backend.prepare)
        or _not_callable("supports", backend.supports)
        or _not_callable("available", backend.available)
        or _not_words("operations", backend.operations, OPERATIONS)
        or _not_words("dtypes", backend.dtypes, DTYPES)
        or _not_words("devices", backend.devices, DEVICES)
        or _not_words("passes", backend.passes, PASSES)
        or _not_words("requires", backend.requires, None)
        or _not_words("marks", backend.marks, None)
        or (None if backend.rules is None else _not_words("rules", backend.rules, None))
        or _not_words("layout", (backend.layout,), get_args(Layout))
        or _not_bool("dropout", backend.dropout)
        or _not_bool("needs_contiguous", backend.needs_contiguous)
        or (None if backend.weights is None else _not_callable("weights", backend.weights))
        or (f"quadratic_copies = {copies!r}: 0 or more" if not _is_count(copies) else None)
    )


def _rule_fault(rule: Rule) -> str | None:
    return (
        _not_text("formula", rule.formula)
        or _not_text("source", rule.source)
        or _not_callable("reference", rule.reference)
        or _not_callable("bind", rule.bind)
        or _not_callable("parameters", rule.parameters)
        or _not_callable("score_elements", rule.score_elements)
        or _not_callable("supports", rule.supports)
        or (None if rule.sink is None else _not_callable("sink", rule.sink))
        or (_not_words("laws", rule.laws, get_args(Law)) if rule.laws != () else None)
        or (None if rule.score_flops is None else _not_callable("score_flops", rule.score_flops))
    )


def _suite_fault(suite: Suite) -> str | None:
    if not isinstance(suite.cases, tuple) or not all(isinstance(case, Case) for case in suite.cases):
        return "cases: a tuple of Case is needed"
    return _not_text("summary", suite.summary)


def _not_text(what: str, value: object) -> str | None:
    return None if isinstance(value, str) else f"{what} = {value!r}: a text is needed"


def _not_bool(what: str, value: object) -> str | None:
    return None if isinstance(value, bool) else f"{what} = {value!r}: true or false is needed"


def _not_callable(what: str, value: Callable[..., Any] | object) -> str | None:
    return None if callable(value) else f"{what} = {value!r}: a function is needed"


def _not_words(what: str, value: object, allowed: Collection[str] | None) -> str | None:
    if not isinstance(value, tuple) or not all(isinstance(word, str) for word in value):
        return f"{what} = {value!r}: a tuple of words is needed"
    unknown = [word for word in value if allowed is not None and word not in allowed]
    if unknown or not (value or allowed is None):
        return f"{what} = {value!r}: words of {', '.join(allowed or ())} are needed"
    return None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
