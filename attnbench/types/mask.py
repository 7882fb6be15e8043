"""Masks: which (query, key) pairs count, as a frozen value of words that combine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from attnbench.types.errors import BadCase
from attnbench.types.mask_base import Band, Lengths, MaskWord, check_choice
from attnbench.types.mask_words import EXPLICITS, PLAIN, WORDS, Align, Causal, Padding, Window
from attnbench.types.words import unknown_name

if TYPE_CHECKING:
    import numpy as np

    from attnbench.types.case import Case

Group = tuple[MaskWord, ...]


@dataclass(frozen=True)
class Mask:
    """Words of a mask that combine. A pair is kept if each word that restricts keeps it, or one that lifts
    this word does.

    causal: a query sees no later key. ``upper_left`` puts query i at key i (torch SDPA); ``lower_right`` puts
    the last query at the last key (flash-attn). For Lq=2, Lk=5::

        upper_left   1 0 0 0 0        lower_right   1 1 1 1 0
                     1 1 0 0 0                      1 1 1 1 1

    window: a query at position p sees keys j with ``|p - j| < window``; with causal, the last ``window`` keys
    up to its own. padding: only the first ``length`` keys of each batch element count. ``seeded`` draws the
    lengths from the seed of the case; a tuple gives one for each batch element. explicit: ``bool`` is a
    random matrix of kept pairs; ``float`` is random numbers, some -inf, that are added to the scores after
    the scale. Both are drawn from the seed of the case. per_head: whether each query head has an explicit
    mask of its own. rounded_to: the dtype that added numbers are rounded to, "" for that of the case; ids do
    not have it. more: words that none of these fields says.

    words: all of them, in the order of ids. Arrays of a case's pairs are made by :mod:`attnbench.masks`.

    Raises:
        BadCase: a part has another value than these, or contradicts another part.
    """

    causal: Align | None = None
    window: int | None = None
    padding: Lengths | None = None
    explicit: Literal["bool", "float"] | None = None
    per_head: bool = False
    rounded_to: str = field(default="", repr=False)
    more: Group = field(default=(), repr=False)
    words: Group = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        more = tuple(sorted(self.more, key=lambda word: word.text()))
        object.__setattr__(self, "more", more)
        object.__setattr__(self, "words", (*self._words_of_fields(), *more))

    def _words_of_fields(self) -> Iterator[MaskWord]:
        if self.causal is not None:
            yield Causal(self.causal)
        if self.window is not None:
            yield Window(self.window)
        if self.padding is not None:
            yield Padding(self.padding)
        if self.explicit is not None:
            check_choice("explicit mask", self.explicit, tuple(EXPLICITS))
            word = EXPLICITS[self.explicit](self.per_head)
            yield word.as_in(self.rounded_to) if self.rounded_to else word
        elif self.per_head:
            raise BadCase(f"only an explicit mask differs by head: {' or '.join(EXPLICITS)}")

    @property
    def is_none(self) -> bool:
        """True if every pair is kept and nothing is added."""
        return self == EVERYTHING

    @property
    def is_only_causal(self) -> bool:
        """True if the mask is causal and nothing else."""
        return self.causal is not None and self == Mask(causal=self.causal)

    @property
    def groups(self) -> tuple[Group, ...]:
        """Each word that restricts, with those that lift it: a pair is kept if in each group a word keeps
        it."""
        restricting = [word for word in self.words if not word.lifts]
        return tuple(
            (word, *(other for other in self.words if word.part in other.lifts)) for word in restricting
        )

    @property
    def unlifted(self) -> Group:
        """The words that restrict all pairs, since nothing lifts them."""
        return tuple(group[0] for group in self.groups if len(group) == 1)

    @property
    def is_range(self) -> bool:
        """True if each query keeps all keys of one range."""
        return all(len(group) == 1 and group[0].form != "table" for group in self.groups)

    @property
    def needs_table(self) -> bool:
        """True if :attr:`band` and the lengths of batch elements do not say which pairs are kept."""
        return any(len(group) > 1 or group[0].form not in ("band", "lengths") for group in self.groups)

    @property
    def band(self) -> Band:
        """The keys around a query's position outside of which all are dropped."""
        bands = [word.band() for word in self.unlifted]
        return Band(
            min((band.before for band in bands if band.before is not None), default=None),
            min((band.after for band in bands if band.after is not None), default=None),
        )

    def lengths(self, case: Case) -> tuple[int, ...] | None:
        """Return how many of the first keys each batch element keeps; None where no word says that."""
        found = (word.lengths(case) for word in self.unlifted)
        return next((lengths for lengths in found if lengths is not None), None)

    @property
    def adds(self) -> bool:
        """True if numbers are added to the scores."""
        return any(word.adds for word in self.words)

    @property
    def is_drawn(self) -> bool:
        """True if numbers of it are drawn from the seed of the case."""
        return any(word.is_drawn for word in self.words)

    def ignores(self, axis: str) -> bool:
        """Tell whether all places of an axis have one mask: b batch elements, h query heads, i queries, j
        keys."""
        return not any(axis in word.axes for word in self.words)

    def query_offset(self, Lq: int, Lk: int) -> int:
        """Return the position of query 0 on the key axis.

        0 for ``upper_left``; otherwise ``Lk - Lq``, so that the last query is at the last key, as in
        decoding.
        """
        return 0 if self.causal == "upper_left" else Lk - Lq

    def table_bytes(self, item_bytes: int) -> int:
        """Return the bytes for each pair of what must be held as a table; item_bytes: of an added number."""
        return sum(item_bytes if word.adds else 1 for word in self.words if word.form == "table")

    def as_in(self, dtype: str) -> Mask:
        """Return the mask with the numbers that it has in a case of this dtype, for one of a wider dtype."""
        return mask_of(word.as_in(dtype) for word in self.words)

    def parts(self) -> tuple[Mask, ...]:
        """Return each word as a mask of its own."""
        return tuple(mask_of([word]) for word in self.words)

    def without(self, part: Mask) -> Mask:
        """Return the mask without the words of another, one of :meth:`parts` for example.

        Without ``causal`` the last query stands at the last key.
        """
        return mask_of(word for word in self.words if word not in part.words)

    def smaller(self, B: int, Lq: int, Lk: int, rng: np.random.Generator) -> Mask:
        """Return a mask of the same words for a case of smaller sizes, in which each still matters."""
        return mask_of(word.smaller(B, Lq, Lk, rng) for word in self.words)

    def plainer(self) -> Iterator[Mask]:
        """Yield masks that ask less: first without one of the words, then with one that is plainer."""
        for part in self.parts():
            yield self.without(part)
        for word in self.words:
            for other in word.plainer():
                yield mask_of(other if one is word else one for one in self.words)

    def fitted(self, B: int, Lk: int) -> Mask:
        """Return a mask of the same words for at most as many batch elements and keys."""
        return mask_of(word.fitted(B, Lk) for word in self.words)

    @property
    def traits(self) -> tuple[str, ...]:
        """Name the properties that may be at fault, for a sentence."""
        return tuple(trait for word in self.words for trait in word.traits)

    def unlisted(self) -> Mask:
        """Return the mask with what it lists for single batch elements drawn instead."""
        return mask_of(word.unlisted() for word in self.words)


