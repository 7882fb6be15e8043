"""The problems of a case for backends: a setup for each sequence of a batch, and where it lies."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from attnbench.types.backend import Setup
from attnbench.types.problem import problems_of

if TYPE_CHECKING:
    from torch import Tensor


def problem_setups(setup: Setup) -> tuple[Setup, ...]:
    """Return a setup of each problem, with the rule bound to it and the same parameters.

    They ask for the output alone. Of a case without a batch and further outputs it is the setup itself.
    """
    case = setup.case
    if not case.batch and not case.returns:
        return (setup,)
    alone = [replace(problem, returns=()) for problem in problems_of(case)]
    own, bind = setup.rule_parameters, setup.rule.bind
    return tuple(Setup(one, setup.rule, bind(one, own), own, setup.projections) for one in alone)


def ranges(cumulative: Tensor) -> list[slice]:
    """Return the range of each sequence from cumulative lengths, (N + 1,)."""
    return [slice(start, end) for start, end in pairwise(cumulative.tolist())]
