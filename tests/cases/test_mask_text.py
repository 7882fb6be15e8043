from __future__ import annotations

import itertools

import pytest
from case_strategies import masks
from hypothesis import given

from attnbench.types.errors import BadCase
from attnbench.types.mask import Mask, mask_text, parse_mask

KNOWN = {
    "none": Mask(),
    "causal": Mask(causal="upper_left"),
    "causal:lower_right": Mask(causal="lower_right"),
    "window:256": Mask(window=256),
    "padding": Mask(padding="seeded"),
    "padding:37,64": Mask(padding=(37, 64)),
    "padding:0": Mask(padding=(0,)),
    "bool": Mask(explicit="bool"),
    "float": Mask(explicit="float"),
    "bool:per_head": Mask(explicit="bool", per_head=True),
    "causal+float:per_head": Mask("upper_left", explicit="float", per_head=True),
    "causal:lower_right+window:7+padding:1,2+bool": Mask("lower_right", 7, (1, 2), "bool"),
}


@pytest.mark.parametrize(("text", "mask"), KNOWN.items())
def test_words_and_masks_mean_each_other(text: str, mask: Mask) -> None:
    assert parse_mask(text) == mask
    assert mask_text(mask) == text


@given(masks())
def test_every_mask_comes_back(mask: Mask) -> None:
    assert parse_mask(mask_text(mask)) == mask


def test_the_order_of_parts_does_not_matter_and_the_alignment_may_be_spelled_out() -> None:
    parts = ["causal:upper_left", "window:3", "padding", "float"]
    assert {parse_mask("+".join(p)) for p in itertools.permutations(parts)} == {
        Mask("upper_left", 3, "seeded", "float")
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "",
            "mask '': no mask ''; there are none, causal, window, padding, bool, float, left_padding, "
            "document, chunked, reach, dilated, blocks, tree, prefix, first, global, image.",
        ),
        (
            "causal:left",
            "mask 'causal:left': no causal alignment 'left'; there are upper_left, lower_right.",
        ),
        ("window:٣", "mask 'window:٣': '٣' is not a whole number; write it as in 'window:256'"),
        (
            "window:" + "9" * 50,
            f"mask 'window:{'9' * 50}': '{'9' * 50}' is not a whole number; write it as in 'window:256'",
        ),
        ("padding:3,-1", "mask 'padding:3,-1': '-1' is not a whole number; write it as in 'padding:37,64'"),
        ("bool:1", "mask 'bool:1': 'bool' takes no value but 'per_head'"),
        ("bool+float", "mask 'bool+float' has two parts for explicit: give each once"),
        ("none+causal", "mask 'none+causal': 'none' stands alone"),
    ],
)
def test_a_wrong_mask_is_explained_in_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(BadCase) as caught:
        parse_mask(text)
    assert str(caught.value) == sentence


def test_only_an_explicit_mask_differs_by_head() -> None:
    with pytest.raises(BadCase, match="only an explicit mask differs by head: bool or float"):
        Mask(causal="upper_left", per_head=True)
