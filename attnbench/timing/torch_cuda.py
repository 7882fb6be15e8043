"""The part of ``torch.cuda`` that timing uses, so that something else can stand for it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol


class Cuda(Protocol):
    """What is used of ``torch.cuda``; its documentation holds."""

    def Event(self, enable_timing: bool) -> Any:  # noqa: N802
        """A mark in the current stream."""

    def Stream(self) -> Any:  # noqa: N802
        """A queue of work."""

    def CUDAGraph(self) -> Any:  # noqa: N802
        """Work to be replayed."""

    def stream(self, stream: Any) -> AbstractContextManager[Any]:
        """Make a stream the current one."""

    def current_stream(self) -> Any:
        """The current stream."""

    def graph(self, graph: Any, *, stream: Any) -> AbstractContextManager[Any]:
        """Capture work into a graph instead of doing it."""

    def synchronize(self) -> None:
        """Wait until the device is idle."""

    def current_device(self) -> int:
        """Its number."""

    def get_device_properties(self, device: int) -> Any:
        """L2_cache_size in bytes, clock_rate in kHz, and more."""

    def clock_rate(self) -> int:
        """The SM clock now, MHz; raises where the system can't tell."""
