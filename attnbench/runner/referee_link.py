"""The parent's end of the line to the referee."""

from __future__ import annotations

import threading
from typing import TypeVar

from attnbench.runner.link import CLOSING_S, start_process
from attnbench.types.errors import MeasuringFailed
from attnbench.worker import referee_messages as rm
from attnbench.worker.channel import Channel, ChannelClosed, ChannelTimeout, close_all

T = TypeVar("T")


class RefereeGaveUp(Exception):  # noqa: N818
    """The referee can't judge this case, in words."""


class RefereeLink:
    """A running referee. Safe to ask from several threads: one question at a time."""

    def __init__(self, timeout_s: float) -> None:
        self._started = start_process("attnbench.worker.referee", [], {"OPENBLAS_NUM_THREADS": "1"})
        self._line: Channel[rm.RefereeRequest, rm.RefereeReply] = Channel(
            self._started.sock,
            rm.RefereeReply,  # type: ignore[arg-type]
        )
        self._lock = threading.Lock()
        self._closed = False
        self._last_words = ""
        self._timeout_s = timeout_s

    def ask(self, request: rm.RefereeRequest, expects: type[T], fd: int = -1) -> tuple[T, int]:
        """Send a request (with a descriptor, which stays the caller's); gives the answer and its descriptor.

        Raises:
            RefereeGaveUp: it could not, or ended, or took too long (it is killed).
        """
        with self._lock:
            try:
                self._line.send(request, () if fd < 0 else (fd,))
                reply, fds = self._line.receive(self._timeout_s)
            except ChannelTimeout as late:
                self.close()
                raise RefereeGaveUp(f"the oracle took more than {self._timeout_s:g} s") from late
            except (ChannelClosed, OSError) as gone:
                raise RefereeGaveUp(f"the oracle's process ended: {self.close()}") from gone
        if isinstance(reply, rm.RefereeFailed):
            close_all(fds)
            raise RefereeGaveUp(f"the oracle failed: {reply.reason}")
        if not isinstance(reply, expects):
            close_all(fds)
            raise MeasuringFailed(f"the referee answered {type(reply).__name__} to {type(request).__name__}")
        return reply, fds[0] if fds else -1

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return not self._closed and self._started.process.poll() is None

    def close(self) -> str:
        """End it; gives the last line it wrote to stderr."""
        if not self._closed:
            self._closed = True
            self._line.close()
            _, self._last_words = self._started.end(CLOSING_S)
        return self._last_words
