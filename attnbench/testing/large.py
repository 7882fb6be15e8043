"""The few large cases: long sequences, long contexts, many batch elements, gradients over several blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attnbench.cases.identity import build_case
from attnbench.cases.mask_text import parse_mask
from attnbench.testing.absent import device_of
from attnbench.testing.asking import ask
from attnbench.types.backend import Backend
from attnbench.types.case import Case
from attnbench.types.errors import BadCase
from attnbench.types.rule import Rule

LARGE: tuple[dict[str, Any], ...] = (
    {"B": 1, "H": 2, "Lq": 1100, "Lk": 1100, "D": 64, "mask": "causal"},
    {"B": 2, "H": 4, "Hkv": 2, "Lq": 1, "Lk": 5000, "D": 64, "mask": "none"},
    {"B": 64, "H": 8, "Lq": 40, "Lk": 40, "D": 32, "mask": "none", "half": True},
    {"B": 1, "H": 2, "Lq": 600, "Lk": 600, "D": 32, "mask": "causal", "pass_": "both"},
)
MOST_ELEMENTS = 2**25
"""Of what a straightforward form of the rule holds for all pairs at once."""


def large_cases(backend: Backend, rules: Sequence[Rule]) -> list[Case]:
    """Large cases that a backend takes; instead of those that it declines easier ones."""
    found: list[Case] = []
    for wanted in LARGE[:1] if backend.compiles else LARGE:
        if wanted.get("pass_", "forward") in backend.passes:
            found += _first_taken(backend, rules, wanted)
    return found


def _first_taken(backend: Backend, rules: Sequence[Rule], wanted: dict[str, Any]) -> list[Case]:
    for easier in ({}, {"Hkv": wanted["H"]}, {"Hkv": wanted["H"], "mask": "none"}):
        for rule in rules:
            case = _case(backend, rule, wanted | easier)
            if case is None or rule.supports(case) is not None:
                continue
            if case.pass_ != "forward" and rule.no_gradients(case) is not None:
                continue
            if case.B * case.H * case.Lq * case.Lk * rule.score_elements(case) > MOST_ELEMENTS:
                continue
            answer = ask(backend, case, rule)
            if answer.reason is None and not answer.fault:
                return [case]
    return []


def _case(backend: Backend, rule: Rule, wanted: dict[str, Any]) -> Case | None:
    sizes = dict(wanted)
    half = [
        dtype for dtype in ("bfloat16", "float16") if dtype in backend.dtypes and sizes.pop("half", False)
    ]
    sizes.pop("half", None)
    wide = [dtype for dtype in ("float32", *backend.dtypes) if dtype in backend.dtypes]
    if "attention" not in backend.operations:
        sizes |= {"E": sizes["H"] * sizes["D"]}
    try:
        return build_case(
            operation="multihead" if "E" in sizes else "attention",
            rule=rule.name,
            dtype=(half or wide)[0],
            device=device_of(backend),
            **(sizes | {"mask": parse_mask(sizes["mask"])}),
        )
    except BadCase:
        return None
