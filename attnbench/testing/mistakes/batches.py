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
    EncodedMistake,
    Numbers,
    StoredTensors,
    encoded_mistakes,
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

    def scales(self, side: str) -> Array:
        """Return the scales of k or v, by sequence, slot, or page and slot; those of blocks as bytes."""
        if grain_of(self.case):
            return self.arrays[f"{side}_scale"]
        head, size = HEAD_OF[encoding_name(self.case)]
        codes = self.arrays[side]
        return codes.reshape(*codes.shape[:-1], -1, size)[..., :head]

    def with_scales(self, side: str, scales: Array) -> dict[str, Array]:
        """Return the tensor that holds other scales of k or v, by name."""
        if grain_of(self.case):
            return {f"{side}_scale": scales}
        head, size = HEAD_OF[encoding_name(self.case)]
        codes = self.arrays[side].copy()
        codes.reshape(*codes.shape[:-1], -1, size)[..., :head] = scales
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


def _of_scales(change: Change) -> Callable[[BatchTensors], list[Numbers]]:
    def reads(batch: BatchTensors) -> list[Numbers]:
        changed: dict[str, Array] = {}
        for side in "kv":
            changed |= batch.with_scales(side, change(batch.scales(side), batch))
        return [one.read() for one in batch.sequences(changed)]

    return reads


def _slots(scales: Array, batch: BatchTensors) -> Array:
    """Return scales with one axis of slots."""
    paged = batch.case.storage == "paged"
    return scales.reshape(-1, *scales.shape[2:]) if paged else scales


def _rolled(step: int) -> Change:
    return lambda scales, batch: np.roll(scales, step, 0)


def _rolled_slots(step: int) -> Change:
    return lambda scales, batch: np.roll(_slots(scales, batch), step, 0).reshape(scales.shape)


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
STEPS = (("next", -1), ("previous", 1))


def batch_mistakes(case: Case) -> Iterator[BatchMistake]:
    """Yield the mistakes in reading the codes of a batch. Some can't be made in it, and then raise."""
    for mistake in encoded_mistakes(case):
        yield _in_each(mistake)
    name, grain = encoding_name(case), grain_of(case)
    if grain in ("head", "channel"):
        for which, step in STEPS:
            yield BatchMistake(
                f"scale_of_the_{which}_sequence", f"the scale of the {which} sequence", _SEQUENCE,
                _of_scales(_rolled(step)),
            )  # fmt: skip
        yield BatchMistake(
            "scale_of_the_first_sequence", "the scale of the first sequence for all", _SEQUENCE,
            _of_scales(lambda scales, _: np.broadcast_to(scales[:1], scales.shape)),
        )  # fmt: skip
    by_slot = grain in ("token", "block32") or name in HEAD_OF
    for which, step in STEPS if by_slot else ():
        yield BatchMistake(
            f"scale_of_the_{which}_slot", f"the scales of the {which} slot", _SLOT,
            _of_scales(_rolled_slots(step)),
        )  # fmt: skip
    if case.storage != "paged" or not (by_slot or grain == "page32"):
        return
    for which, step in STEPS:
        yield BatchMistake(
            f"scale_of_the_{which}_page", f"the scales of the {which} page of the cache", _PAGE,
            _of_scales(_rolled(step)),
        )  # fmt: skip
    if by_slot:
        yield BatchMistake(
            "scale_of_the_first_slot", "the scales of a page's first slot for all its slots", _PAGE,
            _of_scales(lambda scales, _: np.broadcast_to(scales[:, :1], scales.shape)),
        )  # fmt: skip
    yield BatchMistake(
        "scales_without_the_table", "scales are read from the first pages, and codes by the table", _PAGE,
        _of_scales(_without_the_table),
    )  # fmt: skip
