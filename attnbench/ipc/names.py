"""Names and numbers on the line between processes."""

from __future__ import annotations

from collections.abc import Mapping

from attnbench.ipc.shared_memory import Stored

ACTIVATIONS = ("a", "b", "c")
"""The three activations, in the order a backend is called with them."""

UPSTREAM = "upstream"
"""The gradient of the output, which comes with the activations where a case asks for gradients."""

PLAIN = ""
"""The plain reference, among those whose outputs are compared."""

OUT = "out"
"""The output, among the parts of an answer; gradients have the names of what they are of."""

WEIGHTS = "weights"
"""The attention weights, which are no part of an answer but asked for apart."""

HELD, ERROR = "held.", "error."
"""Before the name of a gradient: what it is a difference of, and by how much the plain reference is off."""

CALLED_OFF = 1 << 32
"""The value of an eventfd by which the parent calls a stretch off."""


def rule_key(name: str) -> str:
    """The wire name of a rule's parameter, which can't clash with a projection's."""
    return f"rule.{name}"


def parameter_names(rule: Mapping[str, Stored], projections: Mapping[str, Stored]) -> dict[str, Stored]:
    """All parameters of a case by wire name."""
    return {rule_key(name): array for name, array in rule.items()} | dict(projections)
