"""Outputs of timed calls, written down as they come, until the parent asks for them."""

from __future__ import annotations

import os
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from attnbench.types.shapes import output_shape
from attnbench.worker.messages import ArraySpec, Kept, KeptOutput
from attnbench.worker.shared import anonymous_file
from attnbench.worker.tensors import stored_output

if TYPE_CHECKING:
    from attnbench.worker.held import Held

_ALIGN_BYTES = 64


class Evidence:
    """Outputs in memory of their own, not of the heap that calls allocate from."""

    def __init__(self) -> None:
        self._fd = -1
        self._size = 0
        self._kept: list[KeptOutput] = []
        self._checking_ns = 0

    def keep(self, held: Held, output: Any, stretch: int, turn: int, call: int, *, renewed: bool) -> None:
        """Write an output down as it is now.

        Raises:
            WrongOutput: it isn't what the case asks for.
        """
        start = perf_counter_ns()
        shape = output_shape(held.case)
        data = stored_output(output, held.case, shape, held.backend.layout)
        if self._fd < 0:
            self._fd = anonymous_file()
        spec = ArraySpec("out", held.case.dtype, shape, self._size)
        remaining = memoryview(data.reshape(-1).view(np.uint8).data)
        at = self._size
        while remaining:
            written = os.pwrite(self._fd, remaining, at)
            remaining, at = remaining[written:], at + written
        self._size = -(-at // _ALIGN_BYTES) * _ALIGN_BYTES
        self._kept.append(KeptOutput(stretch, turn, call, renewed, spec))
        self._checking_ns += perf_counter_ns() - start

    def spent(self, ns: int) -> None:
        """Count what else checking has taken within turns."""
        self._checking_ns += ns

    def handed_over(self) -> tuple[Kept, tuple[int, ...]]:
        """All that was kept, and its descriptor; from now on nothing is."""
        kept, fds = Kept(tuple(self._kept), self._checking_ns), (self._fd,) if self._fd >= 0 else ()
        self.__init__()  # type: ignore[misc]
        return kept, fds
