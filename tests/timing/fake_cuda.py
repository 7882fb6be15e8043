"""A CUDA device that isn't there: streams, events and graphs over a clock that goes when work is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

MARK_NS = 500
"""What the host takes to queue an event, a spin or a write."""


class FakeStream:
    """Queued work: when the device will be done with all of it."""

    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda = cuda
        self.done_ns = 0

    def push(self, ns: int) -> None:
        self.done_ns = max(self.done_ns, self._cuda.host_ns) + ns

    def wait_stream(self, other: FakeStream) -> None:
        self.done_ns = max(self.done_ns, other.done_ns)


class FakeEvent:
    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda = cuda
        self.at_ns: int | None = None

    def record(self) -> None:
        self._cuda.host_ns += MARK_NS
        stream = self._cuda.current
        stream.push(0)
        self.at_ns = stream.done_ns

    def synchronize(self) -> None:
        assert self.at_ns is not None, "waited for before it was recorded"
        self._cuda.host_ns = max(self._cuda.host_ns, self.at_ns)

    def elapsed_time(self, end: FakeEvent) -> float:
        assert self.at_ns is not None
        assert end.at_ns is not None
        assert end.at_ns <= self._cuda.host_ns, "asked before it has happened"
        return (end.at_ns - self.at_ns) / 1e6


@dataclass
class FakeGraph:
    cuda: FakeCuda
    kernels: list[int] = field(default_factory=list)
    replays: int = 0

    def replay(self) -> None:
        self.replays += 1
        self.cuda.happened.append("replay")
        self.cuda.host_ns += self.cuda.launch_ns
        self.cuda.current.push(sum(self.kernels))


@dataclass
class FakeCuda:
    """Stands for ``torch.cuda``. launch_ns: what the host takes to launch anything.

    l2_bytes, clock_khz: as its properties say. clock_mhz: as it runs now; None where it can't be told.
    can_spin: whether it has ``_sleep``. happened: what was asked for, in order.
    """

    launch_ns: int = 10_000
    l2_bytes: int = 50 * 2**20
    clock_khz: int = 2_000_000
    clock_mhz: int | None = 1900
    can_spin: bool = True
    happened: list[str] = field(default_factory=list)
    host_ns: int = 0
    streams: list[FakeStream] = field(default_factory=list)
    graphs: list[FakeGraph] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    capturing: FakeGraph | None = None

    def __post_init__(self) -> None:
        self.current = self.default = self.Stream()
        if self.can_spin:
            self._sleep = self._spin

    # --- what a test does ---

    def now_ns(self) -> int:
        return self.host_ns

    def kernel(self, ns: int, stream: FakeStream | None = None) -> None:
        """Launch a kernel that takes so long, in the current stream unless another is said."""
        if self.capturing is not None:
            if stream is not None and stream is not self.current:
                raise RuntimeError("unjoined work")
            self.capturing.kernels.append(ns)
            return
        self.happened.append("kernel")
        self.host_ns += self.launch_ns
        (stream or self.current).push(ns)

    def overwrite(self, count: int) -> Callable[[], None]:
        """A buffer of so many bytes, written at 4 bytes a ns."""

        def write() -> None:
            self.happened.append("flush")
            self.written.append(count)
            self.host_ns += MARK_NS
            self.current.push(count // 4)

        return write

    # --- what torch.cuda does ---

    def Stream(self) -> FakeStream:  # noqa: N802
        self.streams.append(FakeStream(self))
        return self.streams[-1]

    def Event(self, enable_timing: bool) -> FakeEvent:  # noqa: N802
        assert enable_timing
        return FakeEvent(self)

    def CUDAGraph(self) -> FakeGraph:  # noqa: N802
        self.graphs.append(FakeGraph(self))
        return self.graphs[-1]

    def current_stream(self) -> FakeStream:
        return self.current

    @contextmanager
    def stream(self, stream: FakeStream) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    @contextmanager
    def graph(self, graph: FakeGraph, *, stream: FakeStream) -> Iterator[None]:
        """As torch's: where what is captured fails, it leaves its own stream the current one."""
        self.synchronize()
        before, self.current = self.current, stream
        self.capturing = graph
        try:
            yield
        finally:
            self.capturing = None
        self.current = before

    def synchronize(self) -> None:
        if self.capturing is not None:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.happened.append("idle")
        self.host_ns = max(self.host_ns, *(stream.done_ns for stream in self.streams))

    def current_device(self) -> int:
        return 0

    def get_device_properties(self, device: int) -> Any:
        assert device == 0
        return SimpleNamespace(L2_cache_size=self.l2_bytes, clock_rate=self.clock_khz)

    def clock_rate(self) -> int:
        self.happened.append("clock")
        if self.clock_mhz is None:
            raise ModuleNotFoundError("pynvml does not seem to be installed or it can't be imported.")
        return self.clock_mhz

    def _spin(self, cycles: int) -> None:
        self.host_ns += MARK_NS
        self.current.push(cycles * 1_000_000 // self.clock_khz)
