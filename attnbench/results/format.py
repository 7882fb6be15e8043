"""The run file: one record a line, forced to disk, so that a killed run loses nothing."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import count
from pathlib import Path
from statistics import median
from typing import Annotated, Any, TypeVar

import msgspec

from attnbench.results.digest import next_digest, with_digest
from attnbench.results.disk import force_to_disk, lock
from attnbench.results.format1 import in_format_2
from attnbench.results.targets import check_writable
from attnbench.types.compared import FAR_COPY
from attnbench.types.errors import BadFile, BadInput, MeasuringFailed, go_on_words
from attnbench.types.files import parse_json
from attnbench.types.record import (
    FORMAT_VERSION,
    CaseLine,
    EndLine,
    Line,
    MachineScale,
    Manifest,
    Record,
    RepetitionLine,
    SegmentSamples,
    Shard,
)
from attnbench.types.words import printable_json, without_home

T = TypeVar("T")
_NOT_DECODED = (ValueError, RecursionError)
"""The errors of msgspec, of bytes that are not UTF-8, and of lists nested too deeply."""
_ENCODE = msgspec.json.Encoder().encode
_APPENDED = os.O_APPEND | getattr(os, "O_BINARY", 0)
"""With the same line ends on Windows."""
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)
_NEW = os.O_RDWR | os.O_CREAT | _NO_LINKS


_MANIFEST = b'{"kind":"manifest"'
"""The beginning of each file."""
_Positive = Annotated[int, msgspec.Meta(gt=0)]


class _ShortSamples(msgspec.Struct):
    """The part of the samples of a segment that makes up their median."""

    calls: _Positive
    wall_ns: Annotated[list[_Positive], msgspec.Meta(min_length=1)]


class _ShortRepetition(msgspec.Struct, tag="repetition", tag_field="kind"):
    """The part of a repetition that :class:`RepetitionTimes` are made of. Decoding it takes half the time."""

    case: str
    index: int
    samples: dict[str, list[_ShortSamples]]
    scale: MachineScale | None = None


def _is_plain(data: bytes) -> bool:
    """Return whether a line of JSON has no text that could be unprintable; most lines have none."""
    return data.isascii() and b"\\" not in data and b"\x7f" not in data


_AnyLine = Line | _ShortRepetition
_DECODE = msgspec.json.Decoder(Line).decode
_DECODE_SHORT = msgspec.json.Decoder(Manifest | CaseLine | _ShortRepetition | Record | EndLine).decode


@dataclass(frozen=True, slots=True)
class RepetitionTimes:
    """The times of one repetition in short, which is all that comparing stored runs needs.

    median_ns: for each backend with samples, the median time of a call. reference_ns: for each reference
    call of the machine, its typical time.
    """

    case: str
    index: int
    median_ns: Mapping[str, float]
    reference_ns: Mapping[str, float]


@dataclass(frozen=True)
class StoredRun:
    """The lines of a run file, or of one of the runs in it.

    torn: True if the file ends with an incomplete line, which is left out. first_byte, complete_bytes: the
    places in the file where the manifest begins and where the last complete line ends. digest: of that line,
    None if lines have none. times: the repetitions in short; they are there even if the samples were not
    kept. went_on: True if the run behind it in the file measures its cases without all records; those are
    left out here.
    """

    path: Path
    manifest: Manifest
    cases: tuple[CaseLine, ...]
    repetitions: tuple[RepetitionLine, ...]
    records: tuple[Record, ...]
    finished: EndLine | None
    torn: bool
    complete_bytes: int
    digest: str | None = ""
    first_byte: int = 0
    times: tuple[RepetitionTimes, ...] = ()
    went_on: bool = False

    @property
    def cut_off(self) -> bool:
        """True if records are missing that no later run of the file has."""
        return self.finished is None and not self.went_on

    @property
    def recorded(self) -> dict[str, set[str]]:
        """By case, the backends that have a record which is not ``interrupted``."""
        found: dict[str, set[str]] = {case: set() for case in self.manifest.cases}
        for record in self.records:
            if record.status != "interrupted":
                found[record.case].add(record.backend)
        return found


def _printable(line: T) -> T:
    """Return a line with printable texts."""
    return msgspec.convert(printable_json(msgspec.to_builtins(line)), type(line))


def _as_stored(line: T) -> tuple[T, bytes]:
    """Return a line as files hold it, and its JSON: with printable texts, and without the user's home."""
    data = _ENCODE(line)
    if not _is_plain(data):
        line = _printable(line)
        data = _ENCODE(line)
    text = data.decode()
    shared = without_home(text)
    if shared != text:
        line, data = msgspec.json.decode(shared, type=type(line)), shared.encode()
    return line, data


