"""Capturing back-to-back calls in CUDA graphs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import Any

from attnbench.timing.sample import Call
from attnbench.timing.torch_cuda import Cuda

WARM_CALLS_BEFORE_CAPTURE = 3
MOST_CAPTURED_CALLS = 1000
"""In one graph; more calls replay it several times."""


@dataclass(frozen=True)
class Captured:
    """Graphs that make the calls when they are replayed in order, and the output of the last."""

    graphs: tuple[Any, ...]
    output: Any


def capture(cuda: Cuda, call: Call, a: Any, b: Any, c: Any, calls: int) -> Captured:
    """Capture ``calls`` calls after a few that warm up, on a stream of their own as torch asks for.

    Raises whatever a call raises that can't be captured: one that waits for the device, or that leaves work
    on other streams.
    """
    side, current = cuda.Stream(), cuda.current_stream()
    side.wait_stream(current)
    graphs: list[Any] = []
    output = None
    whole, rest = divmod(calls, MOST_CAPTURED_CALLS)
    # The stream is entered here, because torch stays in its own where a capture fails.
    with cuda.stream(side):
        for _ in repeat(None, WARM_CALLS_BEFORE_CAPTURE):
            call(a, b, c)
        for count, times in ((MOST_CAPTURED_CALLS, whole), (rest, 1)):
            if count and times:
                graph = cuda.CUDAGraph()
                with cuda.graph(graph, stream=side):
                    for _ in repeat(None, count):
                        output = call(a, b, c)
                graphs += [graph] * times
    current.wait_stream(side)
    for graph in graphs:
        # The first replay also carries the graph to the device.
        graph.replay()
    cuda.synchronize()
    return Captured(tuple(graphs), output)
