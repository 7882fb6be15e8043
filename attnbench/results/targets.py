"""Files that commands write besides runs: which of them may be replaced, and that they are whole."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from attnbench.results.disk import force_to_disk
from attnbench.types.errors import BadInput

_HEAD_BYTES = 1000


@dataclass(frozen=True)
class FileKind:
    """A kind of file. what: it in words, with an article. mark: stands near the beginning of each."""

    what: str
    mark: bytes

    def wrote(self, head: bytes) -> bool:
        """Return whether attnbench wrote a file that begins so; an empty one may be replaced too."""
        return not head or self.mark in head


def check_target(path: Path, kind: FileKind, *, force: bool = False, otherwise: str = "--force") -> None:
    """Raise :class:`BadInput` if a file can't be written, or is there and attnbench did not write this kind.

    Every command that writes a file calls it before it works. force: replace any file. otherwise: the words
    by which a user asks for that; "" if there are none.
    """
    check_place(path)
    if force or not path.exists():
        return
    try:
        with path.open("rb") as file:
            ours = kind.wrote(file.read(_HEAD_BYTES))
    except OSError as failure:
        raise BadInput(f"can't read {str(path)!r}, which is to be replaced: {failure.strerror}") from failure
    if not ours:
        replace = f", or replace it with {otherwise}" if otherwise else ""
        raise BadInput(
            f"{str(path)!r} exists and is not {kind.what} that attnbench wrote: name another file{replace}"
        )


def check_place(path: Path) -> None:
    """Raise :class:`BadInput` where no file can be written, or where something else than a file is."""
    if path.is_dir():
        raise BadInput(f"{str(path)!r} is a folder: name a file to write")
    check_writable(path.parent)
    if path.exists() and not path.is_file():
        raise BadInput(f"{str(path)!r} is not a regular file: name a file to write")


def check_writable(folder: Path) -> None:
    """Raise :class:`BadInput` if files cannot be made in a folder."""
    if not folder.is_dir():
        raise BadInput(f"there is no folder {str(folder)!r}; make it, or name another file")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise BadInput(f"can't write into the folder {str(folder)!r}: it is not writable")


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing under a name of its own; it gets its real name when the block ends.

    It replaces a file of that name, or the one that a link of that name leads to.

    Raises:
        BadInput: as :func:`check_place`, or where writing fails, as on a full disk.
    """
    check_place(path)
    real = Path(os.path.realpath(path))
    unfinished = real.parent / f".{path.name}.{secrets.token_hex(4)}"
    try:
        # Opened as any file, so that the user's umask decides on its permissions.
        with unfinished.open("xb") as file:
            yield file
            file.flush()
            force_to_disk(file.fileno(), path)
        unfinished.replace(real)
    except OSError as failure:
        raise BadInput(f"can't write {str(path)!r}: {failure.strerror}") from failure
    finally:
        unfinished.unlink(missing_ok=True)


def write_files(contents: Mapping[Path, bytes]) -> None:
    """Write files, all of them or none; raises :class:`BadInput` with the one that can't be written."""
    with ExitStack() as stack:
        for path, content in contents.items():
            file = stack.enter_context(whole_file(path))
            file.write(content)
            # A full disk is seen here, before any file has its real name.
            file.flush()
