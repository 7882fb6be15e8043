"""How the writers of caches round numbers to codes."""

from __future__ import annotations

from attnbench.types.rule import Constant, Rule

NEAREST = Rule(
    name="nearest",
    formula="code = that of the number nearest to x / scale",
    source="the arithmetic of rounding; codes and scales are those of the encoding (docs/serving.md)",
    rounds=True,
    constants=(
        Constant(
            name="nan",
            meaning="1: NaN among numbers must be read back as NaN",
            least=0,
            most=1,
            default=0,
            example=1,
        ),
        Constant(
            name="steps",
            meaning="how many steps beside the nearest a code may be",
            least=0,
            most=1,
            default=0,
            example=1,
        ),
    ),
)
