"""Text for people: names and corrections of them, counts, formats, and foreign text made safe to show."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from typing import Any, Literal, get_args

LONGEST = 600


def one_line(failure: BaseException) -> str:
    """Return type and message of an exception on one line, even where its message can't be read."""
    try:
        message = str(failure)
    except BaseException:
        message = "(its message can't be read)"
    return clean(f"{type(failure).__name__}: {message}" if message.strip() else type(failure).__name__)


def _repr(value: object) -> str:
    try:
        return repr(value)
    except BaseException:
        return f"a {type(value).__name__} that can't be shown"


_NOT_PLAIN = re.compile(r"[^\n\t -~]")


def printable(text: str) -> str:
    """Return a text with control, escape and bidi characters as in ``\\x1b``; its lines and tabs stay."""
    return _NOT_PLAIN.sub(
        lambda found: found[0] if found[0].isprintable() else found[0].encode("unicode_escape").decode(), text
    )


def without_home(text: str) -> str:
    """Return a text with ``~`` for the home folder of the user, whose name need not be in a shared file."""
    home = os.path.expanduser("~")  # noqa: PTH111 - "~" where there is none
    if home in ("", "~", "/") or home not in text:
        return text
    # Not inside of other paths, but behind options of compilers.
    return re.sub(rf"(?:(?<![\w.-])|(?<=-[BIL])){re.escape(home)}(?![\w.-])", "~", text)


def printable_json(value: Any) -> Any:
    """Return a value of JSON or TOML with every text in it, names of keys too, printable and on one line."""
    if isinstance(value, str):
        return printable(value).replace("\n", "\\n").replace("\t", "\\t")
    if isinstance(value, list):
        return [printable_json(each) for each in value]
    if isinstance(value, dict):
        return {printable_json(key): printable_json(each) for key, each in value.items()}
    return value


def clean(text: object) -> str:
    """Return a text on one line of at most 600 characters, with unprintable characters escaped."""
    words = text if isinstance(text, str) else _repr(text)
    words = printable(" ".join(words[: 10 * LONGEST].split()))
    return words if len(words) <= LONGEST else words[: LONGEST - 1] + "…"


def count_of(number: int, what: str) -> str:
    """Return a count with its noun, in the plural where needed: 1 core, 2 cores, 12,000 cores."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def capital(text: str) -> str:
    """Return a text with a capital letter first."""
    return text[:1].upper() + text[1:]


def first_of(names: Sequence[str], most: int, between: str = ", ") -> str:
    """Return the first names, and the number of the others: a, b, c and 2 more."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return between.join(names[:most]) + more


def share_of(given: float | str) -> float:
    """Return a share from a number or a text, as 2% or 0.02; raises ValueError."""
    text = str(given).strip()
    return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)


NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*", re.IGNORECASE)
"""Names appear in ids, files, tables and command lines."""
NAMES_ARE = "use letters, digits, '_', '.' and '-', and begin with a letter or digit"
LONGEST_NAME = 64
"""The most characters in the name of a record."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most like ``name``, whole or in its first part; None where none is similar.

    So 'spda' finds 'sdpa_flash'. Among equally similar names the first one wins.
    """

    def likeness(other: str) -> float:
        spelled = (other.lower(), other.lower().split("_")[0])
        return max(SequenceMatcher(None, name.lower(), each).ratio() for each in spelled)

    best = max(known, key=likeness, default="")
    return best if best and likeness(best) >= 0.6 else None


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Return a sentence that a name is unknown, with the nearest known one, or all where none is similar."""
    names = list(known)
    guess = nearest(name, names)
    if guess is not None:
        return f"no {kind} {name!r}; did you mean {guess!r}?"
    there = "there is" if len(names) == 1 else "there are"
    return f"no {kind} {name!r}; {there} {', '.join(names) or 'none'}."


def span_words(seconds: float) -> str:
    """Return a time to the digits that matter before a run: 12 s, 3 min, 2 h."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{round(seconds / 3600)} h"


Format = Literal["table", "json", "csv", "markdown"]
FORMATS: tuple[Format, ...] = get_args(Format)
