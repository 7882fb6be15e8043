"""Timing on a CUDA device: events around its work, captured in graphs where that works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from statistics import median_low
from time import perf_counter_ns, thread_time_ns
from typing import Any

from attnbench.timing.sample import Call, Sample, joined, read_vitals, spent_since
from attnbench.types.device import CUDA
from attnbench.types.record import DeviceMode

Inputs = tuple[Any, ...]

WARM_CALLS_BEFORE_CAPTURE = 3
MOST_CAPTURED_CALLS = 1000
"""The most calls in one graph; more calls replay it several times."""


@dataclass(frozen=True)
class CallGraphs:
    """Graphs that make the calls when they are replayed in order, and the output of the last call.

    launch_ns: the host's time to launch one of them, at first.
    """

    graphs: tuple[Any, ...]
    output: Any
    launch_ns: float


def capture(cuda: Any, call: Call, inputs: Inputs, calls: int, now_ns: Callable[[], int]) -> CallGraphs:
    """Capture ``calls`` calls after a few warm-up calls, on a stream of their own, as torch requires.

    Raises the exception of a call that can't be captured, because it waits for the device or leaves work on
    other streams.
    """
    side, current = cuda.Stream(), cuda.current_stream()
    side.wait_stream(current)
    graphs: list[Any] = []
    output = None
    whole, rest = divmod(calls, MOST_CAPTURED_CALLS)
    # The stream is entered here, because torch does not leave its own stream after a failed capture.
    with cuda.stream(side):
        for _ in repeat(None, WARM_CALLS_BEFORE_CAPTURE):
            call(*inputs)
        for count, times in ((MOST_CAPTURED_CALLS, whole), (rest, 1)):
            if count and times:
                graph = cuda.CUDAGraph()
                with cuda.graph(graph, stream=side):
                    for _ in repeat(None, count):
                        output = call(*inputs)
                graphs += [graph] * times
    current.wait_stream(side)
    start = now_ns()
    for graph in graphs:
        # The first replay also copies the graph to the device.
        graph.replay()
    launch_ns = (now_ns() - start) / len(graphs)
    cuda.synchronize()
    return CallGraphs(tuple(graphs), output, launch_ns)


LOOKED_AT_CALLS = 8
LOOKS = 5
"""Work on other streams shows in every look; a busy host is late, or quick, in one or two of them."""

_EAGER = 0
STRAY_FROM_NS = 20_000
"""Waiting for the device so much longer than after work on one stream means work on other streams.

Waiting itself takes a host from 5 to 100 µs, and longer in some processes than in others.
"""

_FLUSHED_L2_SIZES = 2
_UNKNOWN_L2_BYTES = 128 * 2**20
_HEAD_START_NS = 20_000
_FIRST_LAUNCH_NS = 50_000
_LONGEST_HEAD_START_NS = 5_000_000
_FASTEST_CLOCK_MHZ = 3_000
"""Assumed where torch states no clock rate: a spin of so many cycles is never too short."""


def cuda_timer(*, cold: bool, captures: bool = True) -> CudaTimer:
    """Make the timer of torch's current CUDA device."""
    import torch

    def buffer(count: int) -> Callable[[], object]:
        return torch.empty(count, dtype=torch.int8, device=CUDA.name).zero_

    return CudaTimer(torch.cuda, buffer, cold=cold, captures=captures, clear=_cleared)


def _cleared(output: Any) -> Callable[[], bool] | None:
    """Fill an output with NaN; return a function that tells whether it still is. None for other outputs."""
    import torch

    if not isinstance(output, torch.Tensor) or not output.is_floating_point() or not output.numel():
        return None
    content = output.detach()
    content.fill_(float("nan"))
    return lambda: bool(content.isnan().all())


