"""``python -m attnbench``, and the command ``attnbench``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit. Ctrl-C during its import prints no traceback."""
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
