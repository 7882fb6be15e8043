"""The kinds of records that plugins bring: hook, type, registry field, and the values of each field."""

from __future__ import annotations

from collections.abc import Callable, Collection
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
from attnbench.types.storage import Size, Storage
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


_FUNCTIONS = (
    "available", "bind", "check", "connect", "decide", "decode", "draw", "encode", "flops", "inputs",
    "no_gradients", "outputs", "parameters", "plan", "planned", "prepare", "put", "read", "reference",
    "refuses", "render", "score_elements", "score_flops", "shares", "sink", "solve", "supports", "take",
    "tensors", "touched", "unread", "value", "weights",
)  # fmt: skip

_FLAGS = (
    "check_only", "compiles", "concatenates", "concurrent", "dropout", "forkable", "has_dot_form",
    "ignores_dropped", "masks_by_head", "mirrors", "needs_contiguous", "needs_dot_form", "pairs_keys",
    "shared", "writes_out",
)  # fmt: skip

_TESTS: dict[str, Test] = {
    **dict.fromkeys(("baseline", "formula", "source", "summary"), _text),
    **dict.fromkeys(_FUNCTIONS, _function),
    **dict.fromkeys(_FLAGS, _flag),
    **dict.fromkeys(
        (
            "converts",
            "encoded",
            "grains",
            "keeps",
            "kept",
            "lengths",
            "marks",
            "requires",
            "returns",
            "rules",
        ),
        _words,
    ),
    "operations": _some_words,
    "storages": _some_words,
    "encodings": _some_words,
    "laws": partial(_some_of, get_args(Law)),
    "dtypes": partial(_some_of, DTYPES),
    "autocast": partial(_some_of, AUTOCAST),
    "masks": partial(_some_of, (ANY_MASK, *WORDS)),
    "devices": partial(_some_of, tuple(DEVICES)),
    "passes": partial(_some_of, PASSES),
    "layout": partial(_word, get_args(Layout)),
    "computes_in": partial(_word, ARITHMETICS),
    "quadratic_copies": partial(_count, 0),
    "digits": partial(_count, 1),
    "head": _head,
    "cases": _cases,
    "constants": partial(_ranged, Constant, "constant", "example"),
    "sizes": partial(_ranged, Size, "size", "default"),
}
"""The tests of fields by name; a field means the same in every kind of record."""


@dataclass(frozen=True)
class Kind:
    """A kind of record.

    field: of the registry, where entries stand by name; the hook is ``attnbench_FIELD``. word: one of them in
    a sentence. listed: the word of ``attnbench list`` and the column of ``attnbench plugins``. type: of a
    record. unlike: besides the name, fields in which no two records may be alike.
    """

    field: str
    word: str
    listed: str
    type: type
    unlike: tuple[str, ...] = ()

    @property
    def hook(self) -> str:
        """The hook that gives records of this kind."""
        return f"{hookspecs.PROJECT}_{self.field}"


KINDS = (
    Kind("rules", "a rule", "rules", Rule),
    Kind("backends", "a backend", "backends", Backend),
    Kind("operations", "an operation", "operations", Operation),
    Kind("storages", "a storage", "storages", Storage),
    Kind("encodings", "an encoding", "encodings", Encoding),
    Kind("suites", "a suite", "suites", Suite),
    Kind("verdict_rules", "a verdict rule", "verdicts", VerdictRule),
    Kind("metrics", "a metric", "metrics", Metric, unlike=("head",)),
    Kind("reporters", "a reporter", "reporters", Reporter),
    Kind("environment_facts", "an environment fact", "facts", EnvironmentFact),
    Kind("executors", "an executor", "executors", Executor),
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
    for field in fields(record):
        value, test = getattr(record, field.name), _TESTS.get(field.name)
        if test is not None and value is not field.default and (needed := test(value)):
            return f"{name}: {field.name} = {value!r}: {needed}"
    if isinstance(record, Operation) and (record.solve is None) == (record.heads is None):
        return f"{name}: exactly one of solve and heads is needed"
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
