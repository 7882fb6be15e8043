"""Parts of a selection: shards, one for each of several machines, and chosen cases."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import replace
from hashlib import sha256

from attnbench.cases.ids import case_id, parse_case
from attnbench.cases.select import Selection
from attnbench.types.errors import BadInput
from attnbench.types.record import Shard
from attnbench.types.words import count_of


def shard_number(case: str, of: int) -> int:
    """Return the shard of a case, from 1 to ``of``. Its id alone decides, so other cases change nothing."""
    return 1 + int.from_bytes(sha256(case.encode()).digest()[:8], "big") % of


def cut(selection: Selection, text: str) -> Selection:
    """Return the cases of the shard that a text such as ``3/16`` names; there may be none.

    Raises:
        BadInput: the text is not a shard.
    """
    found = re.fullmatch("([0-9]{1,9})/([0-9]{1,9})", text)
    number, of = map(int, found.groups()) if found else (0, 0)
    if not 1 <= number <= of:
        raise BadInput(f"shard {text!r}: give K/N with K from 1 to N; 3/16 is the third of 16 shards")
    return _part(selection, number, of, lambda case: shard_number(case, of) == number)


def only(selection: Selection, names: Collection[str]) -> Selection:
    """Return the cases of some ids.

    Raises:
        BadInput: one of them is not selected.
    """
    wanted = {case_id(parse_case(name)) for name in names}
    if unknown := wanted - {case_id(case) for case in selection.cases}:
        raise BadInput(f"no case {min(unknown)!r} is selected; attnbench list cases lists those that are")
    return _part(selection, 0, 0, wanted.__contains__)


def _part(selection: Selection, number: int, of: int, wanted: Callable[[str], bool]) -> Selection:
    cases = [case for case in selection.cases if wanted(case_id(case))]
    kept, on = frozenset(cases), selection.compiled_on
    return replace(
        selection,
        cases=tuple(cases),
        compiled_on=None if on is None else on & kept,
        counts={case: count for case, count in selection.counts.items() if case in kept},
        shard=Shard(number, of, [case_id(case) for case in selection.cases]),
    )


def shard_words(selection: Selection) -> str:
    """Return a sentence on the shard of a selection; "" if it is whole."""
    shard = selection.shard
    if shard is None:
        return ""
    words = f"shard {shard}: {len(selection.cases)} of {count_of(len(shard.cases), 'case')}"
    if not selection.cases:
        return f"{words}; nothing to run, and no file is written"
    return f"{words}; the total of a step needs all of them, and is left out" if selection.counts else words
