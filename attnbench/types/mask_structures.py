"""The words of masks for a structure of pairs: documents, prefixes, chunks, drafts and their kin.

A query's position is where :attr:`Case.query_offset` puts it on the axis of the keys.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from attnbench.types.batch import parse_batch
from attnbench.types.errors import BadCase
from attnbench.types.mask_base import Band, MaskWord, PerElement, check_whole, whole_number_of

if TYPE_CHECKING:
    from random import Random

    import numpy as np
    from numpy.typing import NDArray

    from attnbench.types.case import Case
    from attnbench.types.mask_base import Formula, Rows

    AsArray = Callable[[Any], Any]

STRUCTURE, EXTRA = "structure of the mask", "keys that are always seen"
"""Families of words; a search draws one of each."""

_DOCUMENTS, _BLOCKS, _LEFT = 5, 6, 7
"""The streams of random numbers, besides those of other words."""

_DISTANCES = ("window", "reach", "chunked", "dilated", "blocks")
"""The parts that a pair which is always kept is lifted from."""

_NO_ROW, _NO_KEY = -2, -1
"""The numbers of a query and of a key outside of all documents or images. They differ: no pair is kept."""


def _shortest(case: Case) -> int:
    """Return the keys of the shortest sequence."""
    return min(keys for _, keys in parse_batch(case.batch)) if case.batch else case.Lk


def _positions(case: Case) -> Rows:
    import numpy as np

    return np.arange(case.Lq) + case.query_offset


def _numbers(value: str | None, example: str, text: str) -> tuple[int, ...]:
    return tuple(whole_number_of(word, example, text) for word in (value or "").split(","))


def _cuts(Lk: int, rng: np.random.Generator) -> tuple[int, ...]:
    """Draw lengths of two to eight documents of Lk keys together; of three or more, one has a single key."""
    if Lk < 2:
        return (Lk,) if Lk else ()
    count = min(Lk, int(rng.integers(2, 8, endpoint=True)))
    drawn = [1 + int(at) for at in rng.permutation(Lk - 1)[: count - 1]]
    if count > 2:
        drawn[1] = drawn[0] + 1 if drawn[0] + 1 < Lk else drawn[0] - 1
    ends = sorted({*drawn})
    return tuple(end - start for start, end in zip([0, *ends], [*ends, Lk], strict=True))


@dataclass(frozen=True)
class LeftPadding(PerElement):
    """The first keys of each batch element do not count, as where prompts of a batch end together.

    its: ``seeded``, or how many keys each element drops.
    """

    word = "left_padding"
    part = "left_padding"
    noun = "padding on the left"
    form = "range"
    family = STRUCTURE
    sorts = ("padding on the left",)

    @classmethod
    def of_sort(cls, sort: str, B: int, Lk: int, random: Random) -> Self:
        """Draw numbers in any order; one drops no key where there are several elements."""
        dropped = [random.randrange(Lk) for _ in range(B)]
        if B > 1:
            dropped[random.randrange(B)] = 0
        return cls(tuple(dropped))

    @property
    def hint(self) -> str:
        """A word with a number."""
        return "left_padding:3 drops 3 keys" if self.its == "seeded" else ""

    def fitted(self, B: int, Lk: int) -> LeftPadding:
        """Return the numbers of the first elements, which leave each of them a key."""
        return self if self.its == "seeded" else LeftPadding(tuple(min(n, Lk - 1) for n in self.its[:B]))

    def refuses(self, case: Case) -> str | None:
        """Return why the numbers do not fit the sizes of a case, or None."""
        if case.batch:
            return "a batch says how long its sequences are: leave out left_padding"
        return super().refuses(case)

    def smaller(self, B: int, Lq: int, Lk: int, rng: np.random.Generator) -> LeftPadding:
        """Draw numbers of which one at least drops a key, and one none where there are several elements."""
        dropped = [int(n) for n in rng.integers(min(1, Lk - 1), Lk, size=B)]
        if B > 1:
            dropped[int(rng.integers(B))] = 0
        return LeftPadding(tuple(dropped))

    def dropped(self, case: Case) -> NDArray[np.intp]:
        """Return how many keys each batch element drops, (B,)."""
        import numpy as np

        if self.its != "seeded":
            return np.array(self.its, np.intp)
        sizes = case.seed, case.B, case.Lq, case.Lk
        return np.random.default_rng((_LEFT, *sizes)).integers(0, case.Lk, size=case.B, dtype=np.intp)

    def bounds(self, case: Case, rows: Rows) -> tuple[Rows, Rows]:
        """Return the range of the other keys, (B, 1) and (1, 1)."""
        import numpy as np

        return self.dropped(case)[:, None], np.full((1, 1), case.Lk)

    def formula(self, case: Case, as_array: AsArray) -> Formula:
        """Compare the key with the number of the batch element."""
        dropped = as_array(self.dropped(case))
        return lambda b, h, i, j: j >= dropped[b]


class Groups(MaskWord):
    """A word of ranges of positions: a query sees the keys of its own range."""

    form = "range"

    @abstractmethod
    def ranges(self, case: Case) -> list[list[tuple[int, int]]]:
        """Return the half-open ranges, for each batch element or once for all of them."""

    def _tables(self, case: Case) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Number the range of each key, with one more that has none, and of each query; (B or 1, L)."""
        import numpy as np

        ranges, position = self.ranges(case), _positions(case)
        keys = np.full((len(ranges), case.Lk + 1), _NO_KEY)
        for row, its in zip(keys, ranges, strict=True):
            for number, (start, end) in enumerate(its):
                row[start:end] = number
        inside = (position >= 0) & (position < case.Lk)
        queries = np.where(inside, keys[:, np.where(inside, position, 0)], _NO_KEY)
        return keys, np.where(queries == _NO_KEY, _NO_ROW, queries)

    def bounds(self, case: Case, rows: Rows) -> tuple[Rows, Rows]:
        """Return the range of each query, (B or 1, R); an empty one where it lies in none."""
        import numpy as np

        _, queries = self._tables(case)
        of_rows = queries[:, rows]
        low, high = np.zeros_like(of_rows), np.zeros_like(of_rows)
        for b, its in enumerate(self.ranges(case)):
            for number, (start, end) in enumerate(its):
                low[b][of_rows[b] == number] = start
                high[b][of_rows[b] == number] = end
        return low, high

    def formula(self, case: Case, as_array: AsArray) -> Formula:
        """Compare the ranges of query and key."""
        keys, queries = map(as_array, self._tables(case))
        if "b" in self.axes:
            return lambda b, h, i, j: queries[b, i] == keys[b, j]
        return lambda b, h, i, j: queries[0, i] == keys[0, j]


