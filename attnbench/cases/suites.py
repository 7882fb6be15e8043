"""Suites as TOML files: the same format for the built-in ones and a user's own.

    name = "mine"                       # optional: the file's name without .toml
    summary = "what it is, one line"    # optional
    check_only = false                  # optional: true where timing makes no sense
    baseline = "sdpa_flash"             # optional: the backend that ratios refer to, instead of eager
    without = ["10 convolutions"]       # optional, beside counts: what a step has too; totals name it
    share = 0.05                        # optional, beside counts: what attention takes of the program's time

    [defaults]                          # optional: fields for every case that is given by fields
    dtype = "bfloat16"

    [[cases]]                           # a case by its id ...
    id = "attention/scaled_dot/B1-H8-L128-D64/causal"

    [[cases]]                           # ... or by fields
    rule = "scaled_dot"
    B = 1
    H = 12
    Hkv = 4
    L = [512, 1024]                     # a list stands for each of its values: here four cases,
    D = 64                              # the first list varying slowest
    mask = ["none", "causal"]
    compiled = true                     # if any case says so, only those run on backends that compile
    count = 12                          # optional, in all cases or none: calls in one step of a model
    stage = "decode"                    # optional, beside a count: totals are of each stage by itself

Fields: operation, rule, B, H, Hkv, L (or Lq, Lk), D, Dv, mask, dtype, device, pass, dropout, layout, cache,
threads, seed, batch (in place of B and L), storage, kv, returns, of multihead E, bias, cross, out, and the
sizes of an operation, as top; each means what it means in an id. rule is needed, and H, L or batch, and D;
the rest have the defaults of ids. A case with E is multihead unless it says otherwise.
"""

from __future__ import annotations

from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from attnbench.cases.ids import build_case, parse_case
from attnbench.types.case import Case
from attnbench.types.errors import BadCase, BadFile
from attnbench.types.extensions import Suite
from attnbench.types.files import parse_toml, read_text
from attnbench.types.mask import parse_mask
from attnbench.types.operation import known_operations
from attnbench.types.words import unknown_name

MOST_CASES = 100_000
"""The most cases of one entry: the products of long lists would fill the memory."""

MOST_COUNT = 1e15

DEFAULT_SUITE = "smoke"
TORCHS = "sdpa_flash"
"""The backend that stands for torch's function: the baseline of suites of models and programs."""
IN_PROGRAM = " in the program"
"""Ends the name of a stage whose counts are those of a whole program; other stages are of one step."""

_TOP = {
    "name": str, "summary": str, "check_only": bool, "baseline": str, "without": list, "share": float,
    "defaults": dict, "cases": list,
}  # fmt: skip
_WORDS = (
    "operation", "rule", "mask", "dtype", "device", "pass", "cache", "layout", "batch", "storage", "kv",
    "returns",
)  # fmt: skip
_NUMBERS = ("B", "H", "Hkv", "L", "Lq", "Lk", "D", "Dv", "E", "threads", "seed")
_FLAGS = ("bias", "cross", "out")
_FIELDS = (*_WORDS, *_NUMBERS, *_FLAGS, "dropout")
_OF_THE_ENTRY = ("compiled", "count", "stage")
_NAMES = {str: "a text", float: "a fraction, as 0.05", bool: "true or false", dict: "a table", list: "a list"}


def read_suite(path: Path) -> Suite:
    """Read a suite from a TOML file.

    Raises:
        BadFile: one sentence: it can't be read, is not TOML, has an unknown key, or an impossible case.
    """
    try:
        text = read_text(path)
    except OSError as failure:
        raise BadFile(f"can't read the suite {str(path)!r}: {failure.strerror}") from failure
    except UnicodeDecodeError as failure:
        raise BadFile(f"the suite {str(path)!r} is not text: byte {failure.start} isn't UTF-8") from failure
    try:
        return parse_suite(text, path.stem)
    except BadFile as failure:
        raise BadFile(f"the suite {str(path)!r}: {failure}") from failure


