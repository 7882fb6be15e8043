"""A CUDA device that isn't there: streams, events, graphs and a clock, over a time that work passes.

The rules are those of the CUDA programming guide. Work in one stream runs in order. Streams run beside each
other unless one waits for the other. An event is a moment of its stream. A capture takes the work of its own
stream and of streams that wait for it. Other streams work on meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

MARK_NS = 500
"""What the host takes to queue an event, a spin or a write."""

Effect = Callable[[], None]


class FakeStream:
    """Queued work: when the device will be done with all of it."""

    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda = cuda
        self.done_ns = 0

    def push(self, ns: int) -> tuple[int, int]:
        """Queue work; return when it begins and ends."""
        begin = max(self.done_ns, self._cuda.host_ns)
        self.done_ns = begin + ns
        return begin, self.done_ns

    def wait_stream(self, other: FakeStream) -> None:
        graph = self._cuda.capturing
        if graph is not None and other in graph.ends_ns:
            graph.ends_ns[self] = max(graph.ends_ns.get(self, 0), graph.ends_ns[other])
            return
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
        assert end.at_ns <= self._cuda.host_ns, "asked before it has happened"
        grain = self._cuda.event_grain_ns
        return (end.at_ns // grain - self.at_ns // grain) * grain / 1e6


@dataclass
class FakeGraph:
    """Captured work. ends_ns: of each stream in it, from its beginning."""

    cuda: FakeCuda
    kernels: list[int] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    ends_ns: dict[FakeStream, int] = field(default_factory=dict)
    origin: FakeStream | None = None
    replays: int = 0

    def add(self, stream: FakeStream, ns: int, effect: Effect | None) -> None:
        self.kernels.append(ns)
        self.ends_ns[stream] += ns
        if effect is not None:
            self.effects.append(effect)

    def replay(self) -> None:
        upload_ns = 0 if self.replays else self.cuda.upload_ns
        self.replays += 1
        self.cuda.happened.append("replay")
        self.cuda.launched(self.cuda.node_ns * len(self.kernels))
        self.cuda.worked.append(self.cuda.current.push(upload_ns + self.ends_ns[self.origin]))
        for effect in self.effects:
            effect()


@dataclass
class FakeCuda:
    """Stands for ``torch.cuda``.

    launch_ns: what the host takes to launch anything. node_ns: besides, for each kernel of a graph. delay_ns:
    a function that gives what a launch takes besides. wait_ns: what the host takes to wait for a device that
    is idle. upload_ns: what the device takes besides to replay a graph for the first time. l2_bytes,
    clock_khz: as its properties say, 0 where they say nothing. clock_mhz: as it runs now; None where it can't
    be told. slows: whether work takes longer at a lower clock. can_spin: whether it has ``_sleep``.
    event_grain_ns: the resolution of events. happened: what was asked for, in order. worked: when kernels and
    graphs of a call began and ended. written: the bytes of each write over a buffer.
    """

    launch_ns: int = 10_000
    node_ns: int = 0
    upload_ns: int = 0
    wait_ns: int = 0
    delay_ns: Callable[[], int] = lambda: 0
    l2_bytes: int = 50 * 2**20
    clock_khz: int = 2_000_000
    clock_mhz: int | None = 1900
    slows: bool = False
    can_spin: bool = True
    event_grain_ns: int = 1
    happened: list[str] = field(default_factory=list)
    host_ns: int = 0
    streams: list[FakeStream] = field(default_factory=list)
    graphs: list[FakeGraph] = field(default_factory=list)
    worked: list[tuple[int, int]] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    capturing: FakeGraph | None = None

    def __post_init__(self) -> None:
        self.current = self.default = self.Stream()
        if self.can_spin:
            self._sleep = self._spin

    # --- what a test does ---

    def now_ns(self) -> int:
        return self.host_ns

    def kernel(self, ns: int, stream: FakeStream | None = None, *, effect: Effect | None = None) -> None:
        """Launch a kernel that takes so long, in the current stream unless another is said.

        effect: what it does to memory.
        """
        stream = stream or self.current
        if self.capturing is not None and stream in self.capturing.ends_ns:
            self.capturing.add(stream, ns, effect)
            return
        self.happened.append("kernel")
        self.launched()
        self.worked.append(stream.push(self._at_clock(ns)))
        if effect is not None:
            effect()

    def overwrite(self, count: int) -> Callable[[], None]:
        """A buffer of so many bytes, written at 4 bytes a ns."""

        def write() -> None:
            self.happened.append("flush")
            self.written.append(count)
            self.host_ns += MARK_NS
            self.current.push(count // 4)

        return write

    def launched(self, besides_ns: int = 0) -> None:
        self.host_ns += self.launch_ns + besides_ns + self.delay_ns()

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

    @property
    def idle(self) -> bool:
        """Whether all work is done."""
        return all(stream.done_ns <= self.host_ns for stream in self.streams)

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
        self.capturing, graph.origin, graph.ends_ns = graph, stream, {stream: 0}
        try:
            yield
        finally:
            self.capturing = None
        self.current = before

    def synchronize(self) -> None:
        if self.capturing is not None:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.happened.append("idle")
        self.host_ns = max(self.host_ns, *(stream.done_ns for stream in self.streams)) + self.wait_ns

    def current_device(self) -> int:
        return 0

    def get_device_properties(self, device: int) -> Any:
        assert device == 0
        stated = {"L2_cache_size": self.l2_bytes, "clock_rate": self.clock_khz}
        return SimpleNamespace(**{name: value for name, value in stated.items() if value})

    def clock_rate(self) -> int:
        self.happened.append("clock")
        if self.clock_mhz is None:
            raise ModuleNotFoundError("pynvml does not seem to be installed or it can't be imported.")
        return self.clock_mhz

    def _spin(self, cycles: int) -> None:
        ns = cycles * 1000 // (self.clock_mhz or 1900) if self.slows else cycles // 2
        if self.capturing is not None and self.current in self.capturing.ends_ns:
            self.capturing.add(self.current, ns, None)
            return
        self.host_ns += MARK_NS
        self.current.push(ns)

    def _at_clock(self, ns: int) -> int:
        return ns * self.clock_khz // (1000 * self.clock_mhz) if self.slows and self.clock_mhz else ns
