"""Writing a new folder: all of it or nothing."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

from attnbench.types.errors import BadInput


def write_folder(folder: Path, files: Mapping[str, str]) -> None:
    """Write texts, by path within it, as a new folder. However it ends, there is all of it or nothing.

    They're written beside it under a name that nobody knows and then given the folder's in one step.

    Raises:
        BadInput: something of that name is there, which stays as it is; or there is no folder to put it in.
        OSError: the machine doesn't let it, as where the disk is full.
    """
    if os.path.lexists(folder):
        raise BadInput(f"{str(folder)!r} is there already, and stays as it is; choose another name or --into")
    if not folder.parent.is_dir():
        raise BadInput(f"--into {str(folder.parent)!r}: no such folder; make it first")
    unfinished = folder.parent / f".{folder.name}-{secrets.token_hex(4)}"
    try:
        for name, text in files.items():
            path = unfinished / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        # A folder with something in it, or a file, that came in between makes this fail.
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