class CudaTimer:
    """A :class:`~attnbench.timing.sample.Timer` that keeps the graphs it has captured.

    cuda: ``torch.cuda``, or a stand-in. overwrite: ``overwrite(bytes)`` allocates a buffer on the device and
    returns a function that writes all of it. captures: False for calls that read memory which is made anew
    when inputs change: a replay would read the memory of before. clear: fills an output with NaN and returns
    a function that tells whether it still is; None for an output that has none. now_ns: the host's clock.
    """

    def __init__(
        self,
        cuda: Any,
        overwrite: Callable[[int], Callable[[], object]],
        *,
        cold: bool,
        captures: bool = True,
        clear: Callable[[Any], Callable[[], bool] | None] | None = None,
        now_ns: Callable[[], int] = perf_counter_ns,
    ) -> None:
        self._cuda = cuda
        self._overwrite = overwrite
        self._cold = cold
        self._captures = captures
        self._clear = clear
        self._now_ns = now_ns
        self._launch_ns: dict[int, float] = {}
        self._can_tell_clock = True
        self._of: tuple[Any, ...] = ()
        self._uses = 0
        self._strays = False
        self._wait_ns = 0
        self._captured: dict[int, CallGraphs] = {}
        self.refused = ""
        """The reason why the calls can't be captured; "" where they can."""

    @property
    def mode(self) -> DeviceMode:
        """``cold``, ``batch``, or ``launches`` where nothing was captured."""
        if self._cold:
            return "cold"
        return "batch" if self._captured and not self.refused else "launches"

    @cached_property
    def default_clock_mhz(self) -> int:
        """The device's own clock rate; 0 where torch does not state it."""
        return int(getattr(self._properties(), "clock_rate", 0)) // 1000

    @cached_property
    def _flush(self) -> Callable[[], object]:
        """A function that fills the L2 cache with other memory."""
        l2_bytes = int(getattr(self._properties(), "L2_cache_size", 0)) or _UNKNOWN_L2_BYTES
        return self._overwrite(_FLUSHED_L2_SIZES * l2_bytes)

    def __call__(self, call: Call, *inputs_and_calls: Any) -> tuple[Sample, Any]:
        """Take a sample, as :func:`~attnbench.timing.sample.take_sample`; a single call is never captured."""
        *inputs, calls = inputs_and_calls
        before = read_vitals()
        taken, output = self._take(call, tuple(inputs), calls)
        _, switches, faults = spent_since(before)
        device_ns, clock_mhz = max(1, taken.wall_ns), self._clock_mhz()
        return Sample(calls, device_ns, taken.cpu_ns, switches, faults, taken.host_ns, clock_mhz), output

    def warm(self, call: Call, *inputs_and_calls: Any) -> None:
        """Launch calls that are not timed."""
        *inputs, calls = inputs_and_calls
        for _ in repeat(None, calls):
            call(*inputs)

    def _take(self, call: Call, inputs: Inputs, calls: int) -> tuple[Sample, Any]:
        """Take a sample without switches, faults and clock."""
        self._look_at(call, inputs)
        if self._cold:
            return self._single_launches(call, inputs, calls)
        captured = self._capture(call, inputs, calls) if calls > 1 and self._captures else None
        self._cuda.synchronize()
        if captured is None:

            def launch() -> Any:
                output = None
                for _ in repeat(None, calls):
                    output = call(*inputs)
                return output

            return self._window(launch, calls, _EAGER)

        def replay() -> Any:
            for graph in captured.graphs:
                graph.replay()
            return captured.output

        return self._window(replay, len(captured.graphs), calls)

    def _single_launches(self, call: Call, inputs: Inputs, calls: int) -> tuple[Sample, Any]:
        samples, output, flush = list[Sample](), None, self._flush
        self._cuda.synchronize()
        for _ in repeat(None, calls):
            output = None
            flush()
            sample, output = self._window(lambda: call(*inputs), 1, _EAGER)
            samples.append(sample)
        return joined(samples), output

    def _look_at(self, call: Call, inputs: Inputs) -> None:
        """Forget graphs of another call or other inputs; at the second use, look for work on other streams.

        The first use is timed as it is: the first call may compile for seconds, and its time is reported.
        """
        of = (call, *inputs)
        if len(self._of) != len(of) or any(x is not y for x, y in zip(self._of, of, strict=True)):
            if self._strays or not self._of or self._of[0] is not call:
                # A call that can't be captured is not tried again on other inputs.
                self.refused = ""
            self._of, self._uses, self._strays, self._captured = of, 0, False, {}
            self._launch_ns = {_EAGER: _FIRST_LAUNCH_NS}
        self._uses += 1
        if self._uses == 2:
            self._cuda.synchronize()
            if self._ends_late(call, inputs) or self._escapes_capture(call, inputs):
                self._found_strays()

    def _found_strays(self) -> None:
        self._strays, self.refused = True, "it leaves work on other streams"

    def _ends_late(self, call: Call, inputs: Inputs) -> bool:
        """Return whether the device works on after the end of the stream that a few calls were made on.

        What waiting takes is measured beside it, after a spin on that stream.
        """
        tails_ns, waits_ns = list[int](), list[int]()
        for _ in repeat(None, LOOKS):
            self._spin(LOOKED_AT_CALLS * _FIRST_LAUNCH_NS)
            waits_ns.append(self._tail_ns(self._recorded()))
            self.warm(call, *inputs, LOOKED_AT_CALLS)
            tails_ns.append(self._tail_ns(self._recorded()))
        self._wait_ns = median_low(waits_ns)
        return median_low(tails_ns) > self._wait_ns + STRAY_FROM_NS

    def _recorded(self) -> Any:
        event = self._cuda.Event(enable_timing=True)
        event.record()
        return event

    def _escapes_capture(self, call: Call, inputs: Inputs) -> bool:
        """Return whether a replay of the captured call leaves its output as it was.

        Streams that nothing joins are not captured. Short work on them ends before its launch does, so that
        waiting for it takes no time.
        """
        if self.refused or self._clear is None or not self._captures:
            return False
        captured = self._try_capture(call, inputs, 1)
        if captured is None:
            return False
        try:
            still_cleared = self._clear(captured.output)
            if still_cleared is None:
                return False
            captured.graphs[0].replay()
            self._cuda.synchronize()
            return still_cleared()
        except Exception:
            # Any exception: some outputs can't be written.
            return False

    def _stray_ns(self, tail_ns: int) -> int:
        """Return how much of a wait for the device, after the end of the timed stream, is work."""
        if not self._strays and tail_ns > self._wait_ns + STRAY_FROM_NS:
            if self._uses == 1:
                # The first call may compile: it is not made again.
                return tail_ns
            # Work that comes only now, or a host that was late once.
            call, *inputs = self._of
            if self._ends_late(call, tuple(inputs)):
                self._found_strays()
        return tail_ns if self._strays else 0

    def _tail_ns(self, end: Any) -> int:
        """Wait for the last event, then for the whole device; return the time between them."""
        end.synchronize()
        ended = self._now_ns()
        self._cuda.synchronize()
        return self._now_ns() - ended

    def _window(self, launch: Callable[[], Any], launches: int, kind: int) -> tuple[Sample, Any]:
        """Queue work between two events and wait for it.

        kind: the calls of a sample that is captured, or ``_EAGER``. Launching a graph takes another time.
        """
        start, end = self._cuda.Event(enable_timing=True), self._cuda.Event(enable_timing=True)
        if self._strays:
            self._cuda.synchronize()
        else:
            self._spin(1.5 * self._launch_ns[kind] * launches + _HEAD_START_NS)
        cpu_start, host_start = thread_time_ns(), self._now_ns()
        start.record()
        output = launch()
        end.record()
        host_ns, cpu_ns = self._now_ns() - host_start, thread_time_ns() - cpu_start
        stray_ns = self._stray_ns(self._tail_ns(end))
        self._launch_ns[kind] = host_ns / launches
        device_ns = round(start.elapsed_time(end) * 1e6) + stray_ns
        return Sample(launches, device_ns, cpu_ns, switches=0, faults=0, host_ns=host_ns), output

    def _spin(self, ns: float) -> None:
        """Keep the device busy until the host has queued the next work, where torch can."""
        sleep = getattr(self._cuda, "_sleep", None)
        if sleep is not None:
            mhz = self.default_clock_mhz or _FASTEST_CLOCK_MHZ
            sleep(int(min(ns, _LONGEST_HEAD_START_NS) * mhz / 1000))

    def _capture(self, call: Call, inputs: Inputs, calls: int) -> CallGraphs | None:
        """Return graphs of that many calls, captured once; None where capturing failed before."""
        if calls not in self._captured and not self.refused:
            captured = self._try_capture(call, inputs, calls)
            if captured is not None:
                self._captured[calls], self._launch_ns[calls] = captured, captured.launch_ns
        return None if self.refused else self._captured[calls]

    def _try_capture(self, call: Call, inputs: Inputs, calls: int) -> CallGraphs | None:
        """Return graphs of that many calls; None, with the reason in ``refused``, where capturing fails."""
        try:
            return capture(self._cuda, call, inputs, calls, self._now_ns)
        except Exception as failure:
            # Any exception: a call that waits for the device raises its own. Launching a wrong call
            # raises it again.
            self.refused = f"{type(failure).__name__}: {failure}"
            return None

    def _clock_mhz(self) -> int:
        if not self._can_tell_clock:
            return 0
        try:
            return int(self._cuda.clock_rate())
        except Exception:
            # This needs a library and a driver. Each may be missing, with an error of its own.
            self._can_tell_clock = False
            return 0

    def _properties(self) -> Any:
        return self._cuda.get_device_properties(self._cuda.current_device())