def stored_manifest(manifest: Manifest) -> Manifest:
    """Return a manifest as a file holds it."""
    # A command may hold file names that are not UTF-8, which can't be encoded.
    return _as_stored(_printable(manifest))[0]


class _Lines:
    """The lines of one run, gathered while they are read or written."""

    def __init__(self, path: Path, manifest: Manifest, first_byte: int = 0) -> None:
        self.path, self.manifest, self.first_byte = path, manifest, first_byte
        self.end_byte = first_byte
        self.digest: str | None = ""
        self._known_cases, self._known_backends = set(manifest.cases), set(manifest.backends)
        self._seen: set[tuple[str, str | int]] = set()
        self._lines: list[Line | RepetitionTimes] = []

    def add(self, line: _AnyLine) -> None:
        self._lines.append(_times_of(line) if isinstance(line, _ShortRepetition) else line)

    def problem(self, line: _AnyLine) -> str:
        """Say in words why a line cannot stand here; "" if it can."""
        if isinstance(line, Manifest | EndLine):
            return ""
        if line.case not in self._known_cases:
            return f"the manifest does not name the case {line.case!r}"
        if isinstance(line, CaseLine):
            return ""
        if isinstance(line, Record) and line.backend not in self._known_backends:
            return f"the manifest does not name the backend {line.backend!r}"
        key = line.case, line.backend if isinstance(line, Record) else line.index
        if key in self._seen:
            what = line.backend if isinstance(line, Record) else f"the repetition {line.index}"
            return f"a second line for {what} of {line.case!r}"
        if not isinstance(line, Record) or line.status != "interrupted":
            # A later record may stand in for an interrupted one.
            self._seen.add(key)
        if isinstance(line, RepetitionLine) and not all(
            _is_sound(one) for taken in line.samples.values() for one in taken
        ):
            return "a segment without samples, or with impossible ones"
        return ""

    def written(self) -> list[Line]:
        """The lines with all samples, the manifest first."""
        return [
            self.manifest,
            *(line for line in self._lines if not isinstance(line, Manifest | RepetitionTimes)),
        ]

    def _of(self, kind: type[T]) -> tuple[T, ...]:
        return tuple(line for line in self._lines if isinstance(line, kind))

    def run(self, *, torn: bool = False) -> StoredRun:
        repetitions = self._of(RepetitionLine)
        records = {(record.case, record.backend): record for record in self._of(Record)}
        last = self._lines[-1] if self._lines else None
        return StoredRun(
            path=self.path,
            manifest=self.manifest,
            cases=self._of(CaseLine),
            repetitions=repetitions,
            records=tuple(records.values()),
            finished=last if isinstance(last, EndLine) else None,
            torn=torn,
            complete_bytes=self.end_byte,
            digest=self.digest,
            first_byte=self.first_byte,
            times=self._of(RepetitionTimes) or tuple(map(_times_of, repetitions)),
        )


def _is_sound(taken: SegmentSamples) -> bool:
    columns = (taken.slots, taken.cpu_ns, taken.switches, taken.faults)
    even = all(len(column) == len(taken.wall_ns) for column in columns)
    return even and taken.calls > 0 and bool(taken.wall_ns) and min(taken.wall_ns) > 0


def _times_of(line: RepetitionLine | _ShortRepetition) -> RepetitionTimes:
    references: dict[str, float] = {}
    if line.scale is not None:
        # A product is repeated a few times only, so its best time is the steadier one.
        references = {f"gemm_{side}": float(min(ns)) for side, ns in line.scale.gemm_ns.items() if ns}
        if line.scale.copy_ns:
            references["copy"] = float(median(line.scale.copy_ns))
        if line.scale.empty_ns:
            references["empty"] = median(line.scale.empty_ns)
        if line.scale.far_copy_ns:
            references[FAR_COPY] = float(min(line.scale.far_copy_ns))
    medians = {name: _median_ns(taken) for name, taken in line.samples.items() if taken}
    return RepetitionTimes(line.case, line.index, medians, references)


