"""What a word of a mask is: which (query, key) pairs it keeps, what it adds to scores, how ids write it."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from attnbench.types.errors import BadCase
from attnbench.types.words import unknown_name

if TYPE_CHECKING:
    from random import Random

    import numpy as np
    from numpy.typing import NDArray

    from attnbench.types.case import Case

    Rows = NDArray[np.intp]
    Keep = NDArray[np.bool_]
    Added = NDArray[np.float64]
    Formula = Callable[[Any, Any, Any, Any], Any]

Lengths = Literal["seeded"] | tuple[int, ...]
Form = Literal["band", "lengths", "range", "table"]


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
class Band:
    """How many keys before and after its own position a query sees; None for all of them."""

    before: int | None = None
    after: int | None = None


class MaskWord(ABC):
    """A word of a mask, as a frozen value.

    A word restricts: pairs that it drops are dropped. A word that lifts others restricts nothing: pairs that
    it keeps are kept though the others drop them, as those of a prefix are though a causal mask drops them.
    """

    word: ClassVar[str]
    """Its name in ids, before a colon."""
    part: ClassVar[str]
    """Its part of a mask, which has at most one word of each."""
    noun: ClassVar[str]
    """In messages."""
    form: ClassVar[Form]
    """How a kernel can be told what the word keeps: by the ``band`` around a query's position; by ``lengths``
    of which each batch element sees the first keys; by a ``range`` of keys for each query; by a ``table`` of
    all pairs."""
    lifts: ClassVar[tuple[str, ...]] = ()
    """The parts that do not restrict the pairs that this word keeps."""
    adds: ClassVar[bool] = False
    """True if it adds numbers to the scores."""

    @property
    @abstractmethod
    def axes(self) -> str:
        """The axes it differs along, by letter: b batch elements, h query heads, i queries, j keys."""

    family: ClassVar[str] = ""
    """A search draws at most one word of a family; "" for a family of its own."""

    sorts: ClassVar[tuple[str, ...]] = ()
    """What differs between such words for a kernel, in words; :meth:`of_sort` makes one of each. A search
    draws no word without them."""

    @property
    def is_drawn(self) -> bool:
        """True if its numbers are drawn from the seed of the case."""
        return False

    @classmethod
    def of_sort(cls, sort: str, B: int, Lk: int, random: Random) -> Self:
        """Draw a word of one of the :attr:`sorts` for so many batch elements and keys."""
        raise NotImplementedError

    @property
    def traits(self) -> tuple[str, ...]:
        """Name the properties that may be at fault, for a sentence."""
        return (f"a {self.noun}",)

    def plainer(self) -> Iterator[MaskWord]:
        """Yield words of the same kind that ask less."""
        return iter(())

    def fitted(self, B: int, Lk: int) -> MaskWord:
        """Return the word for at most as many batch elements and keys, with as much of it as fits."""
        return self

    @property
    def hint(self) -> str:
        """A word that lists what this one draws, and what that keeps, for learners; "" without one."""
        return ""

    @abstractmethod
    def text(self) -> str:
        """Return the word as ids have it."""

    @classmethod
    @abstractmethod
    def parse(cls, value: str | None, text: str) -> Self:
        """Make the word from what follows its colon, None without a colon; text: the mask, for messages.

        Raises:
            BadCase: the value is impossible.
        """

    def fields(self) -> dict[str, Any]:
        """Return the fields of :class:`Mask` that say the same; {} where it has none."""
        return {}

    def refuses(self, case: Case) -> str | None:
        """Return the reason why a case of such sizes can't have the word, or None."""
        return None

    def smaller(self, B: int, Lq: int, Lk: int, rng: np.random.Generator) -> MaskWord:
        """Return a word of the same kind for a case of smaller sizes, in which the word still matters."""
        return self

    def unlisted(self) -> MaskWord:
        """Return the word with what it lists for single batch elements drawn instead."""
        return self

    def as_in(self, dtype: str) -> MaskWord:
        """Return the word with the numbers that it has in a case of this dtype, whatever that of its own
        case."""
        return self

    def band(self) -> Band:
        """Return the keys that a query sees around its position, where that says all."""
        return Band()

    def lengths(self, case: Case) -> tuple[int, ...] | None:
        """Return how many of the first keys each batch element keeps, where that says all."""
        return None

    def bounds(self, case: Case, rows: Rows) -> tuple[Rows, Rows]:
        """Return a half-open range of keys for these query rows, each (B or 1, R or 1); it drops all others.

        It keeps all keys in the range, unless its form is ``table``.
        """
        import numpy as np

        band, position = self.band(), rows[None] + case.query_offset
        low = np.zeros((1, 1), np.intp) if band.before is None else position - band.before
        high = np.full((1, 1), case.Lk) if band.after is None else position + band.after + 1
        return low, high

    def keeps(self, case: Case, rows: Rows) -> Keep:
        """Return which pairs these query rows keep, (B or 1, 1 or H, R or 1, Lk)."""
        import numpy as np

        formula = self.formula(case, np.asarray)
        if formula is None:
            return within(np.arange(case.Lk), *self.bounds(case, rows))
        elements = np.arange(case.B if "b" in self.axes else 1)
        kept = formula(elements[:, None, None, None], 0, rows[None, None, :, None], np.arange(case.Lk))
        return np.broadcast_to(kept, (len(elements), 1, len(rows), case.Lk))

    def formula(self, case: Case, as_array: Callable[[Any], Any]) -> Formula | None:
        """Return the function of b, h, i and j that tells whether a pair is kept; None where it has none.

        It takes places as whole numbers or as arrays of any library that broadcast, and uses operators
        alone, so a kernel may compile it. as_array: makes an array of that library from one of NumPy's.
        Keys reach from 0 to Lk: a kernel may ask for one more, that of a sink.
        """
        if self.form != "band":
            return None
        band, offset = self.band(), case.query_offset

        def kept(b: Any, h: Any, i: Any, j: Any) -> Any:
            near = j >= 0
            if band.after is not None:
                near = near & (j <= i + offset + band.after)
            if band.before is not None:
                near = near & (j >= i + offset - band.before)
            return near

        return kept

    def numbers(self, case: Case, rows: Rows) -> Added:
        """Return what is added to the scores of these rows, (B or 1, 1 or H, R, Lk); for words that add."""
        raise NotImplementedError