@dataclass(frozen=True)
class Document(Groups):
    """Documents side by side: a query sees the keys of its own. its: ``seeded``, or the lengths of all."""

    its: Literal["seeded"] | tuple[int, ...] = "seeded"

    word = "document"
    part = "document"
    noun = "document mask"
    family = STRUCTURE
    sorts = ("documents",)

    def __post_init__(self) -> None:
        if self.its == "seeded":
            return
        if not isinstance(self.its, tuple) or not self.its:
            raise BadCase(f"document = {self.its!r}: give 'seeded', or a tuple of lengths")
        for length in self.its:
            check_whole("length of a document", length)
            if length < 1:
                raise BadCase(f"document lengths {list(self.its)}: a length is 1 or more")

    @property
    def axes(self) -> str:
        """Batch elements too, where each draws its own lengths."""
        return "bij" if self.its == "seeded" else "ij"

    @property
    def is_drawn(self) -> bool:
        """True if the lengths are drawn from the seed of the case."""
        return self.its == "seeded"

    @property
    def hint(self) -> str:
        """A word with lengths."""
        return "document:2,3 has 2 and 3 keys" if self.its == "seeded" else ""

    @classmethod
    def of_sort(cls, sort: str, B: int, Lk: int, random: Random) -> Self:
        """Draw the lengths of some documents."""
        ends = sorted(random.sample(range(1, Lk), min(Lk - 1, random.randint(1, 5))))
        return cls(tuple(end - start for start, end in zip([0, *ends], [*ends, Lk], strict=True)))

    def text(self) -> str:
        """Return the word as ids have it."""
        return self.word if self.its == "seeded" else f"{self.word}:{','.join(map(str, self.its))}"

    @classmethod
    def parse(cls, value: str | None, text: str) -> Self:
        """Read lengths."""
        return cls() if value is None else cls(_numbers(value, "document:3,5", text))

    def refuses(self, case: Case) -> str | None:
        """Return why the lengths do not fit the keys of a case, or None."""
        if self.its == "seeded":
            return None
        if case.batch:
            return "document lists lengths of one sequence: in a batch write document, which draws them"
        total = sum(self.its)
        return None if total == case.Lk else f"documents of {total} keys together, but Lk = {case.Lk}"

    def smaller(self, B: int, Lq: int, Lk: int, rng: np.random.Generator) -> Document:
        """Draw other lengths, if this word lists some."""
        return self if self.its == "seeded" else Document(_cuts(Lk, rng))

    def fitted(self, B: int, Lk: int) -> Document:
        """Return the first documents that fit, and the beginning of the next."""
        if self.its == "seeded":
            return self
        ends = [min(end, Lk) for end in accumulate(self.its)]
        ends[-1] = Lk
        lengths = [end - start for start, end in zip([0, *ends], ends, strict=False)]
        return Document(tuple(length for length in lengths if length))

    def unlisted(self) -> Document:
        """Return the word with lengths from the seed."""
        return Document()

    def ranges(self, case: Case) -> list[list[tuple[int, int]]]:
        """Return the documents."""
        import numpy as np

        listed = [self.its]
        if self.its == "seeded":
            sizes = case.seed, case.Lq, case.Lk
            listed = [_cuts(case.Lk, np.random.default_rng((_DOCUMENTS, *sizes, b))) for b in range(case.B)]
        ends = [list(accumulate(its)) for its in listed if its != "seeded"]
        return [list(zip([0, *its], its, strict=False)) for its in ends]