def _median_ns(taken: Sequence[SegmentSamples | _ShortSamples]) -> float:
    """The median time of a call over the samples of a repetition."""
    if len({one.calls for one in taken}) == 1:
        return median([wall for one in taken for wall in one.wall_ns]) / taken[0].calls
    return median([wall / one.calls for one in taken for wall in one.wall_ns])


def read_run(path: Path) -> StoredRun:
    """Read the file of one run; an incomplete last line is left out.

    Raises:
        BadFile: the file is missing, unreadable, not ours, of a newer format or damaged before its end, or it
            holds several runs.
    """
    return _last_of_one(path, read_runs(path))


def _last_of_one(path: Path, runs: Sequence[StoredRun]) -> StoredRun:
    """Return the last run of a file where each goes on with the one before; raises :class:`BadFile`."""
    if not all(run.went_on for run in runs[:-1]):
        raise BadFile(
            f"{str(path)!r} holds {len(runs)} merged runs: attnbench report, compare and history "
            "read it, but --resume needs the file of one run"
        )
    return runs[-1]


def read_runs(path: Path, *, samples: bool = True) -> list[StoredRun]:
    """Read the runs of a file, in their order; each begins with a manifest.

    samples: False reads only the times of each repetition, and drops its samples at once. All samples of a
    large
        file take gigabytes.

    Raises:
        BadFile: as :func:`read_run`, but for several runs; or one run stands in the file twice, or has no
            digests and a record that does not follow from its repetitions.
    """
    decode = _DECODE if samples else _DECODE_SHORT
    runs: list[_Lines] = []
    torn = False
    try:
        if path.is_dir():
            raise BadFile(f"{str(path)!r} is a folder: name one file")
        if path.exists() and not path.is_file():
            raise BadFile(f"{str(path)!r} is not a run of attnbench: it is not a regular file")
        with path.open("rb") as file:
            end = 0
            for number, data in enumerate(file, start=1):
                begin, end = end, end + len(data)
                if data.isspace():
                    continue  # an editor has added it
                torn = not data.endswith(b"\n")
                if torn:
                    break
                where = f"{str(path)!r}, line {number}"
                if runs:
                    line = _decoded(decode, path, data, where, runs[-1].manifest.format)
                else:
                    line = _manifest_of(path, data)
                if isinstance(line, Manifest):
                    if any(line.run_id == run.manifest.run_id for run in runs):
                        twice = f"the run {line.run_id!r} a second time: leave one copy only"
                        raise BadFile(f"{where}: {twice}")
                    runs.append(_Lines(path, line, begin))
                if problem := runs[-1].problem(line):
                    raise BadFile(f"{where}: {problem}")
                try:
                    runs[-1].digest = next_digest(data, runs[-1].digest)
                    if runs[-1].digest is None:
                        parse_json(data)  # which refuses doubled keys
                except ValueError as changed:
                    raise BadFile(f"{where}: {changed}") from changed
                runs[-1].add(line)
                runs[-1].end_byte = end
    except OSError as failure:
        raise BadFile(f"can't read {str(path)!r}: {failure.strerror}") from failure
    if not runs:
        raise BadFile(f"{str(path)!r} is not a run of attnbench: it has no complete line")
    found = [run.run(torn=torn and run is runs[-1]) for run in runs]
    if not samples and any(run.digest is None for run in found):
        read_runs(path)
    if samples:
        for run in found:
            _check_derived(run)
    behind = {run.manifest.continues: run.manifest.cases for run in runs}
    return [_without(run, behind.get(run.manifest.run_id, ())) for run in found]


def _check_derived(run: StoredRun) -> None:
    """Raise :class:`BadFile` if a run without digests has a record that its repetitions do not give."""
    if run.digest is not None:
        return
    from attnbench.stats.records import not_derived

    for problem in not_derived(run.manifest.protocol, run.cases, run.repetitions, run.records):
        raise BadFile(f"{str(run.path)!r}: {problem}; it has no digests and was changed: measure again")


