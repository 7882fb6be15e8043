"""The server: a process with torch loaded and nothing else, from which templates are forked.

Started by the parent as ``python -m attnbench.worker.server DESCRIPTOR THREADS PARENT``.
"""

from __future__ import annotations

import gc
import socket
import sys

from attnbench.worker.huge_pages import collapse_memory
from attnbench.worker.not_from import keep_off_other_code
from attnbench.worker.process import die_with_parent, leave_terminal, live_by_line, silence
from attnbench.worker.serve import serve


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
