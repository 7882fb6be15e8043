"""The check's verdict on a backend, for cases of tests."""

from __future__ import annotations

from solved import BACKENDS, Solved, solved, stored_of

from attnbench.check.errors import Errors, compare, pool
from attnbench.check.plain import PLAIN
from attnbench.check.verdict import scale_of, verdict
from attnbench.types.backend import Backend


def errors_of(backend: Backend, draws: list[Solved]) -> Errors:
    dtype = draws[0].case.dtype
    return pool([compare(stored_of(each.run(backend)), each.expected, dtype) for each in draws])


def problem(name: str, text: str, draws: int) -> str:
    """What the check says of a backend, "" for nothing."""
    cases = [solved(text, draw) for draw in range(draws)]
    case = cases[0].case
    _, words = verdict(
        errors_of(BACKENDS[name], cases),
        errors_of(PLAIN, cases),
        output=scale_of([each.expected for each in cases]),
        values=scale_of([each.inputs[2].double().numpy() for each in cases]),
        dtype=case.dtype,
        rows=case.Lq,
        rows_of=case.Lq,
        draws=draws,
    )
    return words
