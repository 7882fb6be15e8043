"""Writing a file that is there as a whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from attnbench.types.errors import BadInput


@contextmanager
def whole_file(path: Path, *, replaces: bool) -> Iterator[IO[bytes]]:
    """A file to write to, which gets its name when the block has ended; until then it has none that is known.

    replaces: whether it takes the place of a file of that name, which else stays.

    Raises:
        BadInput: there is such a file, or the machine doesn't let it, as where the disk is full.
    """
    unfinished = path.parent / f".{path.name}.{secrets.token_hex(4)}"
    try:
        # Opened as any file, so that the user's umask says who may read it.
        with unfinished.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if replaces:
            unfinished.replace(path)
        else:
            _name(unfinished, path)
        _force_names(path.parent)
    except FileExistsError as failure:
        raise BadInput(f"{str(path)!r} exists; name another file") from failure
    except OSError as failure:
        raise BadInput(f"can't write {str(path)!r}: {failure.strerror}") from failure
    finally:
        unfinished.unlink(missing_ok=True)


def _name(unfinished: Path, path: Path) -> None:
    """Give a file its name, which nothing else may have: a rename would take it away from another file."""
    try:
        os.link(unfinished, path)
    except FileExistsError:
        raise
    except OSError:
        # A file system that knows one name for each file.
        if path.exists():
            raise FileExistsError(path) from None
        unfinished.rename(path)


def _force_names(folder: Path) -> None:
    """Force the names in a folder to disk."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
