"""Rules whose NumPy reference does what a reference must not: test data for the verifier."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from attnbench import Case, DotForm, Rule, Scoring, hookimpl

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.rule import Array


def raises(q: Array, k: Array, parameters: Mapping[str, Array], positions: Array) -> Array:
    raise ZeroDivisionError("no scores\ntoday")


def exits(q: Array, k: Array, parameters: Mapping[str, Array], positions: Array) -> Array:
    os._exit(7)


def gives_nan(q: Array, k: Array, parameters: Mapping[str, Array], positions: Array) -> Array:
    return np.full((len(q), len(k)), np.nan)


def wrong_shape(q: Array, k: Array, parameters: Mapping[str, Array], positions: Array) -> Array:
    return (q @ k.T)[:, :-1]


def disagrees(q: Array, k: Array, parameters: Mapping[str, Array], positions: Array) -> Array:
    """Of another temperature than the torch form below."""
    return 3 * (q @ k.T)


def bind(case: Case, parameters: Mapping[str, Tensor]) -> Scoring:
    return Scoring(dot=DotForm())


def bind_that_raises(case: Case, parameters: Mapping[str, Tensor]) -> Scoring:
    raise LookupError("no torch form")


REFERENCES = (raises, exits, gives_nan, wrong_shape, disagrees)


@hookimpl
def attnbench_rules() -> Iterator[Rule]:
    for reference in REFERENCES:
        yield Rule(f"odd_{reference.__name__}", "q·k", "a test", reference, bind)
    yield Rule("odd_bind", "q·k", "a test", lambda q, k, parameters, positions: q @ k.T, bind_that_raises)
