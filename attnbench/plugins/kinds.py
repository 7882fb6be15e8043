"""The kinds of records that plugins bring: hook, type, registry field, and the values of each field."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

from attnbench import hookspecs
from attnbench.types.backend import Backend, Layout
from attnbench.types.case import DEVICES, DTYPES, PASSES, Case
from attnbench.types.extensions import EnvironmentFact, Metric, Reporter, Suite, VerdictRule
from attnbench.types.formats import FORMATS
from attnbench.types.operation import Operation
from attnbench.types.rule import Law, Rule
from attnbench.types.words import LONGEST_NAME, NAME, NAMES_ARE

LONGEST_HEAD = 24
LONGEST_TEXT = 600

Test = Callable[[Any], str | None]
"""Returns what is needed instead of a value, in words; None where the value is allowed."""


def _text(value: object) -> str | None:
    if not isinstance(value, str):
        return "a text is needed"
    # Texts stand in lists and tables: an escape sequence would paint the terminal, a megabyte flood it.
    if len(value) > LONGEST_TEXT or not value.isprintable():
        return f"one line of at most {LONGEST_TEXT} printable characters is needed"
    return None


def _head(value: object) -> str | None:
    if not isinstance(value, str):
        return "a text is needed"
    # Imported here: columns are what the table of a run needs, and plugins are listed without one.
    from attnbench.reports.columns import HEADS

    if value in HEADS or value.startswith("×"):
        return "attnbench has a column with this head: choose another"
    if not value.isprintable() or not 1 <= len(value.strip()) <= LONGEST_HEAD:
        return f"1 to {LONGEST_HEAD} printable characters are needed"
    return None


def _function(value: object) -> str | None:
    return None if callable(value) else "a function is needed"


def _flag(value: object) -> str | None:
    return None if isinstance(value, bool) else "true or false is needed"


def _count(least: int, value: object) -> str | None:
    fine = isinstance(value, int) and not isinstance(value, bool) and value >= least
    return None if fine else f"a whole number of {least} or more is needed"


def _word(allowed: Collection[str], value: object) -> str | None:
    return None if isinstance(value, str) and value in allowed else f"one of {', '.join(allowed)} is needed"


def _words(value: object) -> str | None:
    fine = isinstance(value, tuple) and all(isinstance(word, str) for word in value)
    return None if fine else "a tuple of words is needed"


def _some_of(allowed: Collection[str], value: Any) -> str | None:
    unknown = _words(value) or not value or [word for word in value if word not in allowed]
    return f"a tuple of words of {', '.join(allowed)} is needed" if unknown else None


def _some_words(value: object) -> str | None:
    return "a tuple of one word or more is needed" if _words(value) or not value else None


def _cases(value: object) -> str | None:
    fine = isinstance(value, tuple) and all(isinstance(case, Case) for case in value)
    return None if fine else "a tuple of Case is needed"


def _no_column(value: object) -> str | None:
    from attnbench.reports.columns import KEYS

    return _other_than(KEYS, value)


def _other_than(own: Collection[str], value: object) -> str | None:
    return "attnbench itself has one of this name: choose another" if value in own else None


def _solve_or_heads(operation: Operation) -> str | None:
    both = (operation.solve is None) == (operation.heads is None)
    return "exactly one of solve and heads is needed" if both else None


def _or(allowed: object, test: Test) -> Test:
    return lambda value: None if value is allowed or value == allowed else test(value)


@dataclass(frozen=True)
class Kind:
    """A kind of record.

    field: of the registry, where entries stand by name; the hook is ``attnbench_FIELD``. word: one of them in
    a sentence. listed: the word of ``attnbench list`` and the column of ``attnbench plugins``. type: of a
    record. tests: of its fields, by name; every kind also has a name, tested elsewhere. unlike: besides the
    name, fields in which no two records may be alike. whole: a test of the record, for fields that depend on
    each other.
    """

    field: str
    word: str
    listed: str
    type: type
    tests: Mapping[str, Test]
    unlike: tuple[str, ...] = ()
    whole: Test | None = None

    @property
    def hook(self) -> str:
        """The hook that gives records of this kind."""
        return f"{hookspecs.PROJECT}_{self.field}"


_RULE: dict[str, Test] = {
    "formula": _text,
    "source": _text,
    "reference": _function,
    "bind": _function,
    "parameters": _function,
    "score_elements": _function,
    "supports": _function,
    "sink": _or(None, _function),
    "laws": _or((), partial(_some_of, get_args(Law))),
    "score_flops": _or(None, _function),
}
_BACKEND: dict[str, Test] = {
    "summary": _text,
    "prepare": _function,
    "supports": _function,
    "available": _function,
    "operations": _some_words,
    "dtypes": partial(_some_of, DTYPES),
    "devices": partial(_some_of, DEVICES),
    "passes": partial(_some_of, PASSES),
    "requires": _words,
    "marks": _words,
    "rules": _or(None, _words),
    "layout": partial(_word, get_args(Layout)),
    "dropout": _flag,
    "needs_contiguous": _flag,
    "weights": _or(None, _function),
    "quadratic_copies": partial(_count, 0),
}
_OPERATION: dict[str, Test] = {
    "summary": _text,
    "inputs": _function,
    "outputs": _function,
    "flops": _function,
    "parameters": _function,
    "check": _function,
    "unread": _function,
    "solve": _or(None, _function),
    "draw": _or(None, _function),
    "reference": _or(None, _function),
}
_METRIC: dict[str, Test] = {
    "summary": _text,
    "head": _head,
    "value": _function,
    "digits": partial(_count, 1),
    "name": _no_column,
}
_REPORTER: dict[str, Test] = {
    "summary": _text,
    "render": _function,
    "name": partial(_other_than, FORMATS),
}

KINDS = (
    Kind("rules", "a rule", "rules", Rule, _RULE),
    Kind("backends", "a backend", "backends", Backend, _BACKEND),
    Kind("operations", "an operation", "operations", Operation, _OPERATION, whole=_solve_or_heads),
    Kind("suites", "a suite", "suites", Suite, {"cases": _cases, "summary": _text}),
    Kind(
        "verdict_rules",
        "a verdict rule",
        "verdicts",
        VerdictRule,
        {"summary": _text, "decide": _function},
    ),
    Kind("metrics", "a metric", "metrics", Metric, _METRIC, unlike=("head",)),
    Kind("reporters", "a reporter", "reporters", Reporter, _REPORTER),
    Kind(
        "environment_facts",
        "an environment fact",
        "facts",
        EnvironmentFact,
        {"summary": _text, "read": _function},
    ),
)


def fault(record: Any) -> str | None:
    """Return why a record can't be used, in words that name it and its field; None where it can."""
    name = getattr(record, "name", None)
    # A subclass of str may compare, hash and print as it likes; names are keys.
    if type(name) is not str or not NAME.fullmatch(name):
        return f"the name {name!r}: {NAMES_ARE}"
    if len(name) > LONGEST_NAME:
        return f"the name {name[:LONGEST_NAME]!r}…: {len(name)} characters; {LONGEST_NAME} are the most"
    kind = next(kind for kind in KINDS if isinstance(record, kind.type))
    for field, test in kind.tests.items():
        value = getattr(record, field)
        if needed := test(value):
            return f"{name}: {field} = {value!r}: {needed}"
    if kind.whole is not None and (needed := kind.whole(record)):
        return f"{name}: {needed}"
    return None