@dataclass(frozen=True)
class Image(Groups):
    """Images among the tokens, whose keys their own queries all see. blocks: first key and number of keys."""

    blocks: tuple[tuple[int, int], ...]

    word = "image"
    part = "image"
    noun = "mask of images"
    axes = "ij"
    lifts = ("causal", *_DISTANCES)
    family = EXTRA
    sorts = ("an image",)

    def __post_init__(self) -> None:
        end = 0
        for start, length in self.blocks:
            check_whole("first key of an image", start)
            check_whole("keys of an image", length)
            if length < 1 or start < end:
                raise BadCase(f"{self.text()}: give images one after the other, each of a key or more")
            end = start + length

    @classmethod
    def of_sort(cls, sort: str, B: int, Lk: int, random: Random) -> Self:
        """Draw one image."""
        start = random.randrange(Lk)
        return cls(((start, random.randint(1, Lk - start)),))

    def plainer(self) -> Iterator[Image]:
        """Yield the first image alone."""
        if len(self.blocks) > 1:
            yield Image(self.blocks[:1])

    def fitted(self, B: int, Lk: int) -> Image:
        """Return the images as far as there are keys; one of a key where there are none."""
        fits = tuple((start, min(length, Lk - start)) for start, length in self.blocks if start < Lk)
        return Image(fits or ((0, 1),))

    def smaller(self, B: int, Lq: int, Lk: int, rng: np.random.Generator) -> Image:
        """Draw as many images as fit."""
        places = sorted(int(at) for at in rng.permutation(Lk + 1)[: 2 * min(len(self.blocks), (Lk + 1) // 2)])
        pairs = zip(places[::2], places[1::2], strict=True)
        return Image(tuple((start, end - start) for start, end in pairs))

    def text(self) -> str:
        """Return the word as ids have it."""
        return f"{self.word}:{','.join(f'{start},{length}' for start, length in self.blocks)}"

    @classmethod
    def parse(cls, value: str | None, text: str) -> Self:
        """Read first keys and numbers of keys."""
        numbers = _numbers(value, "image:4,16", text)
        if len(numbers) % 2:
            raise BadCase(f"mask {text!r}: give the first key and the keys of each image, as in 'image:4,16'")
        return cls(tuple(zip(numbers[::2], numbers[1::2], strict=True)))

    def refuses(self, case: Case) -> str | None:
        """Return why the images do not fit the keys of a case, or None."""
        end = sum(self.blocks[-1])
        return f"an image ends at key {end}, but Lk = {_shortest(case)}" if end > _shortest(case) else None

    def ranges(self, case: Case) -> list[list[tuple[int, int]]]:
        """Return the images, for all batch elements."""
        return [[(start, start + length) for start, length in self.blocks]]


@dataclass(frozen=True)
class Counted(MaskWord):
    """A word with one number of keys."""

    keys: int

    axes = "ij"

    def __post_init__(self) -> None:
        check_whole(self.word, self.keys)
        if self.keys < 1:
            raise BadCase(f"{self.word} of {self.keys} keys: give at least 1")

    @classmethod
    def of_sort(cls, sort: str, B: int, Lk: int, random: Random) -> Self:
        """Draw a number, now and then that of all keys."""
        return cls(random.choice((random.randint(1, Lk), min(Lk, 4), min(Lk, 17), Lk)))

    @property
    def traits(self) -> tuple[str, ...]:
        """The mask with its number."""
        return (f"a {self.noun} of {self.keys}",)

    def plainer(self) -> Iterator[Self]:
        """Yield fewer keys."""
        for keys in (self.keys // 8, self.keys // 2, self.keys - 1):
            if 1 <= keys < self.keys:
                yield type(self)(keys)

    def text(self) -> str:
        """Return the word as ids have it."""
        return f"{self.word}:{self.keys}"

    @classmethod
    def parse(cls, value: str | None, text: str) -> Self:
        """Read the number."""
        return cls(whole_number_of(value or "", f"{cls.word}:4", text))

    def fitted(self, B: int, Lk: int) -> Self:
        """Return at most as many keys as there are."""
        return self if self.keys <= Lk else type(self)(Lk)

    def smaller(self, B: int, Lq: int, Lk: int, rng: np.random.Generator) -> Self:
        """Return fewer keys than there are, if this word has fewer too or there are too few."""
        return self if self.keys < Lk else type(self)(int(rng.integers(1, max(2, Lk))))


@dataclass(frozen=True)
class Prefix(Counted):
    """Every query sees the first keys, later ones too: a prefix in both directions, as of PaliGemma or T5."""

    word = "prefix"
    part = "prefix"
    noun = "prefix"
    form = "range"
    lifts: ClassVar[tuple[str, ...]] = ("causal", *_DISTANCES)
    family = EXTRA
    sorts = ("a prefix",)

    def bounds(self, case: Case, rows: Rows) -> tuple[Rows, Rows]:
        """Return the range of the first keys."""
        import numpy as np

        return np.zeros((1, 1), np.intp), np.full((1, 1), min(self.keys, case.Lk))

    def formula(self, case: Case, as_array: AsArray) -> Formula:
        """Compare the key with the number."""
        return lambda b, h, i, j: j < self.keys


@dataclass(frozen=True)
class First(Prefix):
    """The first keys stay visible behind a window, for queries from theirs on.

    Source: Xiao et al., Efficient Streaming Language Models with Attention Sinks, arXiv 2309.17453.
    """

    word = "first"
    part = "first"
    noun = "set of first keys"
    lifts = _DISTANCES
    sorts = ("first keys",)


@dataclass(frozen=True)
class Global(Counted):
    """Every query sees the first keys, and the first queries see every key.

    Source: Beltagy, Peters, Cohan, Longformer, arXiv 2004.05150, section 3.1.
    """

    word = "global"
    part = "global"
    noun = "set of global tokens"
    form = "table"
    lifts = _DISTANCES
    family = EXTRA
    sorts = ("global tokens",)

    def formula(self, case: Case, as_array: AsArray) -> Formula:
        """Compare the key and the query's position with the number."""
        offset = case.query_offset
        return lambda b, h, i, j: (j < self.keys) | ((i + offset >= 0) & (i + offset < self.keys))


@dataclass(frozen=True)
class Chunked(Counted):
    """A query sees the keys of its own chunk; chunks begin at key 0. Llama 4 has it in most layers."""

    word = "chunked"
    part = "chunked"
    noun = "chunk size"
    form = "range"
    family = STRUCTURE
    sorts = ("chunks",)

    def bounds(self, case: Case, rows: Rows) -> tuple[Rows, Rows]:
        """Return the chunk of each query, (1, R)."""
        import numpy as np

        low = (rows[None] + case.query_offset) // self.keys * self.keys
        return np.clip(low, 0, case.Lk), np.clip(low + self.keys, 0, case.Lk)

    def formula(self, case: Case, as_array: AsArray) -> Formula:
        """Compare the chunks."""
        offset = case.query_offset
        return lambda b, h, i, j: (i + offset) // self.keys == j // self.keys


@dataclass(frozen=True)
class Dilated(Counted):
    """A query sees keys whose distance from it is a multiple of the number, 0 included.

    Source: Beltagy, Peters, Cohan, Longformer, arXiv 2004.05150, section 3.1.
    """

    word = "dilated"
    part = "dilated"
    noun = "dilation"
    form = "table"
    family = STRUCTURE
    sorts = ("dilated keys",)

    def formula(self, case: Case, as_array: AsArray) -> Formula:
        """Divide the distance."""
        # Lk * keys makes it positive: libraries round quotients of negative numbers in two ways.
        offset = case.query_offset + (case.Lk + case.Lq) * self.keys
        return lambda b, h, i, j: (i + offset - j) % self.keys == 0


@dataclass(frozen=True)
class Reach(MaskWord):
    """A query at position p sees keys from ``p - left`` to ``p + right``; None is no limit.

    flash-attn's ``window_size=(left, right)``. ``window:W`` with ``causal`` is ``reach:W-1,0``: it counts the
    query's own key, and this does not.
    """

    left: int | None
    right: int | None

    word = "reach"
    part = "reach"
    noun = "reach"
    form = "band"
    axes = "ij"
    family = STRUCTURE
    sorts = ("a reach of two sides",)

    def __post_init__(self) -> None:
        for side in (self.left, self.right):
            if side is not None:
                check_whole("reach", side)
                if side < 0:
                    raise BadCase(f"reach of {side} keys: give 0 or more, or * for no limit")

    @classmethod
    def of_sort(cls, sort: str, B: int, Lk: int, random: Random) -> Self:
        """Draw two sides that differ."""
        left = random.choice((0, 1, 15, 16, 63, 64, Lk))
        return cls(left, random.choice([side for side in (0, 1, 7, 32, None) if side != left]))

    @property
    def traits(self) -> tuple[str, ...]:
        """The reach of each side."""
        return (f"a {self.text()}",)

    def plainer(self) -> Iterator[Reach]:
        """Yield shorter sides."""
        if self.left:
            yield Reach(self.left // 2, self.right)
        if self.right:
            yield Reach(self.left, self.right // 2)

    def text(self) -> str:
        """Return the word as ids have it."""
        left, right = ("*" if side is None else side for side in (self.left, self.right))
        return f"{self.word}:{left},{right}"

    @classmethod
    def parse(cls, value: str | None, text: str) -> Self:
        """Read both sides."""
        sides = (value or "").split(",")
        if len(sides) != 2:
            raise BadCase(f"mask {text!r}: give both sides, as in 'reach:128,0'; * is no limit")
        left, right = (None if side == "*" else whole_number_of(side, "reach:128,0", text) for side in sides)
        return cls(left, right)

    def smaller(self, B: int, Lq: int, Lk: int, rng: np.random.Generator) -> Reach:
        """Return sides that drop a key of some query, where these do or there are enough keys."""

        def shorter(side: int | None) -> int | None:
            return side if side is None or side + 1 < Lk else int(rng.integers(0, Lk))

        return Reach(shorter(self.left), shorter(self.right))

    def band(self) -> Band:
        """Return both sides."""
        return Band(self.left, self.right)


@dataclass(frozen=True)
class Blocks(MaskWord):
    """Square blocks of pairs, drawn from the seed of the case; each row of blocks keeps one and drops one.

    size: queries and keys of a block. percent: about so many of the blocks are kept.
    """

    size: int
    percent: int = 50

    word = "blocks"
    part = "blocks"
    noun = "block-sparse mask"
    form = "table"
    axes = "ij"
    is_drawn = True
    family = STRUCTURE
    sorts = ("blocks of pairs",)

    def __post_init__(self) -> None:
        check_whole("size of blocks", self.size)
        check_whole("percent of blocks", self.percent)
        if self.size < 1 or not 1 <= self.percent <= 100:
            raise BadCase(f"{self.text()}: give a size of 1 or more, and 1 to 100 percent")

    @classmethod
    def of_sort(cls, sort: str, B: int, Lk: int, random: Random) -> Self:
        """Draw a size."""
        return cls(random.choice((8, 16, 32, 64)), random.choice((25, 50)))

    def text(self) -> str:
        """Return the word as ids have it."""
        return f"{self.word}:{self.size}" + (f",{self.percent}" if self.percent != Blocks.percent else "")

    @classmethod
    def parse(cls, value: str | None, text: str) -> Self:
        """Read the size, and the percentage if it is given."""
        numbers = _numbers(value, "blocks:64 or blocks:64,25", text)
        if len(numbers) > 2:
            raise BadCase(f"mask {text!r}: give a size, and the percentage of blocks kept: 'blocks:64,25'")
        return cls(*numbers)

    def smaller(self, B: int, Lq: int, Lk: int, rng: np.random.Generator) -> Blocks:
        """Return blocks of which there are two, if these are too large."""
        return self if self.size < Lk else Blocks(max(1, Lk // 2), self.percent)

    def formula(self, case: Case, as_array: AsArray) -> Formula:
        """Look up the block of a pair."""
        import numpy as np

        shape = -(-case.Lq // self.size) or 1, -(-(case.Lk + 1) // self.size)
        rng = np.random.default_rng((_BLOCKS, case.seed, *shape))
        kept = rng.random(shape) * 100 < self.percent
        for row in kept:
            some = rng.permutation(max(1, -(-case.Lk // self.size)))[:2]
            row[some] = (True, False)[: len(some)]
        table, size = as_array(kept), self.size
        return lambda b, h, i, j: table[i // size, j // size]


@dataclass(frozen=True)
class Tree(MaskWord):
    """The last keys are drafts of a tree: a draft sees itself, its ancestors and the text before all drafts.

    parents: of each draft, from 1 on the draft before it, 0 for the text. Queries of the text see no draft.
    Source: Miao et al., SpecInfer, arXiv 2305.09781.
    """

    parents: tuple[int, ...]

    word = "tree"
    part = "tree"
    noun = "tree of drafts"
    form = "table"
    axes = "ij"
    family = STRUCTURE
    sorts = ("a tree of drafts",)

    def __post_init__(self) -> None:
        for number, parent in enumerate(self.parents, 1):
            check_whole("parent of a draft", parent)
            if not 0 <= parent < number:
                said = f"{self.text()}: draft {number} has the parent {parent}"
                raise BadCase(f"{said}; give a draft before it, or 0 for the text")

    @classmethod
    def of_sort(cls, sort: str, B: int, Lk: int, random: Random) -> Self:
        """Draw a tree with two branches, if there are two keys."""
        count = min(Lk, random.randint(2, 9))
        return cls(tuple(0 if draft < 2 else random.randint(0, draft) for draft in range(count)))

    def plainer(self) -> Iterator[Tree]:
        """Yield the tree without its last draft."""
        if len(self.parents) > 1:
            yield Tree(self.parents[:-1])

    def fitted(self, B: int, Lk: int) -> Tree:
        """Return as many of the first drafts as there are keys."""
        return Tree(self.parents[:Lk])

    def smaller(self, B: int, Lq: int, Lk: int, rng: np.random.Generator) -> Tree:
        """Draw other parents for at most as many drafts as there are keys."""
        count = min(Lk, len(self.parents))
        return Tree(tuple(0 if draft < 2 else int(rng.integers(draft + 1)) for draft in range(count)))

    def text(self) -> str:
        """Return the word as ids have it."""
        return f"{self.word}:{','.join(map(str, self.parents))}"

    @classmethod
    def parse(cls, value: str | None, text: str) -> Self:
        """Read the parents."""
        return cls(_numbers(value, "tree:0,0,1,1", text))

    def refuses(self, case: Case) -> str | None:
        """Return why there are too few keys for the drafts, or None."""
        count = len(self.parents)
        return f"a tree of {count} drafts, but Lk = {_shortest(case)}" if count > _shortest(case) else None

    def sees(self) -> NDArray[np.bool_]:
        """Return which drafts each draft sees, (n, n)."""
        import numpy as np

        seen = np.eye(len(self.parents), dtype=bool)
        for draft, parent in enumerate(self.parents):
            if parent:
                seen[draft] |= seen[parent - 1]
        return seen

    def formula(self, case: Case, as_array: AsArray) -> Formula:
        """Look up the drafts of query and key; the last row and column stand for the text."""
        import numpy as np

        count, first = len(self.parents), case.Lk - len(self.parents)
        table = np.zeros((count + 1, count + 1), bool)
        table[:count, :count] = self.sees()
        table[:, count] = True
        keys = np.append(np.maximum(np.arange(case.Lk) - first, -1), -1)
        position = _positions(case)
        queries = np.where((position >= first) & (position < case.Lk), position - first, -1)
        # The last place stands for -1.
        of_query, of_key = (as_array(places % (count + 1)) for places in (queries, keys))
        kept = as_array(table)
        return lambda b, h, i, j: kept[of_query[i], of_key[j]]


STRUCTURES: tuple[type[MaskWord], ...] = (
    LeftPadding, Document, Chunked, Reach, Dilated, Blocks, Tree, Prefix, First, Global, Image,
)  # fmt: skip
"""In the order in which ids write them."""
