"""The suite ``edges``: conditions under which kernels fail; every two of them meet in some case.

``python tests/suites/make_edges.py`` writes its file, which a new rule changes.
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import attnbench
from attnbench.cases.covering import covering_rows
from attnbench.cases.ids import build_case, case_id
from attnbench.rules import attnbench_rules
from attnbench.types.case import Case
from attnbench.types.mask import parse_mask

FILE = Path(attnbench.__file__).parent / "suites" / "data" / "edges.toml"
HEAD = """\
# Conditions under which kernels fail; every two of them meet in some case. tests/suites/make_edges.py
# writes this file.
summary = "for checking: all pairs of rule, mask, length, features, heads, layer, dtype"
check_only = true"""

VALUES: dict[str, tuple[Any, ...]] = {
    "mask": (
        "none", "causal", "causal:lower_right", "window:9", "causal:lower_right+window:16", "causal+padding",
        "bool", "float",
    ),
    # One beside, at and past the block sizes of kernels, both Lq < Lk and Lq > Lk.
    "lengths": ((1, 1000), (2, 129), (17, 15), (16, 16), (63, 65), (65, 64), (127, 128), (1000, 127)),
    "features": ((64, 64), (1, 8), (13, 13), (40, 40), (80, 96), (128, 128), (160, 160), (256, 256)),
    "heads": ((3, 3), (1, 1), (7, 1), (12, 4), (12, 12)),
    "layer": ({}, {"E": 40, "bias": True, "cross": True}, {"E": 40}, {"E": 40, "out": False}),
    "dtype": ("float32", "bfloat16", "float64", "float16"),
    "B": (1, 3),
}  # fmt: skip

WEIGHTS = {"dtype": (4, 4, 1, 1), "layer": (9, 1, 1, 1)}

# The layer as most libraries have it: as wide as its heads together, and one key for each query head.
USUAL_LAYER: dict[str, tuple[Any, ...]] = {
    "rule": ("scaled_dot",),
    "mask": ("none", "causal", "padding", "bool", "float"),
    "lengths": ((65, 65), (63, 129)),
    "features": ((40, 40), (8, 8)),
    "heads": ((4, 4), (3, 3)),
    "layer": ({"bias": True}, {}),
    "dtype": ("float32", "bfloat16"),
    "B": (1, 3),
}

# Few, since a plugin that takes one mask for all heads declines them.
MASKS_BY_HEAD: dict[str, tuple[Any, ...]] = {
    "rule": ("alibi",),
    "mask": ("bool:per_head", "causal+float:per_head"),
    "lengths": ((63, 65),),
    "features": ((13, 13),),
    "heads": ((12, 4),),
    "layer": ({}, {"E": 40}),
    "dtype": ("float32", "bfloat16"),
    "B": (3,),
}

MOST_TANH = 2**22
"""Most B·H·Lq·Lk·D of the additive rules: a straightforward form makes as many tanh."""
MOST_HALF = 2**22
"""Most B·H·Lq·Lk·D in float16, which a CPU without instructions for it computes hundreds of times slower."""
MOST = 2**26


def possible(row: dict[str, Any]) -> bool:
    """Return whether a case detects errors and is quick; parameters without a value count as smallest."""
    if row.get("lengths") == (1, 1000) and row.get("mask") in ("causal", "causal+padding"):
        return False  # Its one query sees one key, so the answer is a value whatever the scores are.
    Lq, Lk = row.get("lengths", (16, 16))
    size: int = prod((row.get("B", 1), row.get("heads", (1, 1))[0], Lq, Lk, row.get("features", (1, 8))[0]))
    limit = MOST_TANH if row.get("rule", "").startswith("additive") else MOST
    return size <= (min(limit, MOST_HALF) if row.get("dtype") == "float16" else limit)


def edges() -> list[tuple[Case, bool]]:
    """Make the cases of the suite; those with True run on backends that compile."""
    # The first rule meets most other conditions.
    rules = sorted(
        (rule.name for rule in attnbench_rules() if rule.kind == "scores"),
        key=lambda name: name != "scaled_dot",
    )
    rows = covering_rows({"rule": tuple(rules)} | VALUES, possible, WEIGHTS)
    compiled = _compiled(rows)
    rows = [*rows, *covering_rows(MASKS_BY_HEAD, possible)]
    for row in covering_rows(USUAL_LAYER, possible):
        width = row["heads"][0] * row["features"][0]
        rows.append(row | {"layer": row["layer"] | {"E": width}})
    return [(_case(row), place in compiled) for place, row in enumerate(rows)]


def text() -> str:
    """Return the suite as TOML."""
    cases = [f'[[cases]]\nid = "{case_id(case)}"\n{"compiled = true" * on}' for case, on in edges()]
    return "\n\n".join([HEAD, *map(str.rstrip, cases)]) + "\n"


def _case(row: dict[str, Any]) -> Case:
    (Lq, Lk), (D, Dv), (H, Hkv) = row["lengths"], row["features"], row["heads"]
    return build_case(
        operation="multihead" if row["layer"] else "attention",
        rule=row["rule"], B=row["B"], H=H, Hkv=Hkv, Lq=Lq, Lk=Lk, D=D, Dv=Dv,
        mask=parse_mask(row["mask"]), dtype=row["dtype"], **row["layer"],
    )  # fmt: skip


def _compiled(rows: list[dict[str, Any]]) -> list[int]:
    masks: dict[str, int] = {}
    for position, row in enumerate(rows):
        if row["rule"] == "scaled_dot" and not row["layer"] and row["dtype"] in ("float32", "bfloat16"):
            masks.setdefault(row["mask"], position)
    return list(masks.values())[:5]


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
