"""Sentences as pieces: plain words, and names that came from files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Tone = Literal["plain", "good", "unsure", "bad"]


@dataclass(frozen=True)
class Name:
    """The name of a backend or a case, as it stands in a file: set apart from the words around it."""

    text: str


Piece = str | Name


def isolated(text: str) -> str:
    """A text of a file in the midst of ours, set apart: letters from right to left, and marks that turn the
    direction, end with it (Unicode's UAX 9, 2.7). ASCII has neither and stays as it is.
    """
    return text if text.isascii() else f"\u2068{text}\u2069"


@dataclass(frozen=True)
class Sentence:
    """A sentence, and the cases that it counts, to be unfolded.

    tone: good, something is proved; unsure, something is not; bad, something failed, or became
    slower.
    """

    pieces: tuple[Piece, ...]
    tone: Tone = "plain"
    cases: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """As plain text."""
        return "".join(piece.text if isinstance(piece, Name) else piece for piece in self.pieces)


def sentence(*pieces: Piece | Iterable[Piece], tone: Tone = "plain", cases: Sequence[str] = ()) -> Sentence:
    """A sentence of pieces and of runs of pieces."""
    flat: list[Piece] = []
    for piece in pieces:
        flat += [piece] if isinstance(piece, str | Name) else list(piece)
    return Sentence(tuple(piece for piece in flat if piece), tone, tuple(cases))


def listed(names: Sequence[str], last: str = "and") -> list[Piece]:
    """Names as a list: a, b and c."""
    pieces: list[Piece] = []
    for place, name in enumerate(names):
        if place:
            pieces.append(f" {last} " if place == len(names) - 1 else ", ")
        pieces.append(Name(name))
    return pieces


def share(count: int, whole: int, what: str, whose: str = "") -> str:
    """A part of a whole: 2 of 12 cases; all 12 cases; both cases; the one case.

    whose: "its", where the whole is not that of the run.
    """
    its = f"{whose} " if whose else ""
    if whole == 1:
        return f"{its or 'the '}one {what}"
    if count == whole == 2:
        return f"both {its}{what}s"
    return f"all {its}{whole:,} {what}s" if count == whole else f"{count:,} of {its}{whole:,} {what}s"
