"""``attnbench.explain``: topics, tokens of one's own, and what a notebook shows."""

from __future__ import annotations

import sys
from xml.etree import ElementTree

import numpy as np
import pytest

import attnbench

TOKENS = [[1, 0], [0, 1], [1, 1]]


@pytest.mark.parametrize("topic", ["scaled_dot", "softcap@c=5", "multihead", "five-tokens", "flash", "masks"])
def test_a_topic_is_text_and_a_picture(topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    found = attnbench.explain(topic)
    assert str(found).startswith(found.title)
    picture = ElementTree.fromstring(found._repr_html_())
    assert picture.tag.endswith("svg")
    # Without a view box a narrow notebook would clip it.
    assert picture.get("viewBox") == f"0 0 {picture.get('width')} {picture.get('height')}"


def test_a_module_of_the_same_name_does_not_hide_it() -> None:
    import attnbench.explained.steps

    assert callable(attnbench.explain)


def test_tokens_of_ones_own() -> None:
    found = attnbench.explain("dot", TOKENS, labels=["the", "cat", "sat"], mask="causal")
    steps = {step.name: step for step in found.steps}
    assert steps["scores"].rows == ("the", "cat", "sat")
    assert np.array_equal(steps["scores"].values, np.array(TOKENS) @ np.array(TOKENS).T)
    assert np.array_equal(np.isinf(steps["masked scores"].values), np.triu(np.ones((3, 3), bool), 1))
    assert str(steps["scores"]).startswith("scores (3×3): ")
    two = attnbench.explain("scaled_dot", TOKENS, heads=2)
    assert next(step for step in two.steps if step.name == "scores").values.shape == (2, 3, 3)


def test_the_options_of_the_command() -> None:
    found = attnbench.explain("dot", example="five-tokens", dropout=0.5, weighted=True)
    assert found.title == "dot on the example five-tokens: five tokens of four features"
    assert {"weights after dropout", "weighted values after dropout"} <= {step.name for step in found.steps}
    assert attnbench.explain("multihead", rule="dot").title.startswith("dot on the example multihead")


@pytest.mark.parametrize(
    ("topic", "arguments", "words"),
    [
        ("scaled", {}, "no topic 'scaled'; did you mean 'scaled_dot'?"),
        ("flash", {"tokens": TOKENS}, "flash has its own numbers"),
        ("five-tokens", {"tokens": TOKENS}, "five-tokens is an example: leave out tokens"),
        ("dot", {"labels": ["a"]}, "give tokens too"),
        ("dot", {"dropout": 1}, "dropout = 1: give a probability from 0 to less than 1"),
        ("dot", {"tokens": [[1, 2], [3]]}, "row 1 has 2, row 2 has 1; give each token as many"),
        ("dot", {"tokens": [[1, 2], 3]}, "give a list of lists, a row for each token"),
        ("dot", {"tokens": TOKENS, "heads": 3}, "2 features can't be cut into 3 heads"),
    ],
)
def test_what_does_not_fit_is_refused(topic: str, arguments: dict[str, object], words: str) -> None:
    with pytest.raises(attnbench.BadInput, match=words.replace("?", r"\?")):
        attnbench.explain(topic, **arguments)  # type: ignore[arg-type]
