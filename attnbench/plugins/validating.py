"""Whether what a plugin brings is what it should be, so that one bad record harms nobody else."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, get_args

from attnbench.types.backend import Backend, Layout
from attnbench.types.case import DEVICES, DTYPES, OPERATIONS, PASSES, Case
from attnbench.types.columns import COLUMNS, HEADS
from attnbench.types.fact import EnvironmentFact
from attnbench.types.formats import FORMATS
from attnbench.types.metric import Metric
from attnbench.types.names import LONGEST, NAME, NAMES_ARE
from attnbench.types.reporter import Reporter
from attnbench.types.rule import Law, Rule
from attnbench.types.suite import Suite
from attnbench.types.verdict import VerdictRule

_HEAD_LONGEST = 24
_TEXT_LONGEST = 600


def name_fault(record: object) -> str | None:
    """What is wrong with the name of a record, in words; None where nothing is."""
    name = getattr(record, "name", None)
    # A subclass of str may compare, hash and print as it likes; names are keys.
    if type(name) is not str or not NAME.fullmatch(name):
        return f"the name {name!r}: {NAMES_ARE}"
    if len(name) > LONGEST:
        return f"the name {name[:LONGEST]!r}…: {len(name)} characters; {LONGEST} are the most"
    return None


def backend_fault(backend: Backend) -> str | None:
    """What is wrong with a backend."""
    copies = backend.quadratic_copies
    return (
        _not_line("summary", backend.summary)
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


def rule_fault(rule: Rule) -> str | None:
    """What is wrong with a rule."""
    return (
        _not_line("formula", rule.formula)
        or _not_line("source", rule.source)
        or _not_callable("reference", rule.reference)
        or _not_callable("bind", rule.bind)
        or _not_callable("parameters", rule.parameters)
        or _not_callable("score_elements", rule.score_elements)
        or _not_callable("supports", rule.supports)
        or (None if rule.sink is None else _not_callable("sink", rule.sink))
        or (_not_words("laws", rule.laws, get_args(Law)) if rule.laws != () else None)
        or (None if rule.score_flops is None else _not_callable("score_flops", rule.score_flops))
    )


def suite_fault(suite: Suite) -> str | None:
    """What is wrong with a suite."""
    if not isinstance(suite.cases, tuple) or not all(isinstance(case, Case) for case in suite.cases):
        return "cases: a tuple of Case is needed"
    return _not_line("summary", suite.summary)


def verdict_rule_fault(rule: VerdictRule) -> str | None:
    """What is wrong with a verdict rule."""
    return _not_line("summary", rule.summary) or _not_callable("decide", rule.decide)


def metric_fault(metric: Metric) -> str | None:
    """What is wrong with a metric: attnbench's own columns are called otherwise, and heads are short."""
    own = f"a column {metric.name!r} is attnbench's own: call it otherwise"
    return (
        _not_line("summary", metric.summary)
        or _not_text("head", metric.head)
        or _not_callable("value", metric.value)
        or (None if _is_count(metric.digits) and metric.digits else f"digits = {metric.digits!r}: 1 or more")
        or (own if metric.name in COLUMNS else None)
        or _head_fault(metric.head)
    )


def _head_fault(head: str) -> str | None:
    if head in HEADS or head.startswith("×"):
        return f"a column headed {head!r} is attnbench's own: head it otherwise"
    if not head.isprintable() or not 1 <= len(head.strip()) <= _HEAD_LONGEST:
        return f"head = {head!r}: 1 to {_HEAD_LONGEST} printable characters are needed"
    return None


def reporter_fault(reporter: Reporter) -> str | None:
    """What is wrong with a reporter: attnbench's own formats are called otherwise."""
    own = f"a format {reporter.name!r} is attnbench's own: call it otherwise"
    return (
        _not_line("summary", reporter.summary)
        or _not_callable("render", reporter.render)
        or (own if reporter.name in FORMATS else None)
    )


def environment_fact_fault(fact: EnvironmentFact) -> str | None:
    """What is wrong with an environment fact."""
    return _not_line("summary", fact.summary) or _not_callable("read", fact.read)


def _not_text(what: str, value: object) -> str | None:
    return None if isinstance(value, str) else f"{what} = {value!r}: a text is needed"


def _not_line(what: str, value: object) -> str | None:
    if not isinstance(value, str):
        return _not_text(what, value)
    # They stand in lists and tables: an escape would paint the terminal, a megabyte flood it.
    if len(value) > _TEXT_LONGEST or not value.isprintable():
        return f"{what} = {value!r}: one line of at most {_TEXT_LONGEST} printable characters is needed"
    return None


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
