from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.types.words import nearest, unknown_name

BACKENDS = ["eager", "bmm", "sdpa_flash", "sdpa_math", "nn_multihead_attention", "chunked", "compiled"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("spda", "sdpa_flash"), ("sdpa", "sdpa_flash"), ("sdpa_mth", "sdpa_math"), ("Eager", "eager"),
        ("egaer", "eager"), ("chunk", "chunked"), ("compile", "compiled"), ("nn", "nn_multihead_attention"),
        ("xyz", None), ("", None),
    ],
)  # fmt: skip
def test_what_was_probably_meant(typed: str, meant: str | None) -> None:
    assert nearest(typed, BACKENDS) == meant


def test_where_there_is_nothing_to_name() -> None:
    assert unknown_name("rule", "xyz", []) == "no rule 'xyz'; there are none."


@given(st.lists(st.text(min_size=1), min_size=1, unique_by=str.lower))
def test_a_name_is_nearest_to_itself(names: list[str]) -> None:
    assert nearest(names[0], names) == names[0]
