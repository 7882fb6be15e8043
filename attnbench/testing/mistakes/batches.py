"""Mistakes in reading the codes of a batch, which lies packed or in pages.

Each sequence may be read wrongly by itself, as a case without a batch. A scale may also be that of another
sequence, slot or page: such a mistake is a function of the stored tensors of the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnbench.testing.mistakes.encodings import (
    HEAD_OF,
    OTHERS,
    WITH_ZEROS,
    EncodedMistake,
    Numbers,
    StoredTensors,
    encoded_mistakes,
    from_place,
    from_words,
    stored_tensors,
)
from attnbench.types.batch import parse_batch
from attnbench.types.encoding import encoding_name, grain_of
from attnbench.types.problem import held_inputs, problems_of
from attnbench.types.storage import sizes_of, storage_of

if TYPE_CHECKING:
    from attnbench.types.case import Case
    from attnbench.types.rule import Rule

    Array = NDArray[Any]
    Change = Callable[[Array, "BatchTensors"], Array]


@dataclass(frozen=True)
class BatchTensors:
    """The stored tensors of a batch, with what reads them.

    drawn: the case with the seed from which its storage drew where numbers lie.
    """

    case: Case
    drawn: Case
    rule: Rule
    arrays: Mapping[str, Array]

    def sequences(self, changed: Mapping[str, Array]) -> list[StoredTensors]:
        """Return the tensors of each sequence, with some of the stored ones changed."""
        arrays = {**self.arrays, **changed}
        own: list[dict[str, Array]] = [{} for _ in range(self.case.B)]
        for specs, stored in held_inputs(self.case, self.rule, storage_of(self.case)):
            taken = storage_of(self.case).take(self.drawn, specs, [arrays[spec.name] for spec in stored])
            for one, array in zip(own, taken, strict=True):
                one[specs[0].name] = array
        return [
            stored_tensors(problem, self.rule, one)
            for problem, one in zip(problems_of(self.case), own, strict=True)
        ]

    def changed(self, side: str, words: tuple[str, ...], change: Change) -> dict[str, Array]:
        """Return tensors of k or v that a change of scales makes, by name.

        Scales lie by sequence, slot, or page and slot; those of blocks are bytes. words: "_scale", "_zero".
        """
        if grain_of(self.case):
            names = [f"{side}{word}" for word in words]
            return {name: change(self.arrays[name], self) for name in names}
        head, size = HEAD_OF[encoding_name(self.case)]
        codes = self.arrays[side].copy()
        scales = codes.reshape(*codes.shape[:-1], -1, size)[..., :head]
        scales[:] = change(scales.copy(), self)
        return {side: codes}


@dataclass(frozen=True)
class BatchMistake:
    """A mistake of kernels that read a batch of codes.

    name, summary, advice: as of an :class:`EncodedMistake`. reads: gives the keys and values of each sequence
    that the kernel takes for the right ones; raises any exception where it can't be made.
    """

    name: str
    summary: str
    advice: str
    reads: Callable[[BatchTensors], list[Numbers]]


def _in_each(mistake: EncodedMistake) -> BatchMistake:
    """Make a mistake in each sequence where it can be made; one of a single token has no next one."""

    def reads(batch: BatchTensors) -> list[Numbers]:
        sequences, found = batch.sequences({}), []
        failures = []
        for one in sequences:
            try:
                found.append(mistake.reads(one))
            except Exception as failure:
                failures.append(failure)
                found.append(one.read())
        if len(failures) == len(sequences):
            raise failures[0]
        return found

    return BatchMistake(mistake.name, mistake.summary, mistake.advice, reads)


def _of_scales(words: tuple[str, ...], change: Change) -> Callable[[BatchTensors], list[Numbers]]:
    def reads(batch: BatchTensors) -> list[Numbers]:
        k, v = (batch.changed(side, words, change) for side in "kv")
        return [one.read() for one in batch.sequences(k | v)]

    return reads


def _slots(scales: Array, batch: BatchTensors) -> Array:
    """Return scales with one axis of slots."""
    paged = batch.case.storage == "paged"
    return scales.reshape(-1, *scales.shape[2:]) if paged else scales


def _from(which: str) -> Change:
    return lambda scales, batch: from_place(scales, 0, which)


def _from_slot(which: str) -> Change:
    return lambda scales, batch: from_place(_slots(scales, batch), 0, which).reshape(scales.shape)


def _without_the_table(scales: Array, batch: BatchTensors) -> Array:
    """Let the scales of a sequence be those of the first pages of the cache, in their order."""
    page, table = sizes_of(batch.case)["page"], batch.arrays["block_table"]
    changed = scales.copy()
    for row, (_, keys) in zip(table, parse_batch(batch.case.batch), strict=True):
        count = -(-keys // page)
        changed[row[:count]] = scales[:count]
    return changed


_SEQUENCE = "scales of the grains head and channel are (sequences, Hkv, ·): take those of the own sequence"
_SLOT = "codes and scales of a token lie in the same slot"
_PAGE = "scales lie in the page of their codes, which block_table names; those of a token in its slot"
STEPS = OTHERS[:2]


def batch_mistakes(case: Case) -> Iterator[BatchMistake]:
    """Yield the mistakes in reading the codes of a batch. Some can't be made in it, and then raise."""
    for mistake in encoded_mistakes(case):
        yield _in_each(mistake)
    yield from _of_places(case, "scale", ("_scale",))
    if encoding_name(case) in WITH_ZEROS:
        yield from _of_places(case, "zero point", ("_zero",))
        yield from _of_places(case, "scale and zero point", ("_scale", "_zero"))


def _of_places(case: Case, what: str, words: tuple[str, ...]) -> Iterator[BatchMistake]:
    """Yield the mistakes that read something from another sequence, slot or page."""

    named = what.replace(" ", "_")

    def mistake(which: str, place: str, advice: str, change: Change) -> BatchMistake:
        name, summary = f"{named}_of_the_{which}_{place}", from_words(what, which, place)
        return BatchMistake(name, summary, advice, _of_scales(words, change))

    name, grain = encoding_name(case), grain_of(case)
    if grain in ("head", "channel"):
        for which in OTHERS:
            yield mistake(which, "sequence", _SEQUENCE, _from(which))
    by_slot = grain in ("token", "block32") or name in HEAD_OF
    for which in STEPS if by_slot else ():
        yield mistake(which, "slot", _SLOT, _from_slot(which))
    if case.storage != "paged" or not (by_slot or grain == "page32"):
        return
    for which in STEPS:
        yield mistake(which, "page", _PAGE, _from(which))
    if by_slot:
        yield mistake("first", "slot", _PAGE, lambda scales, _: np.broadcast_to(scales[:, :1], scales.shape))
    summary = f"the {what} is read from the first pages, and codes by the table"
    without = _of_scales(words, _without_the_table)
    yield BatchMistake(f"{named}_without_the_table", summary, _PAGE, without)
