"""Names and numbers on the line between processes."""

from __future__ import annotations

from collections.abc import Mapping

from attnbench.ipc.shared_memory import Stored
from attnbench.types.problem import UPSTREAM as UPSTREAM

ACTIVATIONS = ("a", "b", "c")
"""The three activations, in the order a backend is called with them."""

PLAIN = ""
"""The plain reference, among those whose outputs are compared."""

OUT = "out"
"""The output, among the parts of an answer; a gradient has the name of its input or parameter."""

WEIGHTS = "weights"
"""The attention weights, which are not part of an answer but come in their own."""

HELD, ERROR = "held.", "error."
"""Prefixes of a gradient's name: its terms before they are subtracted, and the plain reference's error."""

CALLED_OFF = 1 << 32
"""The parent adds this to an eventfd to call a segment off."""


def rule_key(name: str) -> str:
    """Return the name of a rule's parameter in messages, which differs from every projection's."""
    return f"rule.{name}"


def parameter_names(rule: Mapping[str, Stored], projections: Mapping[str, Stored]) -> dict[str, Stored]:
    """Return all parameters of a case by their names in messages."""
    return {rule_key(name): array for name, array in rule.items()} | dict(projections)
