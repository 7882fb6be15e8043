"""What every worker on a case is told, and the arrays that go with it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from attnbench.runner.referee_link import RefereeLink
from attnbench.worker import messages as m
from attnbench.worker import referee_messages as rm


@dataclass(frozen=True)
class ArrayBlock:
    """Arrays in shared memory: their layout and the descriptor, open as long as the case is."""

    arrays: tuple[m.ArraySpec, ...]
    fd: int


@dataclass(frozen=True)
class Brief:
    """A case as its workers are told it.

    threads: of every library in its workers. rule_source: where its rule comes from. draws: inputs,
    those of the check first, then those of timed calls. pairs, flops, bytes_moved: exact counts.
    memory_limit_bytes: what a worker may allocate. referee: who opened the case; another knows nothing of it.
    """

    case: str
    threads: int
    rule_source: m.PluginSource
    parameters: ArrayBlock
    draws: tuple[ArrayBlock, ...]
    check_draws: int
    pairs: int
    flops: float
    bytes_moved: float
    memory_limit_bytes: int
    referee: RefereeLink

    def timed_draw(self, set_index: int) -> int:
        """Which draw a set computes on: the timed ones in turn."""
        return self.check_draws + set_index % (len(self.draws) - self.check_draws)


@contextmanager
def open_brief(
    referee: RefereeLink, opening: rm.OpenCase, threads: int, memory_limit_bytes: int
) -> Iterator[Brief]:
    """Have the referee open a case and solve its draws; closes the arrays at the end.

    Raises:
        RefereeGaveUp: it can't.
    """
    opened, parameters_fd = referee.ask(opening, rm.CaseOpened)
    blocks = [ArrayBlock(opened.parameters, parameters_fd)]
    try:
        for index in range(opened.check_draws + opening.timed_draws):
            drawn, fd = referee.ask(rm.GetDraw(index), rm.Arrays)
            blocks.append(ArrayBlock(drawn.arrays, fd))
        yield Brief(
            case=opening.case,
            threads=threads,
            rule_source=opening.rule_source,
            parameters=blocks[0],
            draws=tuple(blocks[1:]),
            check_draws=opened.check_draws,
            pairs=opened.pairs,
            flops=opened.flops,
            bytes_moved=opened.bytes_moved,
            memory_limit_bytes=memory_limit_bytes,
            referee=referee,
        )
    finally:
        for block in blocks:
            os.close(block.fd)
