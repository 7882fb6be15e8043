"""Put runs of several files into one, which is there as a whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from attnbench.results.disk import force_to_disk
from attnbench.results.format import StoredRun, check_new, check_writable, is_there, make_folder, read_runs
from attnbench.types.errors import BadFile, BadInput


def check_place(path: Path) -> None:
    """Raise :class:`BadInput` where no file can be written, or where something else than a file is."""
    if path.is_dir():
        raise BadInput(f"{str(path)!r} is a folder: name a file to write")
    check_writable(path.parent)
    if path.exists() and not path.is_file():
        raise BadInput(f"{str(path)!r} is not a regular file: name a file to write")


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


def check_own(path: Path, first_line: str, command: str) -> None:
    """Raise :class:`BadInput` if a path is taken by something that a command did not write.

    first_line: of every file that the command writes.
    """
    if path.is_file():
        with path.open(encoding="utf-8", errors="replace") as file:
            if file.readline() == first_line:
                return
    if path.exists():
        raise BadInput(f"--out {path}: {command} did not write this file: name another one")


_PIECE_BYTES = 2**20


@dataclass(frozen=True)
class Merged:
    """The result of a merge. runs: in the order of the new file, without samples. notes: sentences."""

    path: Path
    runs: tuple[StoredRun, ...]
    notes: tuple[str, ...]


def merge(paths: Sequence[Path], out: Path) -> Merged:
    """Write the runs of files, merged ones too, into a new file, the oldest first.

    Lines are copied as they are. Of copies of one run the longest is kept, once. An incomplete line at the
    end of a file is left out. The new file is there as a whole or not at all.

    Raises:
        BadFile: a file cannot be read, or two copies of a run differ. BadInput: the new file exists or cannot
            be written.
    """
    if is_there(out):
        raise BadInput(f"{str(out)!r} exists; name another file")
    check_new(out)
    notes: list[str] = []
    kept: dict[str, StoredRun] = {}
    for path in paths:
        for run in read_runs(path, samples=False):
            name = run.manifest.run_id
            if run.torn:
                notes.append(f"{path}: its last line was cut off and is left out")
            if name in kept:
                kept[name], note = _longer(kept[name], run)
                notes.append(note)
            else:
                kept[name] = run
    runs = tuple(sorted(kept.values(), key=lambda run: run.manifest.started))
    make_folder(out)
    with whole_file(out) as file:
        for run in runs:
            file.writelines(_pieces(run))
    return Merged(out, runs, tuple(notes))


def _pieces(run: StoredRun) -> Iterator[bytes]:
    """The lines of a run as they stand in its file, in pieces: a run may be a gigabyte."""
    with run.path.open("rb") as file:
        file.seek(run.first_byte)
        for left in range(_size_bytes(run), 0, -_PIECE_BYTES):
            yield file.read(min(left, _PIECE_BYTES))


def _size_bytes(run: StoredRun) -> int:
    return run.complete_bytes - run.first_byte


def _longer(here: StoredRun, again: StoredRun) -> tuple[StoredRun, str]:
    """The longer of two copies of a run, and a note on it."""
    shorter, longer = sorted((here, again), key=_size_bytes)
    name = here.manifest.run_id
    # Pieces of both begin at the same places, except after the last piece of the shorter run.
    both = zip(_pieces(shorter), _pieces(longer), strict=False)
    if not all(long.startswith(short) for short, long in both):
        raise BadFile(
            f"{str(here.path)!r} and {str(again.path)!r} hold different copies of the run {name!r}: "
            "one was changed, or both were resumed; name only the one to keep"
        )
    if _size_bytes(longer) == _size_bytes(shorter):
        return here, f"{again.path}: the run {name} is also in {here.path}, and is kept once"
    return longer, f"{longer.path}: the run {name} is longer here than in {shorter.path}, and is kept once"
