"""Encodings: which tensors stand for drawn inputs, as codes and scales. They are read back exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from attnbench.types.errors import BadCase
from attnbench.types.operation import TensorSpec, operation_of
from attnbench.types.words import unknown_name

if TYPE_CHECKING:
    from attnbench.types.case import Case

    Specs = tuple[TensorSpec, ...]

KEPT = ("one_hot", "large_logits", "even")
"""Stress inputs that mean the same if equal numbers of a head have equal codes, and 0 is held as 0."""


@dataclass(frozen=True)
class Written:
    """What a right writer may do: take a code so many steps beside the nearest; and whether it was given its
    scales, as for a cache whose scales were found before, or finds them itself."""

    steps: int = 0
    given: bool = False


@dataclass(frozen=True)
class Encoding:
    """How the keys and values of a case are held: which tensors stand for them, and which numbers these mean.

    What is drawn is rounded to the dtype of the case as ever. ``encode`` makes stored tensors of these
    numbers, and may round again; ``decode`` says what the stored tensors mean, exactly. The oracle solves
    what ``decode`` returns, and the plain reference gets it in the dtype of the case.

    specs: of k and v as the operation has them, in one problem. The grain of a case is
    :func:`grain_of` (case).
    """

    name: str
    """The word of ``kv=`` in ids, before the grain."""
    summary: str
    """What is stored, one line."""
    tensors: Callable[[Case, Specs], Specs]
    """``tensors(case, specs)`` returns the stored tensors. Their letters of axes are those of the operation
    where they have them, so that a storage finds tokens (j) and batch elements (b)."""
    encode: Callable[[Case, Specs, Sequence[Any]], Sequence[Any]]
    """``encode(case, specs, numbers)`` returns the arrays of these tensors, from float64 arrays. Those of the
    kind ``float`` are in float64 too, and hold numbers of the dtype of the case; ``decode`` gets them so.

    Changes that hold for the numbers must hold for what is read back, without new rounding: another order of
    batch elements, heads and tokens, all numbers of a tensor times a power of two, and, where ``mirrors``
    says so, other signs of features. This is asserted for each refreshed input.
    """
    decode: Callable[[Case, Specs, Sequence[Any]], Sequence[Any]]
    """``decode(case, specs, stored)`` returns k and v in float64, in the shapes of the specs."""
    grains: tuple[str, ...] = ()
    """What shares a scale, as ``head`` in ``int8:head``; the first is the default. Empty: one way only."""
    mirrors: bool = True
    """Whether the codes of -x mean minus what those of x mean, for each number by itself."""
    runs: Callable[[Case], bool] = lambda case: False
    """Whether neighbouring keys share a scale in a case: another order of tokens is not kept then."""
    given: Callable[[Case], bool] = lambda case: False
    """Whether the scales of a case don't follow from its numbers: powers of two of a tensor are not kept."""
    shared: bool = False
    """Whether the values are the first features of the keys, so that both change together."""
    keeps: tuple[str, ...] = KEPT
    """The kinds of stress inputs that still mean the same. Others are left out. ``small_values`` has values
    about 2**-14 in size, which some codes can't hold."""
    refuses: Callable[[Case], str | None] = lambda case: None
    """Returns the reason why a case can't have this encoding, or None."""
    settle: Callable[[Case, Specs, Sequence[Any], Sequence[Any], Written], Sequence[Any]] | None = None
    """``settle(case, specs, numbers, stored, written)`` returns the right arrays that are nearest to stored
    ones, for numbers in float64: a writer may take either code at the middle between two, and a scale that is
    rounded otherwise. None where nothing is rounded, or where no writer of it can be judged."""
    largest: float = 0.0
    """The largest number that a writer can hold without the overflow of a scale; 0 for any of the dtype."""
    baseline: str = ""
    """The backend that ratios of its cases refer to, unless the user or a suite names one; "" for none."""


DTYPE = Encoding(
    name="dtype",
    summary="numbers of the dtype of the case, as any input",
    tensors=lambda case, specs: specs,
    encode=lambda case, specs, numbers: numbers,
    decode=lambda case, specs, stored: stored,
)

_BUILT_IN = "attnbench.encodings"
# Ids name encodings; each process learns the names that its plugins bring.
_known: dict[str, Encoding] = {}


def make_encodings_known(encodings: Iterable[Encoding]) -> None:
    """Let cases in this process use these encodings."""
    _known.update((encoding.name, encoding) for encoding in encodings)


def known_encodings() -> Mapping[str, Encoding]:
    """Return the encodings that cases in this process can use, by name."""
    if DTYPE.name not in _known:
        make_encodings_known(import_module(_BUILT_IN).attnbench_encodings())
    return _known


def encoding_named(name: str) -> Encoding:
    """Return the encoding of that name.

    Raises:
        BadCase: no plugin loaded in this process brings it.
    """
    known = known_encodings()
    if name not in known:
        raise BadCase(unknown_name("encoding", name, tuple(known)))
    return known[name]


def parse_encoding(word: str) -> str:
    """Return the word of an encoding with its grain, ``int8:head`` for ``int8``.

    Raises:
        BadCase: there is no such encoding, or it has no such grain.
    """
    name, colon, grain = word.partition(":")
    grains = encoding_named(name).grains
    if colon and grain not in grains:
        has = f"give {' or '.join(f'{name}:{one}' for one in grains)}" if grains else f"{name} has none"
        raise BadCase(f"kv={word}: {grain!r} is not a grain of {name}; {has}")
    return f"{name}:{grain or grains[0]}" if grains else name


def encoding_words(names: Iterable[str]) -> tuple[str, ...]:
    """Return the words of encodings with each of their grains, of those that this process knows."""
    known = known_encodings()
    words = (
        parse_encoding(f"{name}:{grain}") for name in names if name in known for grain in known[name].grains
    )
    return (*(name for name in names if name in known and not known[name].grains), *words)


def names_encoding(case: Case) -> bool:
    """Return whether a case has another encoding than its dtype, which its operation reads or writes."""
    return case.kv != DTYPE.name


def is_encoded(case: Case) -> bool:
    """Return whether the keys and values that a case reads are held in another way than in its dtype."""
    return names_encoding(case) and bool(operation_of(case).encoded)


def unencoded(case: Case) -> Case:
    """Return the case with the keys and values that it reads in its dtype, as the plain reference has it."""
    return replace(case, kv=DTYPE.name) if is_encoded(case) else case


def encoding_name(case: Case) -> str:
    """Return the name of a case's encoding, without the grain."""
    return case.kv.partition(":")[0]


def grain_of(case: Case) -> str:
    """Return what shares a scale in a case; "" where its encoding has one way."""
    return case.kv.partition(":")[2]


def encoding_of(case: Case) -> Encoding:
    """Return the encoding of a case."""
    return encoding_named(encoding_name(case))
