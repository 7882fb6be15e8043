"""Put runs of several files into one, which is there as a whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from attnbench.results.format import StoredRun, check_new, is_there, make_folder, read_runs
from attnbench.results.targets import whole_file
from attnbench.types.errors import BadFile, BadInput

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
