"""What plugins are asked and how long they take, said on stderr where somebody wants to know."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

TRACE = "ATTNBENCH_TRACE_PLUGINS"
"""The variable of the environment that has imports and calls of hooks told on stderr."""


@contextmanager
def traced(what: str) -> Iterator[None]:
    """Tell what is done and how many milliseconds it took, where that is asked for."""
    if not os.environ.get(TRACE):
        yield
        return
    start, ended = time.perf_counter(), "raised"
    try:
        yield
        ended = "done"
    finally:
        ms = 1e3 * (time.perf_counter() - start)
        print(f"attnbench: trace: {what}: {ended} after {ms:.1f} ms", file=sys.stderr)  # noqa: T201