PLAIN_MASKS = tuple(word.word for word in PLAIN)
"""The words that a backend takes unless it says otherwise."""
ANY_MASK = "any"

EVERYTHING = Mask()
"""Every pair is kept and nothing is added."""


def mask_of(words: Iterable[MaskWord]) -> Mask:
    """Return the mask of these words."""
    fields: dict[str, Any] = {}
    more = []
    for word in words:
        own = word.fields()
        fields |= own
        if not own:
            more.append(word)
    return Mask(**fields, more=tuple(more))


def mask_text(mask: Mask) -> str:
    """Return the mask as its one canonical word."""
    return "+".join(word.text() for word in mask.words) or "none"


def mask_names() -> tuple[str, ...]:
    """Return the names of all words of masks, ``none`` first."""
    return ("none", *WORDS)


def parse_mask(text: str) -> Mask:
    """Parse the word of a mask; its parts may come in any order.

    Raises:
        BadCase: a part is unknown, given twice, or impossible.
    """
    if text == "none":
        return Mask()
    words: dict[str, MaskWord] = {}
    for one in text.split("+"):
        name, colon, value = one.partition(":")
        if name == "none":
            raise BadCase(f"mask {text!r}: 'none' stands alone")
        if name not in WORDS:
            raise BadCase(f"mask {text!r}: {unknown_name('mask', name, mask_names())}")
        word = WORDS[name].parse(value if colon else None, text)
        if word.part in words:
            raise BadCase(f"mask {text!r} has two parts for {word.part}: give each once")
        words[word.part] = word
    return mask_of(words.values())