def _without(run: StoredRun, cases: Collection[str]) -> StoredRun:
    """Return a run without the cases that the run behind it measures, but for those with all their records.

    A copy of the run may have been completed where it was begun, and merged.
    """
    head = run.manifest
    recorded = run.recorded if cases else {}
    cases = {case for case in cases if recorded.get(case) != set(head.backends)}
    if not cases:
        return run
    kept = [case for case in head.cases if case not in cases]
    manifest = msgspec.structs.replace(
        head,
        cases=kept,
        counts={case: count for case, count in head.counts.items() if case in kept},
        shard=part_of(head),
    )
    return replace(
        run,
        manifest=manifest,
        cases=tuple(line for line in run.cases if line.case in kept),
        repetitions=tuple(line for line in run.repetitions if line.case in kept),
        records=tuple(line for line in run.records if line.case in kept),
        times=tuple(line for line in run.times if line.case in kept),
        went_on=True,
    )


def part_of(head: Manifest) -> Shard:
    """Return the shard of a run that has only some of the cases of this manifest."""
    return head.shard or Shard(0, 0, head.cases)


def _manifest_of(path: Path, line: bytes) -> Manifest:
    """Decode the first line of a run.

    Raises:
        BadFile: the line is not a manifest, is damaged, or has a format that this attnbench does not read.
    """
    not_ours = f"{str(path)!r} is not a run of attnbench"
    try:
        head = printable_json(msgspec.json.decode(line))
    except _NOT_DECODED as failure:
        raise BadFile(f"{not_ours}: its first line is not JSON") from failure
    if not isinstance(head, dict) or head.get("kind") != "manifest" or type(head.get("format")) is not int:
        raise BadFile(f"{not_ours}: its first line is not a manifest")
    version = head["format"]
    if version < 1:
        raise BadFile(f"{not_ours}: there is no format {version}")
    if version > FORMAT_VERSION:
        reads = f"this attnbench reads up to {FORMAT_VERSION}: install a newer attnbench"
        raise BadFile(f"{str(path)!r} has format {version}; {reads}")
    if version == 1:
        head = in_format_2(head)
    try:
        manifest = msgspec.convert(head, Manifest)
        msgspec.convert(manifest.environment.get("plugin_facts", {}), dict[str, dict[str, Any]])
    except msgspec.ValidationError as failure:
        raise BadFile(f"{str(path)!r}: its manifest is damaged ({failure})") from failure
    return manifest


class _Kind(msgspec.Struct):
    kind: str = ""


def _decoded(
    decode: Callable[[bytes], _AnyLine], path: Path, data: bytes, where: str, format: int
) -> _AnyLine:
    """Decode a line that is not the first; a manifest of another format has a sentence of its own.

    A file may come from a stranger, so its texts are made printable here, once for all commands.
    """
    try:
        if format == 1:
            line = decode(_ENCODE(in_format_2(printable_json(msgspec.json.decode(data)))))
        else:
            line = decode(data if _is_plain(data) else _ENCODE(printable_json(msgspec.json.decode(data))))
    except _NOT_DECODED as failure:
        with contextlib.suppress(*_NOT_DECODED):
            if msgspec.json.decode(data, type=_Kind).kind == "manifest":
                return _manifest_of(path, data)
        raise BadFile(f"{where}: damaged ({failure})") from failure
    return _manifest_of(path, data) if isinstance(line, Manifest) else line