@dataclass(frozen=True)
class PerElement(MaskWord):
    """A word with a number of keys for each batch element. its: ``seeded``, or these numbers."""

    its: Lengths = "seeded"

    axes = "bj"

    def __post_init__(self) -> None:
        if isinstance(self.its, tuple):
            for length in self.its:
                check_whole(f"{self.word} length", length)
            if min(self.its, default=0) < 0:
                raise BadCase(f"{self.word} lengths {list(self.its)}: a length is 0 or more")
        elif self.its != "seeded":
            raise BadCase(f"{self.word} = {self.its!r}: give 'seeded', or a tuple of lengths")

    @property
    def is_drawn(self) -> bool:
        """True if the numbers are drawn from the seed of the case."""
        return self.its == "seeded"

    def text(self) -> str:
        """Return the word as ids have it."""
        return self.word if self.its == "seeded" else f"{self.word}:{','.join(map(str, self.its))}"

    @classmethod
    def parse(cls, value: str | None, text: str) -> Self:
        """Read numbers."""
        if value is None:
            return cls()
        example = f"{cls.word}:37,64"
        return cls(tuple(whole_number_of(length, example, text) for length in value.split(",")))

    def refuses(self, case: Case) -> str | None:
        """Return why the numbers do not fit the sizes of a case, or None."""
        if self.its == "seeded":
            return None
        if len(self.its) != case.B:
            given = f"{self.word} gives {len(self.its)} lengths for a batch of {case.B}"
            return f"{given}: give one length for each batch element"
        longest = max(self.its)
        return f"{self.word} length {longest} is more than Lk = {case.Lk}" if longest > case.Lk else None

    def unlisted(self) -> MaskWord:
        """Return the word with numbers from the seed."""
        return type(self)()


def within(keys: Rows, low: Rows, high: Rows) -> Keep:
    """Return which keys lie in half-open ranges (B or 1, R or 1), as (B or 1, 1, R or 1, Lk)."""
    keep: Keep = ((keys >= low[..., None]) & (keys < high[..., None]))[:, None]
    return keep


def whole_number_of(value: str, example: str, text: str) -> int:
    """Read a whole number of a mask; example: a word that has one, text: the mask, for messages.

    Raises:
        BadCase: it is none.
    """
    if not re.fullmatch(r"[0-9]{1,18}", value):
        raise BadCase(f"mask {text!r}: {value!r} is not a whole number; write it as in {example!r}")
    return int(value)
