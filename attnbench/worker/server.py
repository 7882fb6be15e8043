"""The preloaded server: a process with torch loaded, from which workers are forked."""

from __future__ import annotations

import ctypes
import gc
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from attnbench.ipc.process import die_with_parent, keep_off_other_code, leave_terminal, live_by_line, silence
from attnbench.worker.serve import serve

HUGE_BYTES = 2 * 1024 * 1024

_MADV_COLLAPSE = 25
_PRIVATE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw-p 0+ 00:00 0 *(\[heap\])?")


def collapse_memory() -> int:
    """Put the anonymous memory of this process into huge pages; return how many there are of it now.

    A process that has torch loaded holds some 140 MiB in 35,000 small pages, each of which is looked at when
    it is forked and again when the fork ends: most of what a fork costs. Linux has this since 6.1
    (MADV_COLLAPSE in madvise(2)); elsewhere nothing happens.
    """
    madvise = getattr(ctypes.CDLL(None), "madvise", None)
    if madvise is None:
        return 0
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return sum(madvise(start, HUGE_BYTES, _MADV_COLLAPSE) == 0 for start in _aligned())


def _aligned() -> Iterator[int]:
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        found = _PRIVATE.fullmatch(line.strip())
        if found is not None:
            start, end = int(found[1], 16), int(found[2], 16)
            yield from range(-(-start // HUGE_BYTES) * HUGE_BYTES, end - HUGE_BYTES + 1, HUGE_BYTES)


def main(argv: list[str]) -> None:
    """Load torch, then serve on the descriptor."""
    descriptor, threads, parent = (int(word) for word in argv)
    die_with_parent(parent)
    leave_terminal()
    keep_off_other_code()
    import torch

    torch.set_num_threads(threads)
    torch.set_num_interop_threads(threads)
    # The forward pass builds no graph in any worker; entered once, so that no call pays for it. The mode
    # ends when nothing holds its guard any more: this frame does, in every fork.
    with torch.inference_mode():
        silence()
        live_by_line()
        gc.collect()
        gc.freeze()
        collapse_memory()
        serve(socket.socket(fileno=descriptor))


if __name__ == "__main__":
    main(sys.argv[1:])
