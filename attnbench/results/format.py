"""The run file: one record a line, forced to disk, so that a killed run loses nothing."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from attnbench.types.errors import BadFile, BadInput, MeasuringFailed, go_on_words
from attnbench.types.record import FORMAT_VERSION, Block, CaseLine, EndLine, Line, Manifest, Record, SetLine

NOT_DECODED = (ValueError, RecursionError)
"""What msgspec raises for bytes that aren't what was asked for: its own errors, and that of bytes which are
no UTF-8, are ``ValueError``; lists within lists without end are the other."""


def manifest_of(path: Path, line: bytes) -> Manifest:
    """The manifest that the first line of a run is.

    Raises:
        BadFile: it is none, of a format that isn't known here, or damaged.
    """
    try:
        head = msgspec.json.decode(line)
    except NOT_DECODED as failure:
        raise BadFile(f"{str(path)!r} is no run of attnbench: its first line is no JSON") from failure
    if not isinstance(head, dict) or head.get("kind") != "manifest" or type(head.get("format")) is not int:
        raise BadFile(f"{str(path)!r} is no run of attnbench: its first line is no manifest")
    if head["format"] < 1:
        raise BadFile(f"{str(path)!r} is no run of attnbench: there is no format {head['format']}")
    if head["format"] > FORMAT_VERSION:
        raise BadFile(
            f"{str(path)!r} has format {head['format']}; this attnbench reads up to {FORMAT_VERSION}: "
            "install a newer attnbench"
        )
    try:
        return msgspec.convert(head, Manifest)
    except msgspec.ValidationError as failure:
        raise BadFile(f"{str(path)!r}: its manifest is damaged ({failure})") from failure


_ENCODE = msgspec.json.Encoder().encode
_DECODE = msgspec.json.Decoder(Line).decode


@dataclass(frozen=True)
class StoredRun:
    """What a run file holds, or one of the runs in it.

    torn: whether the file's last line, which is of this run, was cut off (and left out). complete_bytes:
    where its last complete line ends. first_byte: where its manifest begins, 0 but in a file of several.
    """

    path: Path
    manifest: Manifest
    cases: tuple[CaseLine, ...]
    sets: tuple[SetLine, ...]
    records: tuple[Record, ...]
    finished: EndLine | None
    torn: bool
    complete_bytes: int
    first_byte: int = 0


def read_run(path: Path) -> StoredRun:
    """Read the file of one run; a torn last line is left out.

    Raises:
        BadFile: missing, unreadable, not ours, of a newer format, damaged elsewhere than at its end, or one
            that holds several runs.
    """
    first, *others = read_runs(path)
    if others:
        raise BadFile(
            f"{str(path)!r} holds {1 + len(others)} runs, as attnbench merge writes them: attnbench report, "
            "compare and history read it; what goes on with a run needs the file of that one alone"
        )
    return first


def read_runs(path: Path) -> list[StoredRun]:
    """Read the runs of a file, which each begin with a manifest, in their order; mostly it is one.

    Raises:
        BadFile: as :func:`read_run`, but for several runs; and where one stands there twice.
    """
    try:
        if path.exists() and not path.is_file():
            raise BadFile(f"{str(path)!r} is no run of attnbench: it is no file")
        data = path.read_bytes()
    except OSError as failure:
        raise BadFile(f"can't read {str(path)!r}: {failure.strerror}") from failure
    return _parse(path, data)


def _parse(path: Path, data: bytes) -> list[StoredRun]:
    complete = data.rfind(b"\n") + 1
    lines = data[:complete].splitlines(keepends=True)
    if not lines:
        raise BadFile(f"{str(path)!r} is no run of attnbench: it holds no complete line")
    begins = [0, *(place for place, line in enumerate(lines) if place and is_of_kind(line, "manifest"))]
    runs: list[StoredRun] = []
    for begin, end in pairwise([*begins, len(lines)]):
        byte = runs[-1].complete_bytes if runs else 0
        run = _one_run(path, lines[begin:end], begin, byte)
        if any(run.manifest.run_id == other.manifest.run_id for other in runs):
            twice = f"a second manifest of the run {run.manifest.run_id!r}, which would count twice"
            raise BadFile(f"{str(path)!r}, line {begin + 1}: {twice}")
        runs.append(run)
    runs[-1] = replace(runs[-1], torn=complete < len(data))
    return runs


def is_of_kind(line: bytes, kind: str) -> bool:
    """Whether a line of a file is of a kind (``manifest``, ``end``), without decoding what else is in it."""
    # Most lines are samples: only where the word stands at all is it worth looking what it says.
    if f'"{kind}"'.encode() not in line:
        return False
    try:
        return msgspec.json.decode(line, type=_Kind).kind == kind
    except NOT_DECODED:
        return False


class _Kind(msgspec.Struct):
    kind: str = ""


def _one_run(path: Path, lines: Sequence[bytes], before: int, first_byte: int) -> StoredRun:
    """The run of some lines of a file, of which ``before`` lines come before."""
    manifest = manifest_of(path, lines[0])
    rest: list[Any] = []
    seen: set[tuple[str, str]] = set()
    for number, line in enumerate(lines[1:], start=before + 2):
        try:
            rest.append(_DECODE(line))
        except NOT_DECODED as failure:
            raise BadFile(f"{str(path)!r}, line {number}: damaged ({failure})") from failure
        wrong = _misplaced(rest[-1], manifest, seen)
        if wrong:
            raise BadFile(f"{str(path)!r}, line {number}: {wrong}")
    return _run_of(path, manifest, rest, first_byte, first_byte + sum(map(len, lines)))


def _run_of(
    path: Path, manifest: Manifest, lines: Sequence[Any], first_byte: int, complete_bytes: int
) -> StoredRun:
    return StoredRun(
        path=path,
        manifest=manifest,
        cases=tuple(line for line in lines if isinstance(line, CaseLine)),
        sets=tuple(line for line in lines if isinstance(line, SetLine)),
        records=tuple(line for line in lines if isinstance(line, Record)),
        finished=lines[-1] if lines and isinstance(lines[-1], EndLine) else None,
        torn=False,
        complete_bytes=complete_bytes,
        first_byte=first_byte,
    )


def _misplaced(line: Line, manifest: Manifest, seen: set[tuple[str, str]]) -> str:
    """What is wrong with a line where it stands, in words; "" for nothing. Remembers what it has seen."""
    if isinstance(line, Manifest | EndLine):
        return ""
    if line.case not in manifest.cases:
        return f"a case that the manifest doesn't name, {line.case!r}"
    if isinstance(line, CaseLine):
        return ""
    what = f"the set {line.index}" if isinstance(line, SetLine) else line.backend
    if isinstance(line, Record) and line.backend not in manifest.backends:
        return f"a backend that the manifest doesn't name, {line.backend!r}"
    if (line.case, what) in seen:
        return f"{what} of {line.case!r} stands here a second time"
    seen.add((line.case, what))
    if isinstance(line, Record):
        return "" if is_possible(line) else "a record with an impossible time, ratio or p-value"
    if line.index < 0:
        return f"a set with the number {line.index}"
    if not all(_sound(b) for blocks in line.blocks.values() for b in blocks):
        return "a block without samples, or with impossible ones"
    return ""


def is_possible(record: Record) -> bool:
    """Whether the times and ratios of a record are above 0, and what is a share is one."""
    times = (record.median_ms, record.low_ms, record.high_ms)
    ratios = (record.ratio, record.ratio_low, record.ratio_high, record.ratio_to_best)
    shares = (record.p_value, record.delta)
    return all(value is None or value > 0 for value in (*times, *ratios)) and all(
        value is None or 0 <= value <= 1 for value in shares
    )


def _sound(block: Block) -> bool:
    columns = (block.turns, block.cpu_ns, block.switches, block.faults, block.asked_ns)
    whole = all(len(column) == len(block.wall_ns) for column in columns)
    return block.calls >= 1 and bool(block.wall_ns) and min(block.wall_ns) > 0 and whole


class RunWriter:
    """A run file that is being written; one writer at a time.

    Each line is one write, followed by fsync. The lines stay in memory too: see :attr:`run`.
    """

    def __init__(self, path: Path, fd: int, manifest: Manifest) -> None:
        self.path = path
        self._fd = fd
        self._manifest = manifest
        self._lines: list[Line] = []
        self._bytes = 0

    @classmethod
    def create(cls, path: Path, manifest: Manifest) -> RunWriter:
        """Begin a new file; raises :class:`BadInput` where it exists or can't be written."""
        check_new(path)
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        except OSError as failure:
            raise BadInput(f"can't write {str(path)!r}: {failure.strerror}") from failure
        writer = cls(path, fd, manifest)
        writer._lock()
        writer.append(manifest)
        return writer

    @classmethod
    def reopen(cls, path: Path) -> tuple[RunWriter, StoredRun]:
        """Go on with a file, cutting a torn last line; gives what it holds.

        Raises:
            BadFile: as :func:`read_run`. BadInput: it can't be written, or another run is writing it.
        """
        manifest = read_run(path).manifest
        try:
            fd = os.open(path, os.O_RDWR | os.O_APPEND)
        except OSError as failure:
            raise BadInput(f"can't write {str(path)!r}: {failure.strerror}") from failure
        writer = cls(path, fd, manifest)
        writer._lock()
        # Read again under the lock: another run may have gone on with it meanwhile.
        try:
            stored = read_run(path)
        except BadFile:
            writer.close()
            raise
        os.ftruncate(fd, stored.complete_bytes)
        writer._lines = [*stored.cases, *stored.sets, *stored.records]
        writer._bytes = stored.complete_bytes
        return writer, stored

    @property
    def run(self) -> StoredRun:
        """What the file holds by now."""
        return _run_of(self.path, self._manifest, self._lines, 0, self._bytes)

    def append(self, line: Line) -> None:
        """Write one line and force it to disk; raises :class:`MeasuringFailed` where that fails."""
        data = _ENCODE(line) + b"\n"
        try:
            written = os.write(self._fd, data)
            if written != len(data):
                raise OSError(28, "No space left on device")
            os.fsync(self._fd)
        except OSError as failure:
            raise MeasuringFailed(
                f"can't write {str(self.path)!r}: {failure.strerror}; what was measured before is kept, "
                f"{go_on_words(self.path, live=bool(self._manifest.sides))}"
            ) from failure
        self._bytes += len(data)
        if not isinstance(line, Manifest):
            self._lines.append(line)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as busy:
            os.close(self._fd)
            raise BadInput(f"{str(self.path)!r} is being written by another run") from busy

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def check_new(path: Path) -> None:
    """Make the folder of a new run file; raises :class:`BadInput` where the file can't be made there."""
    folder = path.parent
    if path.is_dir():
        raise BadInput(f"{str(path)!r} is a folder; a name ending in .jsonl is the file itself")
    if path.exists() or path.is_symlink():
        raise BadInput(f"{str(path)!r} exists; go on with it by --resume, or name another file")
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{str(folder)!r} is no folder; give a folder, or a file whose name ends in .jsonl")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as failure:
        raise BadInput(f"can't make the folder {str(folder)!r}: {failure.strerror}") from failure
    if not os.access(folder, os.W_OK | os.X_OK):
        raise BadInput(f"can't write into the folder {str(folder)!r}: it is not writable")


def new_run_path(out: Path, run_id: str) -> Path:
    """The file of a new run: ``out`` itself where it ends in .jsonl, else a new name in that folder."""
    return out if out.suffix == ".jsonl" else out / f"{run_id}.jsonl"


def expand(paths: Sequence[Path]) -> list[Path]:
    """Files, and for folders the .jsonl files in them, each once; raises :class:`BadFile` where none are."""
    found: dict[Path, Path] = {}
    for path in paths:
        if path.is_dir():
            inside = sorted(path.glob("*.jsonl"))
            if not inside:
                raise BadFile(f"the folder {str(path)!r} holds no run (*.jsonl)")
        else:
            inside = [path]
        found |= {file.resolve(): file for file in inside if file.resolve() not in found}
    return list(found.values())
