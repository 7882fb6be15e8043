"""Put runs of several files into one, which is there as a whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from attnbench.results.format import check_new, read_runs
from attnbench.types.errors import BadFile, BadInput


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


_AT_ONCE = 2**20
"""Bytes of a run that are copied, or compared, at a time."""


@dataclass(frozen=True)
class MergedRun:
    """A run that was merged: where its lines were taken from, and what is said of it.

    first_byte, end_byte: which part of that file it is. machine: its CPU. records: how many it has. finished:
    whether it went to its end.
    """

    path: Path
    first_byte: int
    end_byte: int
    run_id: str
    started: str
    machine: str
    records: int
    finished: bool

    @property
    def size_bytes(self) -> int:
        """What its lines take."""
        return self.end_byte - self.first_byte

    def pieces(self) -> Iterator[bytes]:
        """Its lines as they stand in the file, some at a time: a run may be a gigabyte."""
        with self.path.open("rb") as file:
            file.seek(self.first_byte)
            for left in range(self.size_bytes, 0, -_AT_ONCE):
                yield file.read(min(left, _AT_ONCE))


@dataclass(frozen=True)
class Merged:
    """What was merged. runs: those in the new file, in its order. notes: what else to know, in sentences."""

    path: Path
    runs: tuple[MergedRun, ...]
    notes: tuple[str, ...]


def merge(paths: Sequence[Path], out: Path) -> Merged:
    """Write the runs of files, or of files that were merged before, into a new one, oldest first.

    Lines are copied as they are. A run that stands in several files is written once; of one that went on in
    one of them, the longer. A line that was cut off at the end of a file is left out. The new file is
    there as a whole or not at all.

    Raises:
        BadFile: a file that can't be read, or two copies of a run that went on differently. BadInput: the new
            file exists, or can't be written.
    """
    if out.exists() or out.is_symlink():
        raise BadInput(f"{str(out)!r} exists; name another file")
    check_new(out)
    notes: list[str] = []
    kept: dict[str, MergedRun] = {}
    for path in paths:
        found, torn = _runs_of(path)
        if torn:
            notes.append(f"{path}: its last line was cut off and is left out")
        for run in found:
            if run.run_id in kept:
                run, note = _one_of(kept[run.run_id], run)
                notes.append(note)
            kept[run.run_id] = run
    runs = tuple(sorted(kept.values(), key=lambda run: run.started))
    with whole_file(out, replaces=False) as file:
        for run in runs:
            file.writelines(run.pieces())
    return Merged(out, runs, tuple(notes))


def _runs_of(path: Path) -> tuple[list[MergedRun], bool]:
    """The runs of a file, and whether its last line was cut off."""
    runs = read_runs(path)
    found = [
        MergedRun(
            path,
            run.first_byte,
            run.complete_bytes,
            run.manifest.run_id,
            run.manifest.started,
            str(run.manifest.environment.get("cpu")),
            len(run.records),
            run.finished is not None,
        )
        for run in runs
    ]
    return found, runs[-1].torn


def _one_of(here: MergedRun, again: MergedRun) -> tuple[MergedRun, str]:
    """The longer of two copies of a run, and what to say of it."""
    shorter, longer = sorted((here, again), key=lambda run: run.size_bytes)
    name = here.run_id
    # Pieces of both begin at the same places, but for the last of the shorter one.
    both = zip(shorter.pieces(), longer.pieces(), strict=False)
    if not all(long.startswith(short) for short, long in both):
        raise BadFile(
            f"{str(here.path)!r} and {str(again.path)!r} hold the run {name!r} both, but not alike: "
            "one of them was changed, or it was gone on with twice; name the one to keep"
        )
    if longer.size_bytes == shorter.size_bytes:
        return here, f"{again.path}: the run {name} stands in {here.path} already, and is kept once"
    return longer, f"{longer.path}: the run {name} goes further here than in {shorter.path}, and is kept once"
