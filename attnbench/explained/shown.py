"""Steps as they are shown in Python: as text, and in a notebook as a picture."""

from __future__ import annotations

from dataclasses import dataclass

from attnbench.explained.picture import svg
from attnbench.explained.steps import Step, steps_text
from attnbench.types.words import clean


@dataclass(frozen=True, repr=False)
class Explained:
    """The steps of a computation. ``print`` it, or end a cell by it. title: what is computed, on what. rule:
    its name; "" for a lesson.
    """

    title: str
    steps: tuple[Step, ...]
    rule: str = ""

    def __repr__(self) -> str:
        return f"{clean(self.title)}\n\n{steps_text(self.steps)}"

    def _repr_html_(self) -> str:
        """The picture of all steps, for a notebook."""
        return svg(self.steps, self.title)
