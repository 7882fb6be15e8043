"""Code that a process must not import: the user's tree, where a side of a live comparison has another."""

from __future__ import annotations

import os
import sys
from pathlib import Path

NOT_FROM = "ATTNBENCH_NOT_FROM"
"""The variable that names the folder."""

_INSTALLED = frozenset({"site-packages", "dist-packages"})


def is_code_of(path: str | Path, tree: str | Path) -> bool:
    """Whether a file or folder is code of a tree: it lies within, and not in an environment within.

    An environment in the tree (``.venv``) holds what is installed, which is no part of what is committed.
    """
    real, top = Path(path).resolve(), Path(tree).resolve()
    return real.is_relative_to(top) and not _INSTALLED.intersection(real.relative_to(top).parts)


def forbidden() -> Path | None:
    """The folder that this process must not import from; None where there is none."""
    named = os.environ.get(NOT_FROM)
    return Path(named) if named else None


def keep_off_other_code() -> None:
    """Take the folders of that tree off the import path of this process.

    An editable install puts them there, and then what a commit doesn't have would be imported from the
    user's tree instead of missing.
    """
    tree = forbidden()
    if tree is not None:
        sys.path[:] = [entry for entry in sys.path if not is_code_of(entry or ".", tree)]
