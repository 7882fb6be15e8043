"""``python -m attnbench``."""

from __future__ import annotations

from attnbench.cli import main

if __name__ == "__main__":
    main()
