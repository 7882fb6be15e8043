"""The words of masks that kernels know, as causal and a window, and masks that are drawn.

Words for a structure that a model or an engine gives its pairs stand in
:mod:`attnbench.types.mask_structures`. How words combine stands in :mod:`attnbench.types.mask`. A word
imports numpy only when it makes arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from attnbench.types.errors import BadCase
from attnbench.types.mask_base import (
    Band,
    MaskWord,
    PerElement,
    check_choice,
    check_whole,
    whole_number_of,
)
from attnbench.types.mask_structures import STRUCTURES
from attnbench.types.words import unknown_name

if TYPE_CHECKING:
    from random import Random

    import numpy as np

    from attnbench.types.case import Case
    from attnbench.types.mask_base import Added, Formula, Keep, Rows

Align = Literal["upper_left", "lower_right"]

ALIGNS: tuple[Align, ...] = get_args(Align)
PER_HEAD = "per_head"

KEPT_SHARE = 0.8
"""The approximate share of pairs that an explicit mask keeps."""

REACH = 4.0
"""Added numbers lie within ±REACH, rounded to the dtype of the case, so that all backends add the same."""

_LENGTHS, _BOOL, _FLOAT, _EMPTY = 1, 2, 3, 4
"""The streams of random numbers."""


@dataclass(frozen=True)
class Causal(MaskWord):
    """A query sees no later key. align: which query stands at which key."""

    align: Align = "upper_left"

    word = "causal"
    part = "causal"
    noun = "causal mask"
    form = "band"
    axes = "ij"
    sorts = ("causal", "causal, lower right")

    def __post_init__(self) -> None:
        check_choice("causal alignment", self.align, ALIGNS)

    @classmethod
    def of_sort(cls, sort: str, B: int, Lk: int, random: Random) -> Self:
        """Make the word of an alignment."""
        return cls(ALIGNS[cls.sorts.index(sort)])

    @property
    def traits(self) -> tuple[str, ...]:
        """The mask, and its alignment if it is not torch's."""
        return (
            "a causal mask" if self.align == "upper_left" else "a causal mask aligned at the lower right",
        )

    def plainer(self) -> Iterator[Causal]:
        """Yield torch's alignment."""
        if self.align != "upper_left":
            yield Causal()

    def text(self) -> str:
        """Return the word as ids have it."""
        return self.word if self.align == "upper_left" else f"{self.word}:{self.align}"

    @classmethod
    def parse(cls, value: str | None, text: str) -> Self:
        """Read an alignment."""
        for known in ALIGNS:
            if value in (None, known):
                return cls(known)
        raise BadCase(f"mask {text!r}: {unknown_name('causal alignment', str(value), ALIGNS)}")

    def fields(self) -> dict[str, Any]:
        """Return the fields of ``Mask``."""
        return {"causal": self.align}

    def band(self) -> Band:
        """Return all keys up to a query's own."""
        return Band(after=0)


