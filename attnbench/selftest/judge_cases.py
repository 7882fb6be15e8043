"""The cases on which the zoo is judged: small ones in which every two conditions meet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from attnbench.cases.covering import covering_rows
from attnbench.cases.identity import build_case, parse_case
from attnbench.cases.mask_text import parse_mask
from attnbench.types.case import Case

VALUES: dict[str, tuple[Any, ...]] = {
    "rule": (
        "scaled_dot", "dot", "general", "additive", "additive_sum", "concat_linear", "cosine", "alibi",
        "softcap", "sinks",
    ),
    "mask": (
        "none", "causal", "causal:lower_right", "window:5", "causal:lower_right+window:6", "padding",
        "causal+padding", "bool", "float",
    ),
    # One beside, at and past a block; Lq < Lk and Lq > Lk; both beyond what the shortest blocks hold.
    "lengths": ((12, 12), (9, 40), (33, 17), (1, 24), (16, 16), (40, 71)),
    "features": ((8, 8), (13, 12), (5, 5)),
    "heads": ((4, 2), (3, 3), (6, 2), (4, 1)),
    "layer": ({}, {"E": 24, "bias": True, "cross": True}, {"E": 20}, {"E": 24, "out": False, "bias": True}),
    "dtype": ("float32", "bfloat16", "float64", "float16"),
    "pass_": ("forward", "both", "backward"),
    "B": (2, 3),
}  # fmt: skip

WEIGHTS = {"dtype": (5, 3, 1, 1), "layer": (9, 1, 1, 1), "pass_": (7, 3, 1)}

MANY_KEYS = (
    "attention/scaled_dot/B1-H2-Hkv1-Lq12-Lk700-D8/none/bfloat16",
    "attention/alibi/B1-H2-Lq40-Lk560-D8/causal:lower_right/float16",
)
"""For mistakes that a sum over hundreds of keys shows."""

TIMED = (
    "attention/scaled_dot/B2-H4-Hkv2-Lq16-Lk24-D8/none",
    "attention/softcap/B2-H4-L32-D16/causal/bfloat16",
    "multihead/scaled_dot/B2-H4-L16-D8-E32-bias/padding",
    "attention/sinks/B2-H4-Hkv2-Lq9-Lk40-D8/causal:lower_right",
)
"""Of calls so short that hundreds are made in a moment."""


def covering_cases(seed: int) -> tuple[Case, ...]:
    """Cases in which every two values of :data:`VALUES` meet, and a few with many keys; inputs by a seed."""
    rows = covering_rows(VALUES, _possible, WEIGHTS)
    return (*(_case(row, seed) for row in rows), *_told(MANY_KEYS, seed))


def timed_cases(seed: int) -> tuple[Case, ...]:
    """Cases in which calls are timed."""
    return _told(TIMED, seed)


def _told(ids: tuple[str, ...], seed: int) -> tuple[Case, ...]:
    return tuple(replace(parse_case(text), seed=seed) for text in ids)


def _possible(row: dict[str, Any]) -> bool:
    """Whether a case tells something: a query that sees one key alone tells nothing of scores."""
    return not (row.get("lengths") == (1, 24) and row.get("mask") in ("causal", "causal+padding"))


def _case(row: dict[str, Any], seed: int) -> Case:
    (Lq, Lk), (D, Dv), (H, Hkv) = row["lengths"], row["features"], row["heads"]
    return build_case(
        operation="multihead" if row["layer"] else "attention",
        rule=row["rule"], B=row["B"], H=H, Hkv=Hkv, Lq=Lq, Lk=Lk, D=D, Dv=Dv,
        mask=parse_mask(row["mask"]), dtype=row["dtype"], pass_=row["pass_"], seed=seed, **row["layer"],
    )  # fmt: skip
