"""The cases that a backend's declarations allow: small ones that combine features, and a few large ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from attnbench.cases.covering import Row, covering_rows
from attnbench.cases.ids import build_case, parse_mask
from attnbench.types.backend import Backend
from attnbench.types.case import Case
from attnbench.types.errors import BadCase
from attnbench.types.rule import Rule

MASKS = ("none", "causal", "causal:lower_right", "window:9", "padding", "bool", "float")
LENGTHS = ((33, 33), (17, 65), (65, 20), (1, 70))
"""Past a block, fewer queries than keys, more (causal:lower_right leaves some without keys), one query."""
FEATURES = ((16, 16), (64, 64), (13, 13), (8, 24))
HEADS = ((2, 2), (4, 2), (3, 1))
LAYERS: tuple[dict[str, Any], ...] = (
    {"wide": True, "bias": True},
    {"E": 40},
    {"E": 40, "bias": True, "cross": True},
    {"E": 40, "out": False},
)
"""``wide``: as wide as its heads together, which some layers require."""

SAMPLED, SAMPLED_MORE = 500, 5000
"""Random combinations besides the covering ones, and their number for a backend that declines nearly all."""

LARGE: tuple[dict[str, Any], ...] = (
    {"B": 1, "H": 2, "Lq": 1100, "Lk": 1100, "D": 64, "mask": "causal"},
    {"B": 2, "H": 4, "Hkv": 2, "Lq": 1, "Lk": 5000, "D": 64, "mask": "none"},
    {"B": 64, "H": 8, "Lq": 40, "Lk": 40, "D": 32, "mask": "none", "half": True},
    {"B": 1, "H": 2, "Lq": 600, "Lk": 600, "D": 32, "mask": "causal", "pass_": "both"},
)
"""``half``: in a half precision where the backend declares one."""
MOST_ELEMENTS = 2**25
"""What a straightforward form of the rule may hold for all pairs at once."""


@dataclass(frozen=True)
class Candidate:
    """A case and the features that it was made of, by name."""

    case: Case
    features: Row


def device_of(backend: Backend) -> str:
    """Return the device that the kit checks a backend on: the CPU where it can."""
    return "cpu" if "cpu" in backend.devices else backend.devices[0]


def candidates(backend: Backend, rules: Mapping[str, Rule], sampled: int = SAMPLED) -> list[Candidate]:
    """Make cases within a backend's declarations, each once; the same declarations give the same cases.

    In the first cases every two features meet; ``sampled`` random combinations follow. rules: by name.
    """
    named = rules_of(backend, rules)
    values = _values(backend)
    random = Random(0)
    drawn = [{name: random.choice(choices) for name, choices in values.items()} for _ in range(sampled)]
    rows = [*covering_rows(values, possible), *filter(possible, drawn)]
    found: dict[Case, Candidate] = {}
    for number, row in enumerate(rows):
        made = _with_rule(row, named, number)
        if made is not None:
            found.setdefault(made.case, made)
    return list(found.values())


def rules_of(backend: Backend, rules: Mapping[str, Rule]) -> list[Rule]:
    """Return the rules that a backend declares, of those that exist."""
    names = [name for name in (rules if backend.rules is None else backend.rules) if name in rules]
    return [rules[name] for name in names if rules[name].has_dot_form or not backend.needs_dot_form]


def possible(row: Row) -> bool:
    """Return whether a case of these features can detect errors: one query must see several keys."""
    return not (row.get("lengths") == (1, 70) and row.get("mask") == "causal")


def large_cases(backend: Backend, rules: Sequence[Rule]) -> Iterator[list[Case]]:
    """Yield alternatives for each large case, the most demanding first. The first that is taken counts."""
    for wanted in LARGE[:1] if backend.compiles else LARGE:
        if wanted.get("pass_", "forward") not in backend.passes:
            continue
        easier: tuple[dict[str, Any], ...] = ({}, {"Hkv": wanted["H"]}, {"Hkv": wanted["H"], "mask": "none"})
        made = [_large(backend, rule, wanted | change) for change in easier for rule in rules]
        yield [case for case in made if case is not None]


def _values(backend: Backend) -> dict[str, Sequence[Any]]:
    layers: list[dict[str, Any]] = [{}] if "attention" in backend.operations else []
    if "multihead" in backend.operations:
        layers += LAYERS
    return {
        "mask": MASKS,
        "lengths": LENGTHS,
        "features": FEATURES,
        "heads": HEADS,
        "layer": layers,
        "dtype": backend.dtypes,
        "pass": backend.passes,
        "B": (2, 1),
        "device": (device_of(backend),),
    }


def _with_rule(row: Row, rules: Sequence[Rule], number: int) -> Candidate | None:
    """Make a case of a row and the next rule that allows it; rules take turns."""
    for turn in range(len(rules)):
        rule = rules[(number + turn) % len(rules)]
        case = _small(row, rule)
        if case is not None:
            return Candidate(case, {**row, "rule": rule.name, "operation": case.operation})
    return None


def _small(row: Row, rule: Rule) -> Case | None:
    (Lq, Lk), (D, Dv), (H, Hkv) = row["lengths"], row["features"], row["heads"]
    layer = dict(row["layer"])
    if layer.pop("wide", False):
        layer["E"] = H * D
    return _case(
        rule, B=row["B"], H=H, Hkv=Hkv, Lq=Lq, Lk=Lk, D=D, Dv=Dv, mask=row["mask"], dtype=row["dtype"],
        device=row["device"], pass_=row["pass"], **layer,
    )  # fmt: skip


def _large(backend: Backend, rule: Rule, wanted: dict[str, Any]) -> Case | None:
    sizes = dict(wanted)
    half = ("bfloat16", "float16") if sizes.pop("half", False) else ()
    dtypes = [dtype for dtype in (*half, "float32", *backend.dtypes) if dtype in backend.dtypes]
    if "attention" not in backend.operations:
        sizes["E"] = sizes["H"] * sizes["D"]
    case = _case(rule, dtype=dtypes[0], device=device_of(backend), **sizes)
    if case is None or case.B * case.H * case.Lq * case.Lk * rule.score_elements(case) > MOST_ELEMENTS:
        return None
    return case


def _case(rule: Rule, *, mask: str, **sizes: Any) -> Case | None:
    """Return the case of a rule with these sizes; None where there is no such case."""
    operation = "multihead" if "E" in sizes else "attention"
    try:
        case = build_case(operation=operation, rule=rule.name, mask=parse_mask(mask), **sizes)
    except BadCase:
        return None
    refused = rule.supports(case) or (case.pass_ != "forward" and rule.no_gradients(case))
    return None if refused else case
