"""Runs of several files in one: whole runs, one after the other, each with its own manifest."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from attnbench.runner.run_file import StoredRun, check_new, read_runs
from attnbench.types.errors import BadFile, BadInput


@dataclass(frozen=True)
class Merged:
    """What was merged. runs: those in the new file, in its order. notes: what else to know, in sentences."""

    path: Path
    runs: tuple[StoredRun, ...]
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
    kept: dict[str, _Part] = {}
    for path in paths:
        for part in _parts(path):
            if part.run.torn:
                notes.append(f"{path}: its last line was cut off and is left out")
            name = part.run.manifest.run_id
            if name in kept:
                part, note = _one_of(kept[name], part)
                notes.append(note)
            kept[name] = part
    parts = sorted(kept.values(), key=lambda part: part.run.manifest.started)
    _write(out, (part.data for part in parts))
    return Merged(out, tuple(part.run for part in parts), tuple(notes))


@dataclass(frozen=True)
class _Part:
    run: StoredRun
    data: bytes


def _parts(path: Path) -> list[_Part]:
    runs = read_runs(path)
    try:
        data = path.read_bytes()
    except OSError as failure:
        raise BadFile(f"can't read {str(path)!r}: {failure.strerror}") from failure
    return [_Part(run, data[run.first_byte : run.complete_bytes]) for run in runs]


def _one_of(here: _Part, again: _Part) -> tuple[_Part, str]:
    """The longer of two copies of a run, and what to say of it."""
    shorter, longer = sorted((here, again), key=lambda part: len(part.data))
    name = here.run.manifest.run_id
    if not longer.data.startswith(shorter.data):
        raise BadFile(
            f"{str(here.run.path)!r} and {str(again.run.path)!r} hold the run {name!r} both, but not alike: "
            "one of them was changed, or it was gone on with twice; name the one to keep"
        )
    if len(longer.data) == len(shorter.data):
        return here, f"{again.run.path}: the run {name} stands in {here.run.path} already, and is kept once"
    further = f"goes further here than in {shorter.run.path}"
    return longer, f"{longer.run.path}: the run {name} {further}, and is kept once"


def _write(out: Path, parts: Iterable[bytes]) -> None:
    """Write a file that is there as a whole or not at all, and never in place of another."""
    try:
        fd, name = tempfile.mkstemp(prefix=f".{out.name}.", dir=out.parent)
    except OSError as failure:
        raise BadInput(f"can't write into {str(out.parent)!r}: {failure.strerror}") from failure
    whole = Path(name)
    try:
        with os.fdopen(fd, "wb") as file:
            for data in parts:
                file.write(data)
            file.flush()
            os.fsync(file.fileno())
        whole.chmod(0o644)
        _put(whole, out)
        _force_folder(out.parent)
    except FileExistsError as failure:
        raise BadInput(f"{str(out)!r} exists; name another file") from failure
    except OSError as failure:
        raise BadInput(f"can't write {str(out)!r}: {failure.strerror}") from failure
    finally:
        whole.unlink(missing_ok=True)


def _put(whole: Path, out: Path) -> None:
    """Give a file its name, which nothing else may have: a rename would take it away from another file."""
    try:
        os.link(whole, out)
    except FileExistsError:
        raise
    except OSError:
        # A file system that knows one name for each file.
        if out.exists():
            raise FileExistsError(out) from None
        whole.rename(out)


def _force_folder(folder: Path) -> None:
    """Force the names in a folder to disk."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