def parse_suite(text: str, name: str) -> Suite:
    """Parse the suite in a TOML text, called ``name`` unless the text names it; raises BadFile."""
    try:
        content = parse_toml(text)
    except ValueError as failure:
        raise BadFile(f"malformed TOML: {failure}") from failure
    for key, value in content.items():
        if key not in _TOP:
            raise BadFile(unknown_name("key", key, _TOP))
        if not isinstance(value, _TOP[key]):
            wanted = "an array of tables, [[cases]]" if key == "cases" else _NAMES[_TOP[key]]
            raise BadFile(f"{key} = {value!r}: give {wanted}")
    defaults = content.get("defaults", {})
    known = _fields()
    for key in defaults:
        if key not in known:
            raise BadFile(f"defaults: {unknown_name('key', key, known)}")
    cases: dict[Case, bool] = {}
    counts: dict[Case, float] = {}
    stages: dict[Case, str] = {}
    for number, entry in enumerate(content.get("cases", []), 1):
        try:
            for case in _entry_cases(entry, defaults):
                cases[case] = cases.get(case, False) or entry.get("compiled", False)
                if "count" in entry:
                    counts[case] = counts.get(case, 0) + entry["count"]
                    stage = entry.get("stage", "")
                    if stages.setdefault(case, stage) != stage:
                        raise BadCase(f"its stage is {stage!r}, before it was {stages[case]!r}: give one")
        except BadCase as failure:
            raise BadFile(f"case {number}: {failure}") from failure
    if not cases:
        raise BadFile("it has no [[cases]]: give at least one, by an id or by fields")
    if counts and len(counts) < len(cases):
        raise BadFile(f"{len(counts)} of {len(cases)} cases have a count: give one to all or to none")
    without = content.get("without", [])
    for words in without:
        if not isinstance(words, str) or not words or not words.isprintable():
            raise BadFile(f"without has {words!r}: give a text, as '10 short convolutions'")
    if without and not counts:
        raise BadFile("without = ... needs counts: it says what their total leaves out")
    share = content.get("share")
    if share is not None and not 0 < share <= 1:
        raise BadFile(f"share = {share!r}: give a fraction between 0 and 1, as 0.05")
    if share is not None and not counts:
        raise BadFile("share = ... needs counts: it says which part of the program's time these calls take")
    return Suite(
        name=content.get("name", name),
        summary=content.get("summary", ""),
        cases=tuple(cases),
        check_only=content.get("check_only", False),
        compiled=frozenset(i for i, on in enumerate(cases.values()) if on) if any(cases.values()) else None,
        counts=tuple(counts[case] for case in cases) if counts else None,
        stages=tuple(stages[case] for case in cases) if any(stages.values()) else None,
        without=tuple(without),
        share=share,
        baseline=content.get("baseline"),
    )


def _fields() -> tuple[str, ...]:
    """Return the fields of a case, with the sizes of operations."""
    return (*_FIELDS, *(size.name for one in known_operations().values() for size in one.sizes))


def _entry_cases(entry: object, defaults: dict[str, Any]) -> list[Case]:
    if not isinstance(entry, dict):
        raise BadCase(f"{entry!r} is not a table: write [[cases]] above an id or fields")
    if not isinstance(entry.get("compiled", False), bool):
        raise BadCase(f"compiled = {entry['compiled']!r}: give true or false")
    count = entry.get("count", 1)
    if isinstance(count, bool) or not isinstance(count, int | float) or not 0 < count < MOST_COUNT:
        raise BadCase(f"count = {count!r}: give a number above 0, of calls in one step")
    stage = entry.get("stage", "")
    if not isinstance(stage, str) or not stage.isprintable():
        raise BadCase(f"stage = {stage!r}: give a word, as decode")
    if stage and "count" not in entry:
        raise BadCase(f"stage = {stage!r} without a count: it says which counts are summed together")
    own = {key: value for key, value in entry.items() if key not in _OF_THE_ENTRY}
    if "id" in own:
        others = sorted(key for key in own if key != "id")
        if others:
            raise BadCase(f"an id sets all of a case: leave out {', '.join(others)}")
        return [parse_case(_checked("id", own["id"]))]
    known = _fields()
    for key in own:
        if key not in known:
            raise BadCase(unknown_name("key", key, ("id", *_OF_THE_ENTRY, *known)))
    fields = _without_overridden(defaults, own) | own
    if "rule" not in fields:
        raise BadCase("the rule is missing, as in rule = 'scaled_dot'")
    lists = [value if isinstance(value, list) else [value] for value in fields.values()]
    for key, values in zip(fields, lists, strict=True):
        if not values:
            raise BadCase(f"{key} = []: give at least one value")
    count = prod(map(len, lists))
    if count > MOST_CASES:
        raise BadCase(f"its lists make {count} cases; {MOST_CASES} at most")
    return [_field_case(dict(zip(fields, values, strict=True))) for values in product(*lists)]


def _without_overridden(defaults: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Return the defaults without lengths that the entry gives by another name."""
    lengths = {"L": ("Lq", "Lk", "batch"), "Lq": ("L", "batch"), "Lk": ("L", "batch"), "B": ("batch",)}
    lengths["batch"] = ("B", "L", "Lq", "Lk")
    gone = {other for key in own for other in lengths.get(key, ())}
    return {key: value for key, value in defaults.items() if key not in gone}


def _field_case(fields: dict[str, Any]) -> Case:
    words = {key: _checked(key, value) for key, value in fields.items()}
    if "mask" in words:
        words["mask"] = parse_mask(words["mask"])
    if "pass" in words:
        words["pass_"] = words.pop("pass")
    if "returns" in words:
        words["returns"] = tuple(sorted(words["returns"].split("+")))
    words.setdefault("operation", "multihead" if "E" in words else "attention")
    return build_case(**words)


def _checked(key: str, value: Any) -> Any:
    """Return a text or a flag; a number, which the case checks itself, as it is."""
    if key in _FLAGS and not isinstance(value, bool):
        raise BadCase(f"{key} = {value!r}: give true or false")
    if key in ("id", *_WORDS) and not isinstance(value, str):
        raise BadCase(f"{key} = {value!r}: give a text")
    return value
