"""The preloaded server: a process with torch loaded, from which workers are forked."""

from __future__ import annotations

import ctypes
import gc
import re
import socket
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from attnbench import __version__, kit
from attnbench.ipc.process import die_with_parent, leave_terminal, live_by_line, set_import_path, silence
from attnbench.plugins.code import attnbench_code
from attnbench.types.extensions import Source
from attnbench.worker.prepared import CODE, loaded_here
from attnbench.worker.serve import serve
from attnbench.worker.state import put_back_after_preparation, read_state

HUGE_BYTES = 2 * 1024 * 1024

_MADV_COLLAPSE = 25
_PRIVATE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw-p 0+ 00:00 0 *(\[heap\])?")


def collapse_memory() -> int:
    """Put the anonymous memory of this process into huge pages; return how many there are of it now.

    A process that has torch loaded holds some 140 MiB in 35,000 small pages. The kernel visits each when the
    process is forked and when the fork ends, which is most of the cost of a fork. Linux can do this since 6.1
    (MADV_COLLAPSE in madvise(2)); elsewhere nothing happens.
    """
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return sum(madvise(start, HUGE_BYTES, _MADV_COLLAPSE) == 0 for start in _aligned())


def _aligned() -> Iterator[int]:
    for line in Path("/proc/self/maps").read_text().splitlines():
        found = _PRIVATE.fullmatch(line.strip())
        if found is not None:
            start, end = int(found[1], 16), int(found[2], 16)
            yield from range(-(-start // HUGE_BYTES) * HUGE_BYTES, end - HUGE_BYTES + 1, HUGE_BYTES)


def load_what_backends_share() -> None:
    """Import attnbench's operations, rules, storages, encodings and kit, the same for every backend."""
    for name in ("operations", "rules", "storages", "encodings"):
        loaded_here(Source(name, f"attnbench.{name}", "attnbench", __version__))
    for module in iter_modules(kit.__path__, f"{kit.__name__}."):
        import_module(module.name)


def main(argv: list[str]) -> None:
    """Load torch and what all workers need, then serve on the descriptor."""
    descriptor, threads, parent = (int(word) for word in argv)
    die_with_parent(parent)
    leave_terminal()
    set_import_path()
    import torch

    load_what_backends_share()
    # Once for all forks, which state it.
    attnbench_code()
    torch.set_num_threads(threads)
    torch.set_num_interop_threads(threads)
    # No worker builds a graph in a forward pass. The mode is entered once, so that no call pays for it, and
    # lasts as long as this frame, in every fork.
    with torch.inference_mode():
        # The first time takes 15 ms, which each worker would take again.
        put_back_after_preparation(read_state())
        silence()
        live_by_line()
        CODE.watch()
        gc.collect()
        gc.freeze()
        collapse_memory()
        serve(socket.socket(fileno=descriptor))


if __name__ == "__main__":
    main(sys.argv[1:])
