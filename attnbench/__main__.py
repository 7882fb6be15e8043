"""``python -m attnbench``, and the command ``attnbench``."""

from __future__ import annotations

import signal
import sys
from typing import NoReturn


def _interrupt_once(number: int, frame: object) -> NoReturn:
    """End the command at the first Ctrl-C, and ignore further ones: they would interrupt its ending.

    Ending takes seconds at most. SIGTERM ends a command that hangs there.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line and exit. Ctrl-C, also during its import, prints no traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt_once)
    try:
        from attnbench.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("attnbench: interrupted\n")
        sys.exit(130)
    run()


if __name__ == "__main__":
    if not sys.flags.safe_path:
        # ``python -m`` puts the working folder first, where a ``select.py`` would hide Python's own.
        sys.path.append(sys.path.pop(0))
    main()
