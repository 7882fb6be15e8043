"""The cases that what a backend declares allows: combinations of features, small ones that tell much."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from attnbench.cases.covering import Row, covering_rows
from attnbench.cases.identity import build_case
from attnbench.cases.mask_text import parse_mask
from attnbench.testing.absent import device_of
from attnbench.types.backend import Backend
from attnbench.types.case import Case
from attnbench.types.errors import BadCase
from attnbench.types.rule import Rule

MASKS = ("none", "causal", "causal:lower_right", "window:9", "padding", "bool", "float")
LENGTHS = ((33, 33), (17, 65), (65, 20), (1, 70))
"""Past a block, fewer queries than keys, more (of which causal:lower_right leaves some without keys), one."""
FEATURES = ((16, 16), (64, 64), (13, 13), (8, 24))
HEADS = ((2, 2), (4, 2), (3, 1))
LAYERS: tuple[dict[str, Any], ...] = (
    {"wide": True, "bias": True},
    {"E": 40},
    {"E": 40, "bias": True, "cross": True},
    {"E": 40, "out": False},
)
"""``wide``: as wide as its heads together, which some layers must be."""

SAMPLED, SAMPLED_MORE = 500, 5000
"""Combinations drawn at random besides those that cover, and for a backend that declines nearly all."""


@dataclass(frozen=True)
class Candidate:
    """A case and the features that it was made of, by name."""

    case: Case
    features: Row


def candidates(backend: Backend, rules: Mapping[str, Rule], sampled: int = SAMPLED) -> list[Candidate]:
    """Cases within what a backend declares: every two features meet in one of the first, then random ones.

    rules: all that there are, by name. sampled: how many are drawn. The same for the same declarations, each
    case once, and of more those of fewer first.
    """
    named = rules_of(backend, rules)
    values = _values(backend)
    rows = covering_rows(values, possible) + list(_sampled(values, sampled))
    found: dict[Case, Candidate] = {}
    for number, row in enumerate(rows):
        made = _with_rule(row, named, number)
        if made is not None:
            found.setdefault(made.case, made)
    return list(found.values())


def rules_of(backend: Backend, rules: Mapping[str, Rule]) -> list[Rule]:
    """The rules that a backend declares, of those that there are."""
    names = [name for name in (rules if backend.rules is None else backend.rules) if name in rules]
    return [rules[name] for name in names if rules[name].has_dot_form or not backend.needs_dot_form]


def possible(row: Row) -> bool:
    """Whether features make a case that tells something: one query sees more keys than one."""
    return not (row.get("lengths") == (1, 70) and row.get("mask") == "causal")


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


def _sampled(values: Mapping[str, Sequence[Any]], count: int) -> Iterator[Row]:
    random = Random(0)
    for _ in range(count):
        row = {name: random.choice(choices) for name, choices in values.items()}
        if possible(row):
            yield row


def _with_rule(row: Row, rules: Sequence[Rule], number: int) -> Candidate | None:
    """A row as a case of the next rule that makes sense of it; rules take turns."""
    for turn in range(len(rules)):
        rule = rules[(number + turn) % len(rules)]
        case = _case(row, rule)
        if case is None or rule.supports(case) is not None:
            continue
        if case.pass_ == "forward" or rule.no_gradients(case) is None:
            return Candidate(case, {**row, "rule": rule.name, "operation": case.operation})
    return None


def _case(row: Row, rule: Rule) -> Case | None:
    (Lq, Lk), (D, Dv), (H, Hkv) = row["lengths"], row["features"], row["heads"]
    layer = dict(row["layer"])
    if layer.pop("wide", False):
        layer["E"] = H * D
    try:
        return build_case(
            operation="multihead" if layer else "attention",
            rule=rule.name, B=row["B"], H=H, Hkv=Hkv, Lq=Lq, Lk=Lk, D=D, Dv=Dv,
            mask=parse_mask(row["mask"]), dtype=row["dtype"], device=row["device"], pass_=row["pass"],
            **layer,
        )  # fmt: skip
    except BadCase:
        return None
