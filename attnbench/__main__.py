"""``python -m attnbench``, and the command ``attnbench``."""

from __future__ import annotations

import signal
import sys
import time

ENDING_S = 5.0
"""The time in which a command has ended after Ctrl-C."""


class Interrupt:
    """The handler of Ctrl-C: the first one ends the command, and further ones do not interrupt its ending.

    Where the command still runs after :data:`ENDING_S`, the next one counts again: a library may lose the
    exception while it is imported, as ``numpy.random`` does now and then, and a command must not become deaf.
    SIGTERM ends one that hangs.
    """

    def __init__(self) -> None:
        self._ended_by = 0.0

    def __call__(self, number: int, frame: object) -> None:
        """Raise KeyboardInterrupt, unless one was raised just now."""
        now = time.monotonic()
        if now >= self._ended_by:
            self._ended_by = now + ENDING_S
            raise KeyboardInterrupt


def main() -> None:
    """Run the command line and exit. Ctrl-C, also during its import, prints no traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, Interrupt())
    try:
        from attnbench.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("attnbench: interrupted\n")
        sys.exit(130)
    try:
        run()
    finally:
        # Python's own end would let the next one kill the process, with another exit status.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    if not sys.flags.safe_path:
        # ``python -m`` puts the working folder first, where a ``select.py`` would hide Python's own.
        sys.path.append(sys.path.pop(0))
    main()
