"""The kinds of records that plugins bring: hook, type, registry field, and what makes one unusable."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, get_args

from attnbench import hookspecs
from attnbench.plugins import kinds as v
from attnbench.types.backend import Backend, Layout
from attnbench.types.case import DEVICES, DTYPES, PASSES, Case
from attnbench.types.columns import COLUMNS, FORMATS, HEADS
from attnbench.types.extensions import EnvironmentFact, Metric, Reporter, Suite, VerdictRule
from attnbench.types.operation import Operation
from attnbench.types.rule import Law, Rule
from attnbench.types.words import LONGEST_NAME, NAME, NAMES_ARE

_HEAD_LONGEST = 24
_TEXT_LONGEST = 600


def name_fault(record: object) -> str | None:
    """What is wrong with the name of a record, in words; None where nothing is."""
    name = getattr(record, "name", None)
    # A subclass of str may compare, hash and print as it likes; names are keys.
    if type(name) is not str or not NAME.fullmatch(name):
        return f"the name {name!r}: {NAMES_ARE}"
    if len(name) > LONGEST_NAME:
        return f"the name {name[:LONGEST_NAME]!r}…: {len(name)} characters; {LONGEST_NAME} are the most"
    return None


def backend_fault(backend: Backend) -> str | None:
    """What is wrong with a backend."""
    copies = backend.quadratic_copies
    return (
        _not_line("summary", backend.summary)
        or _not_callable("prepare", backend.prepare)
        or _not_callable("supports", backend.supports)
        or _not_callable("available", backend.available)
        or _not_names("operations", backend.operations)
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


def operation_fault(operation: Operation) -> str | None:
    """What is wrong with an operation."""
    functions = {
        name: getattr(operation, name)
        for name in ("inputs", "outputs", "flops", "parameters", "check", "unread")
    } | {
        name: getattr(operation, name)
        for name in ("solve", "draw", "reference")
        if getattr(operation, name) is not None
    }
    one_of = "solve or heads: an operation has exactly one of both"
    return (
        _not_line("summary", operation.summary)
        or next((wrong for name, f in functions.items() if (wrong := _not_callable(name, f))), None)
        or (one_of if (operation.solve is None) == (operation.heads is None) else None)
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


def _not_names(what: str, value: object) -> str | None:
    return _not_words(what, value, None) or (f"{what} = (): one or more are needed" if value == () else None)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


@dataclass(frozen=True)
class Kind:
    """A kind of record.

    field: of the registry, where entries stand by name; the hook is ``attnbench_FIELD``. word: one of them in
    a sentence. listed: the word of ``attnbench list`` and the column of ``attnbench plugins``.
    type: of a record. fault: what is wrong with one, in words; its name is looked at elsewhere.
    unlike: besides the name, attributes in which no two records may be alike.
    """

    field: str
    word: str
    listed: str
    type: type
    fault: Callable[[Any], str | None]
    unlike: tuple[str, ...] = ()

    @property
    def hook(self) -> str:
        """The hook that gives records of this kind."""
        return f"{hookspecs.PROJECT}_{self.field}"


KINDS = (
    Kind("rules", "a rule", "rules", Rule, v.rule_fault),
    Kind("backends", "a backend", "backends", Backend, v.backend_fault),
    Kind("operations", "an operation", "operations", Operation, v.operation_fault),
    Kind("suites", "a suite", "suites", Suite, v.suite_fault),
    Kind("verdict_rules", "a verdict rule", "verdicts", VerdictRule, v.verdict_rule_fault),
    Kind("metrics", "a metric", "metrics", Metric, v.metric_fault, unlike=("head",)),
    Kind("reporters", "a reporter", "reporters", Reporter, v.reporter_fault),
    Kind("environment_facts", "an environment fact", "facts", EnvironmentFact, v.environment_fact_fault),
)


def fault(record: Any) -> str | None:
    """What is wrong with a record that a plugin brings, in words; None where nothing is."""
    kind = next(kind for kind in KINDS if isinstance(record, kind.type))
    wrong = v.name_fault(record)
    if wrong is None and (found := kind.fault(record)) is not None:
        wrong = f"{record.name}: {found}"
    return wrong


def hook_table() -> list[dict[str, str]]:
    """Every hook as the documents list it: signature, what it yields, what for, and what lists that."""
    rows = []
    for kind in KINDS:
        specification = getattr(hookspecs, kind.hook)
        signature = str(inspect.signature(specification)).replace("'", "")
        rows.append(
            {
                "hook": f"{kind.hook}{signature}",
                "yields": kind.type.__name__,
                "what": " ".join((inspect.getdoc(specification) or "").split()),
                "listed by": f"attnbench list {kind.listed}",
            }
        )
    return rows
