"""Masks as one word, as ids and the command line write them.

    none                     every pair is kept
    causal                   upper_left, as in torch; causal:lower_right as in flash-attn
    window:256               keys less than 256 positions away
    padding                  lengths drawn from the case's seed; padding:37,64 gives them
    bool, float              a random keep-matrix, random numbers added to the scores

Parts are joined by '+': ``causal:lower_right+window:256``.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import get_args

from attnbench.types.errors import BadCase
from attnbench.types.mask import Align, Explicit, Mask
from attnbench.types.names import unknown_name

ALIGNS: tuple[Align, ...] = get_args(Align)
EXPLICITS: tuple[Explicit, ...] = get_args(Explicit)
MASK_WORDS = ("none", "causal", "window", "padding", *EXPLICITS)


def mask_text(mask: Mask) -> str:
    """The mask as its one canonical word."""
    parts = []
    if mask.causal is not None:
        parts.append("causal" if mask.causal == "upper_left" else f"causal:{mask.causal}")
    if mask.window is not None:
        parts.append(f"window:{mask.window}")
    if mask.padding is not None:
        lengths = mask.padding
        parts.append("padding" if lengths == "seeded" else f"padding:{','.join(map(str, lengths))}")
    if mask.explicit is not None:
        parts.append(mask.explicit)
    return "+".join(parts) or "none"


def parse_mask(text: str) -> Mask:
    """The mask that a word means; parts may come in any order.

    Raises:
        BadCase: for an unknown part, a part given twice, or one that can't be.
    """
    if text == "none":
        return Mask()
    mask = Mask()
    seen = set()
    for part in text.split("+"):
        field, updated = _with_part(mask, part, text)
        if field in seen:
            raise BadCase(f"mask {text!r} has two parts for {field}: give each once")
        seen.add(field)
        mask = updated
    return mask


def _with_part(mask: Mask, part: str, text: str) -> tuple[str, Mask]:
    word, colon, value = part.partition(":")
    if word == "causal":
        align = value if colon else "upper_left"
        for known in ALIGNS:
            if align == known:
                return "causal", replace(mask, causal=known)
        raise BadCase(f"mask {text!r}: {unknown_name('causal alignment', align, ALIGNS)}")
    if word == "window":
        return "window", replace(mask, window=_number(value, "window:256", text))
    if word == "padding":
        if not colon:
            return "padding", replace(mask, padding="seeded")
        lengths = tuple(_number(length, "padding:37,64", text) for length in value.split(","))
        return "padding", replace(mask, padding=lengths)
    for explicit in EXPLICITS:
        if part == explicit:
            return "explicit", replace(mask, explicit=explicit)
    if part == "none":
        raise BadCase(f"mask {text!r}: 'none' stands alone")
    if word in EXPLICITS:
        raise BadCase(f"mask {text!r}: {word!r} takes no value")
    raise BadCase(f"mask {text!r}: {unknown_name('mask', word, MASK_WORDS)}")


def _number(value: str, example: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", value):
        raise BadCase(f"mask {text!r}: {value!r} is not a whole number; write it as in {example!r}")
    return int(value)
