"""What others say, as words that can stand in a table, a file and a message: one line, bounded, clean."""

from __future__ import annotations

LONGEST = 600


def one_line(failure: BaseException) -> str:
    """Type and message of an exception on one line, even where its message can't be read."""
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


def clean(text: object) -> str:
    """A text on one line of at most 600 characters, with what can't be written or shown escaped."""
    words = text if isinstance(text, str) else _repr(text)
    words = " ".join(words[: 10 * LONGEST].split()).encode("utf-8", "backslashreplace").decode()
    words = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in words)
    return words if len(words) <= LONGEST else words[: LONGEST - 1] + "…"


def count_of(number: int, what: str) -> str:
    """So many of something that takes an s where they are not one: 1 core, 2 cores, 12,000 cores."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
