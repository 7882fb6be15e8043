"""Which inputs change their signs between two timed calls."""

from __future__ import annotations

import secrets
from math import prod

from msgspec import Struct

from attnbench.types.case import Case
from attnbench.types.shapes import output_shape

MOST_SOLVED_ELEMENTS = 1 << 21
"""Of keys, values or output, of the largest case whose changed query is solved anew."""


class Flipped(Struct, frozen=True):
    """Which inputs had other signs: everything whose opposite gives the opposite answer, or a few elements.

    column: of the values those of a batch element, a key/value head, and a feature. query: a batch element, a
    head, and a query. () for none.
    """

    column: tuple[int, ...] = ()
    query: tuple[int, ...] = ()


ALL = Flipped()


def draw_flipped(case: Case) -> Flipped:
    """All values, or as often a few elements: one feature of the values of one head, and one query.

    Who tells by some elements of the inputs whether they are still the same, and not by all of them, can't
    tell by which. Of layers, of gradients and with dropout it is always all that change.
    """
    below = secrets.randbelow
    if case.layer is not None or case.pass_ != "forward" or below(2) == 0:
        return ALL
    column = (below(case.B), below(case.Hkv), below(case.Dv))
    query = (below(case.B), below(case.H), below(case.Lq)) if solves_a_query(case) else ()
    return Flipped(column, query)


def solves_a_query(case: Case) -> bool:
    """Whether the answer to one other query is solved anew in a moment, and answers are judged by value."""
    keys = case.B * case.Hkv * case.Lk * max(case.D, case.Dv)
    return not case.dropout and max(keys, prod(output_shape(case))) <= MOST_SOLVED_ELEMENTS