class RunWriter:
    """A run file that is being written; one writer at a time.

    Each line is one write, followed by fsync. The lines stay in memory too: see :attr:`run`. If another
    process replaces, removes or changes the file, the run goes on in a new file beside it.
    """

    def __init__(self, path: Path, fd: int, manifest: Manifest) -> None:
        self._fd = fd
        self._lines = _Lines(path, manifest)
        self._writing_bytes = 0
        self._written = sha256()
        self._mtime_ns = 0

    @property
    def path(self) -> Path:
        """The file by now."""
        return self._lines.path

    @classmethod
    def create(cls, path: Path, manifest: Manifest) -> RunWriter:
        """Begin a new file; raises :class:`BadInput` if it exists or cannot be written."""
        resumable = not manifest.sides
        check_new(path, resumable=resumable)
        make_folder(path)
        manifest = stored_manifest(manifest)
        writer = cls(path, _open(path, _NEW), manifest)
        try:
            writer._lock()
            # Again under the lock: another run may have begun it meanwhile.
            check_new(path, resumable=resumable)
            os.ftruncate(writer._fd, 0)
        except BaseException:
            writer.close()
            raise
        writer._mtime_ns = os.fstat(writer._fd).st_mtime_ns
        try:
            writer.append(manifest)
        except BaseException:
            # An empty file would be in the way of a new run, or of a report of its folder.
            path.unlink(missing_ok=True)
            writer.close()
            raise
        return writer

    @classmethod
    def reopen(cls, path: Path) -> tuple[RunWriter, list[StoredRun]]:
        """Open a file to go on with its last run, and cut off an incomplete last line; return its runs too.

        Raises:
            BadFile: as :func:`read_run`, or it has an older format. BadInput: it cannot be written, or
                another run is writing it.
        """
        manifest = read_run(path).manifest
        if manifest.format != FORMAT_VERSION:
            raise BadFile(
                f"{str(path)!r} has format {manifest.format}, and this attnbench goes on in format "
                f"{FORMAT_VERSION} only: begin anew; report, compare and history still read the file"
            )
        writer = cls(path, _open(path, os.O_RDWR), manifest)
        try:
            writer._lock()
            # Read again under the lock: another run may have gone on with it meanwhile.
            runs = read_runs(path)
            stored = _last_of_one(path, runs)
        except BaseException:
            writer.close()
            raise
        os.ftruncate(writer._fd, stored.complete_bytes)
        writer._written.update(path.read_bytes())
        writer._mtime_ns = os.fstat(writer._fd).st_mtime_ns
        writer._lines = _Lines(path, stored.manifest, stored.first_byte)
        lines: list[Line] = [*stored.cases, *stored.repetitions, *stored.records]
        for line in lines:
            writer._lines.add(line)
        writer._lines.end_byte, writer._lines.digest = stored.complete_bytes, stored.digest
        return writer, runs

    def begin_behind(self, manifest: Manifest) -> None:
        """Begin a run behind the one in the file, which goes on with it."""
        self.keep_file()
        manifest = stored_manifest(manifest)
        self._lines = _Lines(self.path, manifest, self._lines.end_byte)
        self.append(manifest)

    @property
    def run(self) -> StoredRun:
        """The content of the file by now."""
        return self._lines.run()

    def append(self, line: Line) -> None:
        """Write one line and force it to disk; raises :class:`MeasuringFailed` where that fails.

        Texts of plugins in it are made printable, and the user's home folder becomes ``~``.
        """
        line, data = _as_stored(line)
        self.keep_file()
        with self._told():
            self._write(data)
        self._lines.add(line)

    def keep_file(self) -> None:
        """Begin a new file with all lines so far if the file is not what this process has written.

        Raises:
            MeasuringFailed: it can't be written.
        """
        if self._is_as_written():
            return
        held, old = self._fd, self._lines
        changed = f"{str(old.path)!r} was replaced or changed by another process"
        names = (self.path.with_stem(f"{self.path.stem}-{n}") for n in count(2))
        path = next(name for name in names if not name.exists())
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, _NEW | os.O_EXCL | _APPENDED, 0o644)
            self._lines, self._written = _Lines(path, old.manifest), sha256()
            self._lock()
            for line in old.written():
                self._write(_ENCODE(line))
                self._lines.add(line)
        except OSError as failure:
            if self._fd != held:
                os.close(self._fd)
                path.unlink(missing_ok=True)
            self._fd, self._lines = held, old
            why = f"can't write {str(path)!r}: {failure.strerror}"
            raise MeasuringFailed(f"{changed}, and {why}: the lines of this run are not kept") from failure
        os.close(held)
        print(  # noqa: T201
            f"attnbench: {changed}: the run goes on in {str(path)!r}, which has all its lines",
            file=sys.stderr,
        )

    def _is_as_written(self) -> bool:
        """Return whether the file is still the one that this process writes, with its content."""
        held, end = os.fstat(self._fd), self._lines.end_byte
        try:
            # Ctrl-C may come after a line is written and before it is counted.
            same_file = os.path.samestat(held, self.path.stat())
            if not same_file or held.st_size not in (end, end + self._writing_bytes):
                return False
            # Reading it all takes long, so only if somebody has written since this process did.
            if held.st_mtime_ns == self._mtime_ns:
                return True
            return sha256(self.path.read_bytes()[:end]).digest() == self._written.digest()
        except OSError:
            return False

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as failure:
            kept = "nothing is stored: begin the run again"
            if self._lines.end_byte:
                go_on = go_on_words(self.path, live=bool(self._lines.manifest.sides))
                kept = f"what was measured before is kept, {go_on}"
            raise MeasuringFailed(f"can't write {str(self.path)!r}: {failure.strerror}; {kept}") from failure

    def _write(self, data: bytes) -> None:
        digest = self._lines.digest
        if digest is not None:
            data, digest = with_digest(data, digest)
        data += b"\n"
        self._writing_bytes = len(data)
        if os.write(self._fd, data) != len(data):
            raise OSError(28, "No space left on device")
        force_to_disk(self._fd, self.path)
        self._written.update(data)
        self._mtime_ns = os.fstat(self._fd).st_mtime_ns
        self._lines.end_byte += len(data)
        self._lines.digest, self._writing_bytes = digest, 0

    def _lock(self) -> None:
        if not lock(self._fd, self.path):
            raise BadInput(f"{str(self.path)!r} is being written by another run")

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _open(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags | _APPENDED, 0o644)
    except OSError as failure:
        raise BadInput(f"can't write {str(path)!r}: {failure.strerror}") from failure


