"""Locks and forced writes, which a disk may lack. A run goes on without, and says so once."""

from __future__ import annotations

import errno
import os
import sys
from functools import cache
from pathlib import Path
from typing import IO

_LACKING = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL)
"""The errors of a disk that has no such call; the others say that it failed."""


def open_lock(path: Path) -> IO[bytes]:
    """Make or open a file to lock, and leave its content alone; raises OSError, also where it is a link."""
    no_links = getattr(os, "O_NOFOLLOW", 0)
    return open(path, "ab", opener=lambda name, flags: os.open(name, flags | no_links, 0o600))


def lock(fd: int, path: Path, *, shared: bool = False, wait: bool = False) -> bool:
    """Lock an open file; return False if another process holds it and this one does not wait.

    True where nothing can be locked, as on some network disks and on Windows.
    """
    try:
        import fcntl
    except ImportError:
        return True
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(fd, kind if wait else kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as failure:
        if failure.errno not in _LACKING:
            raise
        _say_once(f"the disk of {str(path)!r} has no locks: see that no other run writes there")
    return True


def is_written(path: Path) -> bool:
    """Return whether a run holds the lock of its file, and so still goes on.

    False where nothing can be locked. For a moment the file is locked for reading.
    """
    try:
        import fcntl

        with path.open("rb") as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):
        return False
    return False


def force_to_disk(fd: int, path: Path) -> None:
    """Wait until the disk has what was written; raises OSError."""
    try:
        os.fsync(fd)
    except OSError as failure:
        if failure.errno not in _LACKING:
            raise
        _say_once(
            f"the disk of {str(path)!r} can't be forced to keep lines: if the system crashes, some are lost"
        )


@cache
def _say_once(words: str) -> None:
    print(f"attnbench: {words}", file=sys.stderr)  # noqa: T201
