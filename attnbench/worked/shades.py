"""Weights as shades of a terminal: queries down, keys across, darker is larger."""

from __future__ import annotations

from collections.abc import Sequence

from attnbench.types.words import clean
from attnbench.worked.steps import Step

GAP = "…"
_SHADES = " ░▒▓█"
_LONGEST_LABEL = 16
_DOWN = 64


def heatmap(step: Step, width: int) -> str:
    """Weights as shades: queries down, keys across, darker is larger; as many as fit."""
    from rich.cells import cell_len

    values = step.values
    labels = [short(label) for label in step.rows[:_DOWN]]
    left, most = max(map(cell_len, labels)), float(values.max()) or 1.0
    shown = values[:_DOWN, : max(3, (width - left - 4) // 2)]
    lines = [
        f"  {' ' * (left - cell_len(label))}{label} {''.join(_shade(value / most) * 2 for value in row)}|"
        for label, row in zip(labels, shown, strict=True)
    ]
    cut = "" if shown.shape == values.shape else f", the first {shown.shape[0]}×{shown.shape[1]}"
    return "\n".join([*lines, f"  {'':>{left}} queries down, keys across{cut}; {_scale(most)}"]) + "\n"


def heads_beside(heads: Sequence[Step], width: int) -> str:
    """Heatmaps of several heads side by side, all on one scale; "" where no two fit."""
    from rich.cells import cell_len

    labels = [short(label) for label in heads[0].rows[:_DOWN]]
    left = max(map(cell_len, labels))
    most = max(float(head.values.max()) for head in heads) or 1.0
    names = [f"head {head.head + 1}" for head in heads if head.head is not None]
    each = max(2 * heads[0].values.shape[1] + 2, len(names[-1]) + 1)
    fit = (width - left - 3) // each
    if fit < 2:
        return ""
    lines = [f"weights of {len(heads)} heads side by side"]
    for start in range(0, len(heads), fit):
        lines.append(f"  {'':>{left}} {''.join(name.ljust(each) for name in names[start : start + fit])}")
        for at, label in enumerate(labels):
            rows = (head.values[at] for head in heads[start : start + fit])
            cells = ("".join(_shade(value / most) * 2 for value in row) + "|" for row in rows)
            lines.append(f"  {' ' * (left - cell_len(label))}{label} {''.join(c.ljust(each) for c in cells)}")
    cut = f", the first {_DOWN} queries" if len(heads[0].rows) > _DOWN else ""
    lines.append(f"  {'':>{left}} queries down, keys across{cut}; {_scale(most)}")
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _scale(most: float) -> str:
    return f"0 |{''.join(shade * 2 for shade in _SHADES)}| {most:.2g}"


def _shade(share: float) -> str:
    return _SHADES[min(len(_SHADES) - 1, int(share * (len(_SHADES) - 1) + 0.5))]


def short(label: str) -> str:
    """A label in at most 16 columns of a terminal, of which some characters take two."""
    from rich.cells import cell_len, set_cell_size

    label = clean(label)
    return (
        label
        if cell_len(label) <= _LONGEST_LABEL
        else set_cell_size(label, _LONGEST_LABEL - 1).rstrip() + GAP
    )
