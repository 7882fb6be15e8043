"""The kinds of records that plugins bring: hook, type, registry field, and the values of each field."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, get_args

from attnbench import hookspecs
from attnbench.types.arithmetic import ARITHMETICS
from attnbench.types.backend import Backend, Layout
from attnbench.types.case import AUTOCAST, DTYPES, PASSES, Case
from attnbench.types.device import DEVICES
from attnbench.types.encoding import Encoding
from attnbench.types.extensions import EnvironmentFact, Metric, Reporter, Suite, VerdictRule
from attnbench.types.fleet import Executor
from attnbench.types.mask import ANY_MASK
from attnbench.types.mask_words import WORDS
from attnbench.types.operation import Operation
from attnbench.types.rule import Constant, Law, Rule
from attnbench.types.size import Size
from attnbench.types.storage import Storage
from attnbench.types.words import FORMATS, LONGEST_NAME, NAME, NAMES_ARE

LONGEST_HEAD = 24
LONGEST_TEXT = 600

Test = Callable[[Any], str | None]
"""Return what is needed instead of a value, in words; None where the value is allowed."""


def _text(value: object) -> str | None:
    if not isinstance(value, str):
        return "a text is needed"
    # Texts stand in lists and tables: an escape sequence would change the terminal, a megabyte would fill it.
    if len(value) > LONGEST_TEXT or not value.isprintable():
        return f"one line of at most {LONGEST_TEXT} printable characters is needed"
    return None


def _head(value: object) -> str | None:
    if not isinstance(value, str):
        return "a text is needed"
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
    fine = isinstance(value, tuple) and all(isinstance(word, str) and word.isprintable() for word in value)
    return None if fine else "a tuple of printable words is needed"


def _some_of(allowed: Collection[str], value: Any) -> str | None:
    unknown = _words(value) or not value or [word for word in value if word not in allowed]
    return f"a tuple of words of {', '.join(allowed)} is needed" if unknown else None


def _some_words(value: object) -> str | None:
    return "a tuple of one word or more is needed" if _words(value) or not value else None


def _ranged(kind: type, noun: str, chosen: str, value: Any) -> str | None:
    """Check named numbers with a range. chosen: the field that must lie in it."""
    fine = isinstance(value, tuple) and all(isinstance(one, kind) for one in value)
    if not fine or len({one.name for one in value}) < len(value):
        return f"a tuple of {kind.__name__} is needed, each with a name of its own"
    for one in value:
        if not NAME.fullmatch(one.name):
            return f"the {noun} {one.name!r}: {NAMES_ARE}"
        if not one.least <= getattr(one, chosen) <= one.most:
            return f"the {noun} {one.name!r} needs least <= {chosen} <= most"
    return None


def _cases(value: object) -> str | None:
    fine = isinstance(value, tuple) and all(isinstance(case, Case) for case in value)
    return None if fine else "a tuple of Case is needed"


Tests = Mapping[str, Test]
"""By field of a record; fields with their default are not tested."""


def _all(test: Test, *fields_: str) -> Tests:
    return dict.fromkeys(fields_, test)


_RULE: Tests = {
    **_all(_text, "formula", "source"),
    **_all(_function, "reference", "bind", "parameters", "sink", "score_elements", "score_flops", "supports"),
    **_all(_function, "no_gradients"),
    **_all(_flag, "pairs_keys", "concatenates", "has_dot_form"),
    "laws": partial(_some_of, get_args(Law)),
    "constants": partial(_ranged, Constant, "constant", "example"),
}
_BACKEND: Tests = {
    "summary": _text,
    **_all(_function, "prepare", "supports", "available", "weights"),
    **_all(_some_words, "operations", "storages", "encodings"),
    **_all(_words, "rules", "returns", "converts", "requires", "marks"),
    **_all(_flag, "needs_dot_form", "writes_out", "forkable", "compiles", "masks_by_head", "dropout"),
    **_all(_flag, "needs_contiguous", "ignores_dropped", "concurrent"),
    "dtypes": partial(_some_of, DTYPES),
    "devices": partial(_some_of, tuple(DEVICES)),
    "passes": partial(_some_of, PASSES),
    "masks": partial(_some_of, (ANY_MASK, *WORDS)),
    "autocast": partial(_some_of, AUTOCAST),
    "layout": partial(_word, get_args(Layout)),
    "computes_in": partial(_word, ARITHMETICS),
    "quadratic_copies": partial(_count, 0),
}
_OPERATION: Tests = {
    **_all(_text, "summary", "baseline"),
    **_all(_function, "inputs", "outputs", "flops", "solve", "parameters", "draw", "check", "reference"),
    **_all(_function, "unread", "stress", "advice", "trivial", "growth", "change"),
    **_all(_words, "returns", "lengths", "encoded"),
    "sizes": partial(_ranged, Size, "size", "default"),
}
_STORAGE: Tests = {
    **_all(_text, "summary", "baseline"),
    **_all(
        _function, "tensors", "put", "take", "planned", "plan", "shares", "severity", "touched", "refuses"
    ),
    "kept": _words,
    "sizes": partial(_ranged, Size, "size", "default"),
}
_ENCODING: Tests = {
    **_all(_text, "summary", "baseline"),
    **_all(_function, "tensors", "encode", "decode", "runs", "given", "refuses"),
    **_all(_words, "grains", "keeps"),
    **_all(_flag, "mirrors", "shared"),
}
_SUITE: Tests = {
    **_all(_text, "summary", "baseline"), "cases": _cases, "check_only": _flag, "without": _words,
}  # fmt: skip
_METRIC: Tests = {"summary": _text, "head": _head, "value": _function, "digits": partial(_count, 1)}


@dataclass(frozen=True)
class Kind:
    """A kind of record."""

    field: str
    """Of the registry, where entries stand by name; the hook is ``attnbench_FIELD``."""
    word: str
    """One of them in a sentence."""
    listed: str
    """The word of ``attnbench list`` and the column of ``attnbench plugins``."""
    type: type
    """Of a record."""
    tests: Tests
    """What its fields must be."""
    unlike: tuple[str, ...] = ()
    """Besides the name, fields in which no two records may be alike."""

    @property
    def hook(self) -> str:
        """The hook that gives records of this kind."""
        return f"{hookspecs.PROJECT}_{self.field}"


KINDS = (
    Kind("rules", "a rule", "rules", Rule, _RULE),
    Kind("backends", "a backend", "backends", Backend, _BACKEND),
    Kind("operations", "an operation", "operations", Operation, _OPERATION),
    Kind("storages", "a storage", "storages", Storage, _STORAGE),
    Kind("encodings", "an encoding", "encodings", Encoding, _ENCODING),
    Kind("suites", "a suite", "suites", Suite, _SUITE),
    Kind("verdict_rules", "a verdict rule", "verdicts", VerdictRule, {"summary": _text, "decide": _function}),
    Kind("metrics", "a metric", "metrics", Metric, _METRIC, unlike=("head",)),
    Kind("reporters", "a reporter", "reporters", Reporter, {"summary": _text, "render": _function}),
    Kind(
        "environment_facts",
        "an environment fact",
        "facts",
        EnvironmentFact,
        {"summary": _text, "read": _function},
    ),
    Kind("executors", "an executor", "executors", Executor, {"summary": _text, "connect": _function}),
)


def fault(record: Any) -> str | None:
    """Return why a record can't be used, in words that name it and its field; None where it can."""
    name = getattr(record, "name", None)
    # A subclass of str may compare, hash and print as it likes; names are keys.
    if type(name) is not str or not NAME.fullmatch(name):
        return f"the name {name!r}: {NAMES_ARE}"
    if len(name) > LONGEST_NAME:
        return f"the name {name[:LONGEST_NAME]!r}…: {len(name)} characters; {LONGEST_NAME} are the most"
    if isinstance(record, Reporter) and name in FORMATS:
        return f"{name}: name = {name!r}: attnbench itself has one of this name: choose another"
    tests = next(kind.tests for kind in KINDS if isinstance(record, kind.type))
    for field in fields(record):
        value, test = getattr(record, field.name), tests.get(field.name)
        if test is not None and value is not field.default and (needed := test(value)):
            return f"{name}: {field.name} = {value!r}: {needed}"
    if isinstance(record, Operation) and (record.solve is None) == (record.heads is None):
        return f"{name}: exactly one of solve and heads is needed"
    if isinstance(record, Operation) and record.graded and record.reference is None:
        return f"{name}: graded = {record.graded!r}: their gradients need a reference"
    if isinstance(record, Suite) and (needed := _of_its_cases(record)):
        return f"{name}: {needed}"
    return None


def _of_its_cases(suite: Suite) -> str | None:
    """Return why the counts or the compiled positions of a suite are not those of its cases, or None."""
    number, counts, compiled = len(suite.cases), suite.counts, suite.compiled
    if counts is not None:
        fine = isinstance(counts, tuple) and all(isinstance(one, int | float) and one > 0 for one in counts)
        if not fine or len(counts) != number:
            return f"counts = {counts!r}: a tuple of numbers above 0 is needed, one for each case"
    if compiled is not None and not (isinstance(compiled, frozenset) and compiled <= set(range(number))):
        return f"compiled = {compiled!r}: a frozenset of positions of cases is needed"
    return None
