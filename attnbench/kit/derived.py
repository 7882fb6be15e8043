"""What is derived from parameters: once in a forward pass, in every call where gradients are asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from attnbench.types.backend import Setup

if TYPE_CHECKING:
    from attnbench.types.backend import Call


def derived(setup: Setup, make: Callable[[Setup], Call]) -> Call:
    """``make(setup)`` in a forward pass; in the others a function that makes it anew in each call.

    A gradient reaches a parameter through a graph, which the first backward pass through it uses up. So
    in ``backward`` and ``both`` all that is computed from parameters - the rule's binding with its bias,
    joined or split matrices - is computed in the call and has a graph of that call's own. What depends on
    the case alone, as masks do, is made outside of ``make``.
    """
    if setup.case.pass_ == "forward":
        return make(setup)
    return lambda a, b, c: make(bound_anew(setup))(a, b, c)


def bound_anew(setup: Setup) -> Setup:
    """The same with the rule bound to its parameters once more: what a binding computes has a fresh graph."""
    scoring = setup.rule.bind(setup.case, setup.rule_parameters)
    return Setup(setup.case, setup.rule, scoring, setup.rule_parameters, setup.projections)
