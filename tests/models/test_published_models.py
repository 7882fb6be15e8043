"""Published models: the layers that a forward pass has, and what the docs say of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from published import PUBLISHED
from readings import expected_of, layers_of, parts_of, told

from attnbench.models.config import describe

STORED = Path(__file__).parents[2] / "docs" / "measured" / "models.json"
ROWS: list[dict[str, Any]] = json.loads(STORED.read_text())

NO_RULE = ("short convolution",)
"""Layers that no rule says, and that a suite names."""


def test_every_published_model_is_in_the_table() -> None:
    assert [row["model"] for row in ROWS] == list(PUBLISHED)
    assert len(ROWS) >= 40


@pytest.mark.parametrize("row", ROWS, ids=[row["model"] for row in ROWS])
def test_no_layer_is_missing_or_another_than_expected(row: dict[str, Any]) -> None:
    model = describe(PUBLISHED[row["model"]])
    expected, read = expected_of(row, model)
    assert read == expected
    assert read
    assert model.unknown == ()
    assert {name for name, _ in model.others} <= set(NO_RULE)


@pytest.mark.parametrize("row", ROWS, ids=[row["model"] for row in ROWS])
def test_the_table_says_what_attnbench_says(row: dict[str, Any]) -> None:
    assert {name: row[name] for name in told(row["model"])} == told(row["model"])


def test_the_fields_that_a_class_adds_change_nothing_and_none_is_left_unread() -> None:
    pytest.importorskip("transformers")
    from forward import written

    compared = 0
    for name, published in PUBLISHED.items():
        for fields in parts_of(published):
            whole = written(fields)
            if whole is None:  # transformers has no such type
                continue
            compared += 1
            ours, theirs = describe(fields), describe(whole)
            assert layers_of(theirs) == layers_of(ours), name
            assert (theirs.others, theirs.unknown) == (ours.others, ours.unknown), name
            assert set(theirs.notes) <= set(ours.notes), name
            assert not [note for note in theirs.notes if note.startswith("not used")], name
    assert compared >= 60


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_the_expectations_are_those_of_a_forward_pass() -> None:
    pytest.importorskip("transformers")
    from against_transformers import VERSION, model_rows

    if VERSION not in {row["expected_from"] for row in ROWS}:
        pytest.skip(f"stored with another version than {VERSION}")
    assert list(model_rows()) == ROWS
