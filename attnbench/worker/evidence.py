"""Outputs of timed calls, written down as they come, until the parent asks for them."""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from attnbench.worker.answers import stored_answer, written
from attnbench.worker.messages import Kept, KeptOutput
from attnbench.worker.shared import anonymous_file

if TYPE_CHECKING:
    from attnbench.worker.held import Held


class Evidence:
    """Outputs in memory of their own, not of the heap that calls allocate from."""

    def __init__(self) -> None:
        self._fd = -1
        self._size = 0
        self._kept: list[KeptOutput] = []
        self._checking_ns = 0

    def keep(self, held: Held, answer: Any, stretch: int, turn: int, call: int, *, renewed: bool) -> None:
        """Write an answer down as it is now.

        Raises:
            WrongOutput: it isn't what the case asks for.
        """
        start = perf_counter_ns()
        parts = stored_answer(held, answer)
        if self._fd < 0:
            self._fd = anonymous_file()
        specs, self._size = written(self._fd, self._size, parts, held.case.dtype)
        self._kept.append(KeptOutput(stretch, turn, call, renewed, specs))
        self._checking_ns += perf_counter_ns() - start

    def ends_with(self, stretch: int, turn: int, call: int) -> bool:
        """Whether the answer kept last is that of this call."""
        kept = self._kept[-1] if self._kept else None
        return kept is not None and (kept.stretch, kept.turn, kept.call) == (stretch, turn, call)

    def spent(self, ns: int) -> None:
        """Count what else checking has taken within turns."""
        self._checking_ns += ns

    def handed_over(self) -> tuple[Kept, tuple[int, ...]]:
        """All that was kept, and its descriptor; from now on nothing is."""
        kept, fds = Kept(tuple(self._kept), self._checking_ns), (self._fd,) if self._fd >= 0 else ()
        self.__init__()  # type: ignore[misc]
        return kept, fds
