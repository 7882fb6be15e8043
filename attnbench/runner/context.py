"""The case as its workers know it, and the arrays that belong to it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from attnbench.ipc import messages as m
from attnbench.ipc import verifier_messages as rm
from attnbench.runner.link import VerifierLink
from attnbench.types.extensions import Source


@dataclass(frozen=True)
class ArrayBlock:
    """Arrays in shared memory: their layout and the descriptor, open as long as the case is."""

    arrays: tuple[m.ArraySpec, ...]
    fd: int


@dataclass(frozen=True)
class Place:
    """Inputs by name: which draw, and what seeds the transform that it comes after (0: none)."""

    draw: int
    change: int


@dataclass(frozen=True)
class CaseContext:
    """A case as its workers are told it.

    threads: of every library in its workers. rule_source, operation_source: where its rule and
    operation come from. draws: inputs,
    those of the check first, then those of timed calls. families: of each draw of the check. pairs, flops,
    bytes_moved: exact counts.
    memory_limit_bytes: what a worker may allocate. verifier: the process that has the case open.
    calls: with dropout, outputs on one draw that are compared; else 0.
    """

    case: str
    threads: int
    rule_source: Source
    parameters: ArrayBlock
    draws: tuple[ArrayBlock, ...]
    families: tuple[str, ...]
    pairs: int
    flops: float
    bytes_moved: float
    memory_limit_bytes: int
    verifier: VerifierLink
    calls: int = 0
    operation_source: Source | None = None

    @property
    def check_draws(self) -> int:
        """How many draws the check has; those of timed calls follow."""
        return len(self.families)

    def family(self, index: int) -> str:
        """Return the family of a draw; those of timed calls are ordinary."""
        return self.families[index] if index < self.check_draws else "normal"

    @property
    def timed_draws(self) -> range:
        """The draws of timed calls."""
        return range(self.check_draws, len(self.draws))

    @contextmanager
    def refreshed(self, places: Sequence[Place]) -> Iterator[tuple[ArrayBlock, ...]]:
        """The inputs of timed draws, each after its change; closes them at the end."""
        blocks: list[ArrayBlock] = []
        try:
            for place in places:
                drawn, fd = self.verifier.ask(rm.GetDraw(place.draw, place.change), rm.Arrays)
                blocks.append(ArrayBlock(drawn.arrays, fd))
            yield tuple(blocks)
        finally:
            for block in blocks:
                os.close(block.fd)


@contextmanager
def open_context(
    verifier: VerifierLink, opening: rm.OpenCase, threads: int, memory_limit_bytes: int
) -> Iterator[CaseContext]:
    """Have the verifier open a case and solve its draws; closes the arrays at the end.

    Raises:
        VerifierFailed: it can't.
    """
    opened, parameters_fd = verifier.ask(opening, rm.CaseOpened)
    blocks = [ArrayBlock(opened.parameters, parameters_fd)]
    try:
        for index in range(len(opened.families) + opening.timed_draws):
            drawn, fd = verifier.ask(rm.GetDraw(index), rm.Arrays)
            blocks.append(ArrayBlock(drawn.arrays, fd))
        yield CaseContext(
            case=opening.case,
            threads=threads,
            rule_source=opening.rule_source,
            parameters=blocks[0],
            draws=tuple(blocks[1:]),
            families=opened.families,
            pairs=opened.pairs,
            flops=opened.flops,
            bytes_moved=opened.bytes_moved,
            memory_limit_bytes=memory_limit_bytes,
            verifier=verifier,
            calls=opened.calls,
            operation_source=opening.operation_source,
        )
    finally:
        for block in blocks:
            os.close(block.fd)