def is_there(path: Path) -> bool:
    """Return whether a name is taken; raises :class:`BadInput` where no file can have it."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as failure:
        raise BadInput(f"can't write {str(path)!r}: {failure.strerror}; name another file") from failure
    return True


def check_new(path: Path, *, resumable: bool = True) -> None:
    """Raise :class:`BadInput` where a new run file can't be made. Makes nothing, not even its folder.

    resumable: whether the command that makes it could go on with a file that is there.
    """
    folder = path.parent
    taken = is_there(path)
    if taken and path.is_dir():
        raise BadInput(f"{str(path)!r} is a folder, but a name with .jsonl must be a file: name another")
    if taken and (path.is_symlink() or not _holds_nothing(path)):
        instead = "continue it with --resume, or name another file" if resumable else "name another file"
        raise BadInput(f"{str(path)!r} exists; {instead}")
    # Folders that are not there are made with the file.
    there = next(each for each in (folder, *folder.parents) if is_there(each))
    if not there.is_dir():
        raise BadInput(f"{str(there)!r} is not a folder; give a folder, or a file whose name ends in .jsonl")
    check_writable(there)


def make_folder(path: Path) -> None:
    """Make the folder of a new file; raises :class:`BadInput`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as failure:
        raise BadInput(f"can't make the folder {str(path.parent)!r}: {failure.strerror}") from failure


def _holds_nothing(path: Path) -> bool:
    """Return whether a file is empty, or has only the torn manifest of a run that was killed at its start.

    ``--resume`` can't go on with it, so a new run may replace it.
    """
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            first = file.readline()
    except OSError:
        return False
    torn = not first.endswith(b"\n")
    return torn and (first.startswith(_MANIFEST) or _MANIFEST.startswith(first))


def new_run_path(out: Path, run_id: str) -> Path:
    """The file of a new run: ``out`` itself where it ends in .jsonl, else a new name in that folder."""
    return out if out.suffix == ".jsonl" else out / f"{run_id}.jsonl"


def expand(paths: Sequence[Path], *, also_json: bool = False) -> list[Path]:
    """List files once each, and for a folder the .jsonl files in it.

    also_json: a folder stands for all .jsonl and .json files in it and in its subfolders.

    Raises:
        BadFile: a folder has no such file.
    """
    found: dict[Path, Path] = {}
    for path in paths:
        inside = [path]
        if path.is_dir():
            suffixes = (".jsonl", ".json") if also_json else (".jsonl",)
            every = path.rglob("*") if also_json else path.glob("*")
            inside = sorted(file for file in every if file.suffix in suffixes)
            if not inside:
                kinds = "*.jsonl, *.json" if also_json else "*.jsonl"
                raise BadFile(f"the folder {str(path)!r} holds no run ({kinds})")
        for file in inside:
            found.setdefault(Path(os.path.realpath(file)), file)
    return list(found.values())
