"""What a name may be; telling a user that one isn't known, and which one was probably meant."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher

NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*", re.IGNORECASE)
"""Names stand in ids, files, tables and on command lines."""
NAMES_ARE = "letters, digits, '_', '.' and '-', beginning with a letter or digit"
LONGEST = 64
"""Characters of the name of a record."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like ``name``, or None where nothing is near.

    Names are compared whole and by their first part, so that 'spda' finds 'sdpa_flash'. Of names that
    are equally near the first is taken.
    """
    best: str | None = None
    best_score = 0.0
    for candidate in known:
        score = max(_likeness(name, candidate), 0.9 * _likeness(name, candidate.split("_")[0]))
        if score >= 0.6 and score > best_score:
            best, best_score = candidate, score
    return best


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """One sentence: no such name, the nearest, or all there are where nothing is near."""
    names = list(known)
    guess = nearest(name, names)
    if guess is not None:
        return f"no {kind} {name!r}; did you mean {guess!r}?"
    return f"no {kind} {name!r}; there are {', '.join(names) or 'none'}."


def _likeness(left: str, right: str) -> float:
    return SequenceMatcher(None, left.lower(), right.lower()).ratio()
