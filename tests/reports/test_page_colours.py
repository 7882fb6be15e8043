"""Text and marks can be read on the light and the dark page, by the contrasts of WCAG 2.2."""

from __future__ import annotations

import re

import pytest

from attnbench.reports.html.charts import COLOURS, asset

RGB = tuple[float, float, float]
TEXT, GRAPHICS = 4.5, 3.0
"""The least contrasts: 1.4.3 for text, 1.4.11 for marks of charts."""
CSS = asset("page.css")
THEMES = [0, 1]
PAIRS = [
    ("ink", "paper"), ("ink", "raised"), ("ink", "bad-paper"), ("ink", "plain-paper"), ("soft", "paper"),
    ("soft", "raised"), ("soft", "bad-paper"), ("soft", "plain-paper"), ("good", "good-paper"),
    ("unsure", "unsure-paper"), ("bad", "bad-paper"), ("ink", "best"), ("ink", "good-paper"),
    ("ink", "step1"),
    ("ink", "step2"), ("ink", "step3"), ("bad", "raised"),
]  # fmt: skip


def colour(name: str, theme: int) -> RGB:
    found = re.search(rf"--{name}: light-dark\((#\w+), (#\w+)\)", CSS)
    assert found is not None, name
    return parsed(found.group(theme + 1))


def parsed(text: str) -> RGB:
    red, green, blue = (int(text[place : place + 2], 16) for place in (1, 3, 5))
    return red, green, blue


def luminance(rgb: RGB) -> float:
    linear = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in rgb]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: RGB, b: RGB) -> float:
    dark, light = sorted((luminance(a), luminance(b)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize(("ink", "paper"), PAIRS)
def test_words_can_be_read(ink: str, paper: str, theme: int) -> None:
    assert contrast(colour(ink, theme), colour(paper, theme)) >= TEXT


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("mark", COLOURS)
def test_marks_stand_out_from_the_page(mark: str, theme: int) -> None:
    assert contrast(parsed(mark), colour("raised", theme)) >= GRAPHICS
