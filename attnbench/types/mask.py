"""Masks: which (query, key) pairs count, as a frozen value of parts that combine, and the words for them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal, get_args

from attnbench.types.errors import BadCase
from attnbench.types.words import unknown_name

Align = Literal["upper_left", "lower_right"]
Padding = Literal["seeded"] | tuple[int, ...]
Explicit = Literal["bool", "float"]

ALIGNS: tuple[Align, ...] = get_args(Align)
EXPLICITS: tuple[Explicit, ...] = get_args(Explicit)
PER_HEAD = "per_head"


def check_choice(what: str, value: object, allowed: tuple[str, ...]) -> None:
    """Raise :class:`BadCase` unless the value is one of the allowed words."""
    if value not in allowed:
        # With two allowed words the similar one may be the wrong guess: gpu does not mean cpu.
        two = f"no {what} {value!r}; there are {', '.join(allowed)}"
        raise BadCase(two if len(allowed) == 2 else unknown_name(what, str(value), allowed))


def check_whole(name: str, value: object) -> None:
    """Raise :class:`BadCase` unless the value is a whole number."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadCase(f"{name} = {value!r}: give a whole number")


@dataclass(frozen=True)
class Mask:
    """Parts of a mask; a pair is kept if every part keeps it.

    causal: a query sees no later key. ``upper_left`` puts query i at key i (torch SDPA); ``lower_right`` puts
    the last query at the last key (flash-attn). For Lq=2, Lk=5::

        upper_left   1 0 0 0 0        lower_right   1 1 1 1 0
                     1 1 0 0 0                      1 1 1 1 1

    window: a query at position p sees keys j with ``|p - j| < window``; with causal, the last ``window`` keys
    up to its own. padding: only the first ``length`` keys of each batch element count. ``seeded`` draws the
    lengths from the seed of the case; a tuple gives one for each batch element. explicit: ``bool`` is a
    random matrix of kept pairs; ``float`` is random numbers, some -inf, that are added to the scores after
    the scale. Both are drawn from the seed of the case. per_head: whether each query head has an explicit
    mask of its own.

    Raises:
        BadCase: a part has another value than these, or contradicts another part.
    """

    causal: Align | None = None
    window: int | None = None
    padding: Padding | None = None
    explicit: Explicit | None = None
    per_head: bool = False

    def __post_init__(self) -> None:
        if self.causal is not None:
            check_choice("causal alignment", self.causal, ALIGNS)
        if self.explicit is not None:
            check_choice("explicit mask", self.explicit, EXPLICITS)
        if self.window is not None:
            check_whole("window", self.window)
        if isinstance(self.padding, tuple):
            for length in self.padding:
                check_whole("padding length", length)
        elif self.padding not in (None, "seeded"):
            raise BadCase(f"padding = {self.padding!r}: give 'seeded', or a tuple of lengths")
        if self.per_head and self.explicit is None:
            raise BadCase(f"only an explicit mask differs by head: {' or '.join(EXPLICITS)}")
        if self.window is not None and self.window < 1:
            raise BadCase(f"window of {self.window} keys: give at least 1")
        if isinstance(self.padding, tuple) and min(self.padding, default=0) < 0:
            raise BadCase(f"padding lengths {list(self.padding)}: a length is 0 or more")

    @property
    def is_none(self) -> bool:
        """True if every pair is kept and nothing is added."""
        return self == EVERYTHING

    @property
    def is_only_causal(self) -> bool:
        """True if the mask is causal and nothing else."""
        return self.causal is not None and self == Mask(causal=self.causal)

    def query_offset(self, Lq: int, Lk: int) -> int:
        """Return the position of query 0 on the key axis.

        0 for ``upper_left``; otherwise ``Lk - Lq``, so that the last query is at the last key, as in
        decoding.
        """
        return 0 if self.causal == "upper_left" else Lk - Lq


EVERYTHING = Mask()
"""Every pair is kept and nothing is added."""

MASK_WORDS = ("none", "causal", "window", "padding", *EXPLICITS)


def mask_text(mask: Mask) -> str:
    """Return the mask as its one canonical word."""
    parts = []
    if mask.causal is not None:
        parts.append("causal" if mask.causal == "upper_left" else f"causal:{mask.causal}")
    if mask.window is not None:
        parts.append(f"window:{mask.window}")
    if mask.padding is not None:
        lengths = mask.padding
        parts.append("padding" if lengths == "seeded" else f"padding:{','.join(map(str, lengths))}")
    if mask.explicit is not None:
        parts.append(f"{mask.explicit}:{PER_HEAD}" if mask.per_head else mask.explicit)
    return "+".join(parts) or "none"


def parse_mask(text: str) -> Mask:
    """Parse the word of a mask; its parts may come in any order.

    Raises:
        BadCase: a part is unknown, given twice, or impossible.
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
        if word == explicit:
            if colon and value != PER_HEAD:
                raise BadCase(f"mask {text!r}: {word!r} takes no value but {PER_HEAD!r}")
            return "explicit", replace(mask, explicit=explicit, per_head=bool(colon))
    if word == "none":
        raise BadCase(f"mask {text!r}: 'none' stands alone")
    raise BadCase(f"mask {text!r}: {unknown_name('mask', word, MASK_WORDS)}")


def _number(value: str, example: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", value):
        raise BadCase(f"mask {text!r}: {value!r} is not a whole number; write it as in {example!r}")
    return int(value)