@dataclass(frozen=True)
class Window(MaskWord):
    """A query at position p sees keys j with ``|p - j| < width``."""

    width: int

    word = "window"
    part = "window"
    noun = "window"
    form = "band"
    axes = "ij"
    sorts = ("a short window", "a window", "a window as wide as all keys")

    def __post_init__(self) -> None:
        check_whole("window", self.width)
        if self.width < 1:
            raise BadCase(f"window of {self.width} keys: give at least 1")

    @classmethod
    def of_sort(cls, sort: str, B: int, Lk: int, random: Random) -> Self:
        """Draw a width."""
        short, some, wide = (1, 2, 3, 5, 8), (9, 16, 17, 31, 64, 100), (Lk, Lk + 1, Lk + 7)
        return cls(random.choice((short, some, wide)[cls.sorts.index(sort)]))

    @property
    def traits(self) -> tuple[str, ...]:
        """The window with its width."""
        return (f"a window of {self.width}",)

    def plainer(self) -> Iterator[Window]:
        """Yield narrower ones."""
        for width in (self.width // 8, self.width // 2, 3 * self.width // 4, self.width - 1):
            if 1 <= width < self.width:
                yield Window(width)

    def text(self) -> str:
        """Return the word as ids have it."""
        return f"{self.word}:{self.width}"

    @classmethod
    def parse(cls, value: str | None, text: str) -> Self:
        """Read a width."""
        return cls(whole_number_of(value or "", "window:256", text))

    def fields(self) -> dict[str, Any]:
        """Return the fields of ``Mask``."""
        return {"window": self.width}

    def smaller(self, B: int, Lq: int, Lk: int, rng: np.random.Generator) -> Window:
        """Return a window that drops a key of some query, if it is wider than one key."""
        # Queries that stand at the first keys are as far from the first one as there are of them.
        most = Lk if Lq == 1 else min(Lq, Lk)
        return self if self.width < max(2, most) else Window(int(rng.integers(2, max(3, most))))

    def band(self) -> Band:
        """Return as many keys after a query's own as before it."""
        return Band(self.width - 1, self.width - 1)


@dataclass(frozen=True)
class Padding(PerElement):
    """Only the first keys of each batch element count. its: ``seeded``, or one length for each."""

    word = "padding"
    part = "padding"
    noun = "padding"
    form = "lengths"
    sorts = (
        "padding",
        "padding that leaves an element without keys",
        "padding that leaves an element few keys",
    )

    @classmethod
    def of_sort(cls, sort: str, B: int, Lk: int, random: Random) -> Self:
        """Draw lengths in any order; one keeps all keys where there are several."""
        lengths = [random.randint(1, Lk) for _ in range(B)]
        if B > 1:
            lengths[0] = Lk
        if sort == cls.sorts[1]:
            lengths[-1] = 0
        elif sort == cls.sorts[2]:
            # Whole blocks of keys at the end are then dropped.
            lengths[-1] = random.randint(1, min(8, Lk))
        random.shuffle(lengths)
        return cls(tuple(lengths))

    @property
    def traits(self) -> tuple[str, ...]:
        """The padding, and whether it leaves an element without keys."""
        if self.its != "seeded" and 0 in self.its:
            return "padding", "a batch element without keys"
        return ("padding",)

    def fitted(self, B: int, Lk: int) -> Padding:
        """Return the lengths of as many elements: those with the fewest keys, and the one with the most."""
        if self.its == "seeded":
            return self
        lengths = [min(length, Lk) for length in self.its]
        if len(lengths) > B:
            ordered = sorted(lengths)
            lengths = ordered[:1] if B == 1 else [*ordered[: B - 1], ordered[-1]]
        return Padding(tuple(lengths))

    @property
    def hint(self) -> str:
        """A word with a length."""
        return "padding:3 keeps 3 keys" if self.its == "seeded" else ""

    def fields(self) -> dict[str, Any]:
        """Return the fields of ``Mask``."""
        return {"padding": self.its}

    def smaller(self, B: int, Lq: int, Lk: int, rng: np.random.Generator) -> Padding:
        """Draw lengths: one keeps all keys, others fewer or one; none where this word lists such."""
        lengths = [int(length) for length in rng.integers(1, Lk, size=B, endpoint=True)]
        if B > 1:
            lengths[0] = Lk
            if self.its != "seeded" and 0 in self.its:
                lengths[-1] = 0
            elif rng.random() < 0.5:
                lengths[-1] = 1
        return Padding(tuple(int(length) for length in rng.permutation(lengths)))

    def lengths(self, case: Case) -> tuple[int, ...]:
        """Return the length of each batch element."""
        if self.its != "seeded":
            return self.its
        import numpy as np

        # By the seed alone, each batch element would have the same share of the keys in every case.
        sizes = case.seed, case.B, case.Lq, case.Lk
        drawn = np.random.default_rng((_LENGTHS, *sizes)).integers(1, case.Lk, size=case.B, endpoint=True)
        return tuple(int(length) for length in drawn)

    def bounds(self, case: Case, rows: Rows) -> tuple[Rows, Rows]:
        """Return the range of the first keys, (1, 1) and (B, 1)."""
        import numpy as np

        return np.zeros((1, 1), np.intp), np.array(self.lengths(case), np.intp)[:, None]

    def formula(self, case: Case, as_array: Callable[[Any], Any]) -> Formula:
        """Compare the key with the length of the batch element."""
        import numpy as np

        lengths = as_array(np.array(self.lengths(case)))
        return lambda b, h, i, j: j < lengths[b]


@dataclass(frozen=True)
class Explicit(MaskWord):
    """A mask drawn from the seed of the case. by_head: whether each query head has one of its own."""

    by_head: bool = False

    part = "explicit"
    noun = "explicit mask"
    form = "table"
    is_drawn = True

    @classmethod
    def of_sort(cls, sort: str, B: int, Lk: int, random: Random) -> Self:
        """Make the word, for all heads or by head."""
        return cls(sort != cls.sorts[0])

    @property
    def traits(self) -> tuple[str, ...]:
        """The mask, and whether heads differ."""
        one = f"a {self.word} mask"
        return (one, "a mask of its own for each head") if self.by_head else (one,)

    def plainer(self) -> Iterator[MaskWord]:
        """Yield the same for all heads."""
        if self.by_head:
            yield replace(self, by_head=False)

    @property
    def axes(self) -> str:
        """All axes, heads only if they have masks of their own."""
        return "bhij" if self.by_head else "bij"

    def text(self) -> str:
        """Return the word as ids have it."""
        return f"{self.word}:{PER_HEAD}" if self.by_head else self.word

    @classmethod
    def parse(cls, value: str | None, text: str) -> Self:
        """Read whether heads differ."""
        if value not in (None, PER_HEAD):
            raise BadCase(f"mask {text!r}: {cls.word!r} takes no value but {PER_HEAD!r}")
        return cls(value is not None)

    def fields(self) -> dict[str, Any]:
        """Return the fields of ``Mask``."""
        return {"explicit": self.word, "per_head": self.by_head}

    def heads(self, case: Case) -> int:
        """Return how many masks a batch element has."""
        return case.H if self.by_head else 1


@dataclass(frozen=True)
class ExplicitBool(Explicit):
    """A random matrix of kept pairs."""

    word = "bool"
    sorts = ("a bool mask", "a bool mask by head")

    def keeps(self, case: Case, rows: Rows) -> Keep:
        """Draw the pairs that these rows keep, (B, 1 or H, R, Lk)."""
        import numpy as np

        keep = np.empty((case.B, self.heads(case), len(rows), case.Lk), bool)
        for b, h in np.ndindex(*keep.shape[:2]):
            for kept, rng in zip(keep[b, h], _row_streams(case, _BOOL, b, h, rows), strict=True):
                kept[:] = rng.random(case.Lk) < KEPT_SHARE
            keep[b, h, np.isin(rows, _empty_rows(case, b, h))] = False
        return keep


@dataclass(frozen=True)
class ExplicitFloat(Explicit):
    """Random numbers, some -inf, that are added to the scores after the scale.

    rounded_to: the dtype that they are rounded to; "" for that of the case. Ids do not have it.
    """

    rounded_to: str = ""

    word = "float"
    sorts = ("a float mask", "a float mask by head")
    adds = True

    def keeps(self, case: Case, rows: Rows) -> Keep:
        """Return where the numbers are finite, (B, 1 or H, R, Lk)."""
        import numpy as np

        return np.isfinite(self.numbers(case, rows))

    def numbers(self, case: Case, rows: Rows) -> Added:
        """Draw what is added to the scores of these rows, (B, 1 or H, R, Lk)."""
        import numpy as np

        added = np.empty((case.B, self.heads(case), len(rows), case.Lk))
        dropped = np.empty(added.shape, bool)
        for b, h in np.ndindex(*added.shape[:2]):
            for at, rng in enumerate(_row_streams(case, _FLOAT, b, h, rows)):
                added[b, h, at] = rng.standard_normal(case.Lk)
                dropped[b, h, at] = rng.random(case.Lk) >= KEPT_SHARE
            dropped[b, h, np.isin(rows, _empty_rows(case, b, h))] = True
        np.clip(added, -REACH, REACH, out=added)
        added = _rounded(added, self.rounded_to or case.dtype)
        added[dropped] = -np.inf
        return added

    def fields(self) -> dict[str, Any]:
        """Return the fields of ``Mask``."""
        return super().fields() | {"rounded_to": self.rounded_to}

    def as_in(self, dtype: str) -> ExplicitFloat:
        """Return the word with the numbers that it has in a case of this dtype."""
        return self if self.rounded_to else replace(self, rounded_to=dtype)


PLAIN: tuple[type[MaskWord], ...] = (Causal, Window, Padding, ExplicitBool, ExplicitFloat)
WORDS: dict[str, type[MaskWord]] = {word.word: word for word in (*PLAIN, *STRUCTURES)}
"""By their names, in the order in which ids write them."""

EXPLICITS: dict[str, type[Explicit]] = {"bool": ExplicitBool, "float": ExplicitFloat}
"""The words of the part ``explicit``."""


def _empty_rows(case: Case, b: int, h: int) -> Rows:
    """Return rows of an explicit mask that keep nothing: one in 16, at least one, if there are 4 rows or
    more.

    They are the first ones, the last ones, some in between one after the other, or anywhere.
    """
    import numpy as np

    count = max(1, case.Lq // 16) if case.Lq >= 4 else 0
    stream = _stream(case, _EMPTY, b, h)
    anywhere = np.argsort(stream.random(case.Lq), kind="stable")[:count]
    between = int(stream.integers(case.Lq - count, endpoint=True))
    first = (0, case.Lq - count, between, None)[int(stream.integers(4))]
    return anywhere if first is None else np.arange(first, first + count)


def _rounded(values: Added, dtype: str) -> Added:
    """Return the nearest numbers of a dtype."""
    import numpy as np

    if dtype != "bfloat16":
        return values.astype(dtype).astype(np.float64)
    # It has 8 significant bits, and none of these numbers is too small for it.
    unit = np.ldexp(1.0, np.frexp(values)[1] - 8)
    return np.asarray(np.rint(values / unit) * unit)


def _stream(case: Case, number: int, b: int = 0, h: int = 0) -> np.random.Generator:
    import numpy as np

    return next(_row_streams(case, number, b, h, np.zeros(1, np.intp)))


def _row_streams(case: Case, number: int, b: int, h: int, rows: Rows) -> Iterator[np.random.Generator]:
    """Yield random numbers of a stream for each row, each at its own place in the counter of Philox."""
    import numpy as np

    bits = np.random.Philox(key=np.random.SeedSequence(case.seed).generate_state(2, np.uint64))
    start = bits.state
    for row in rows:
        # Moving one generator takes a tenth of the time of making one for each row.
        start["state"]["counter"] = np.array([0, row, b, number + (h << 8)], np.uint64)
        bits.state = start
        yield np.random.Generator(bits)
