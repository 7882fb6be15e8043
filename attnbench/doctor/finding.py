"""What the doctor says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["fine", "note", "bad"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    level: ``bad`` where it would change a verdict of a run as asked for; ``note`` where a reader should know.
    what: what was found. effect: what that does here, measured where it could be. remedy: what helps; ""
    where nothing is needed.
    """

    name: str
    level: Level
    what: str
    effect: str = ""
    remedy: str = ""
