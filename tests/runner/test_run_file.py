"""The run file: whatever is complete is read, whatever is torn is cut, nothing is written twice."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from run_files import manifest_of

from attnbench.results.format import RunWriter, read_run, read_runs
from attnbench.results.merge import merge
from attnbench.types.errors import BadFile, BadInput, MeasuringFailed
from attnbench.types.record import EndLine, Record, RepetitionLine, SegmentSamples

MANIFEST = manifest_of(
    cases=["attention/dot/B1-H1-Lq2-Lk2-D2/none/float32/cpu/forward"],
    backends=["eager", "bmm", "numpy"],
    environment={"cpu": "x"},
)
RECORD = Record(MANIFEST.cases[0], "dot", "eager", "ok", median_ms=1.5)
OTHER = Record(MANIFEST.cases[0], "dot", "bmm", "ok", median_ms=2.5)
END = EndLine("later", 2.0, {"repetitions": 1.0})
THIRD = Record(MANIFEST.cases[0], "dot", "numpy", "ok", median_ms=3.5)


def written(path: Path, *lines: Record | EndLine | RepetitionLine) -> bytes:
    with RunWriter.create(path, MANIFEST) as writer:
        for line in lines:
            writer.append(line)
    return path.read_bytes()


def changed_later(path: Path, old: bytes, new: bytes) -> None:
    """Change a file in place, at a later moment than any of its lines."""
    path.write_bytes(path.read_bytes().replace(old, new))
    later = path.stat().st_mtime_ns + 10**9
    os.utime(path, ns=(later, later))


def test_a_run_whose_file_is_only_touched_goes_on_in_it(path: Path) -> None:
    with RunWriter.create(path, MANIFEST) as writer:
        writer.append(RECORD)
        changed_later(path, b"", b"")
        writer.append(OTHER)
        assert writer.path == path


def go_on(path: Path, line: Record) -> None:
    """Append a line to a file that is closed."""
    writer, _ = RunWriter.reopen(path)
    with writer:
        writer.append(line)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


def test_pandas_reads_it(path: Path) -> None:
    import pandas as pd

    written(path, RECORD)
    frame = pd.read_json(path, lines=True)
    assert frame.loc[1, "median_ms"] == 1.5


@given(cut=st.integers(min_value=0))
def test_cut_anywhere_after_the_manifest_the_complete_lines_are_read(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("cut") / "run.jsonl"
    data = written(path, RECORD, OTHER, THIRD)
    first = data.index(b"\n") + 1
    size = first + cut % (len(data) - first + 1)
    path.write_bytes(data[:size])
    stored = read_run(path)
    assert len(stored.records) == data[:size].count(b"\n") - 1
    assert stored.torn == (not data[:size].endswith(b"\n"))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"\xff\xfe{", "is not a run of attnbench: its first line is not JSON"),
        (b'{"kind":"manifest","format":2,"run_id":"\xff"}', "its first line is not JSON"),
        (b"\xef\xbb\xbf{}", "its first line is not JSON"),
        (b"[" * 200_000, "its first line is not JSON"),
        (b'"manifest"', "its first line is not a manifest"),
        (b'{"kind":"manifest"}', "its first line is not a manifest"),
        (b'{"kind":"manifest","format":true}', "its first line is not a manifest"),
        (b'{"kind":"manifest","format":1.0}', "its first line is not a manifest"),
        (b'{"kind":"manifest","format":0}', "is not a run of attnbench: there is no format 0"),
        (b'{"kind":"manifest","format":2}', "its manifest is damaged (Object missing required field"),
    ],
)
def test_what_is_no_manifest_is_refused(path: Path, line: bytes, says: str) -> None:
    path.write_bytes(line + b"\n")
    with pytest.raises(BadFile) as refused:
        read_runs(path)
    assert says in str(refused.value)
    assert str(path) in str(refused.value)


def test_a_second_writer_is_refused(path: Path) -> None:
    with RunWriter.create(path, MANIFEST), pytest.raises(BadInput, match="being written by another run"):
        RunWriter.reopen(path)


STRANGE = Record("attention/dot/B9-H1-Lq2-Lk2-D2/none/float32/cpu/forward", "dot", "eager", "ok")
ODD = Record(MANIFEST.cases[0], "dot", "nobody", "ok")


def one_repetition(*blocks: SegmentSamples) -> RepetitionLine:
    return RepetitionLine(MANIFEST.cases[0], 0, [0], ["eager"], {}, {"eager": list(blocks)}, [], {})


WHOLE = SegmentSamples(0, [0, 2], 1, [5, 5], [4, 4], [0, 0], [0, 0])
IMPOSSIBLE = (
    SegmentSamples(1, [], 1, [], [], [], []),
    replace(WHOLE, wall_ns=[5, 0]),
    replace(WHOLE, calls=0),
    replace(WHOLE, slots=[0]),
    replace(WHOLE, cpu_ns=[4, 4, 4]),
    replace(WHOLE, faults=[]),
)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ((RECORD, RECORD), "a second line for eager of"),
        ((one_repetition(WHOLE), one_repetition(WHOLE)), "a second line for the repetition 0 of"),
        ((STRANGE,), "the manifest does not name the case"),
        ((ODD,), "the manifest does not name the backend"),
        ((RECORD, MANIFEST), "the run .* a second time"),
        *(
            ((one_repetition(WHOLE, bad),), "a segment without samples, or with impossible ones")
            for bad in IMPOSSIBLE
        ),
    ],
)
def test_lines_that_do_not_belong_are_named(path: Path, lines: tuple[Any, ...], says: str) -> None:
    written(path, *lines)
    with pytest.raises(BadFile, match=rf"line {len(lines) + 1}: .*{says}"):
        read_run(path)


@pytest.mark.parametrize(("sides", "advice"), [({}, "--resume"), ({"base": {}, "head": {}}, "compare again")])
def test_a_full_disk_is_a_sentence_and_loses_nothing_complete(
    path: Path, sides: dict[str, dict[str, Any]], advice: str
) -> None:
    """A limit on the size of files stands in for a full disk: the write fails in the same place."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    with RunWriter.create(path, replace(MANIFEST, sides=sides)) as writer:
        writer.append(OTHER)
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 9, limit[1]))
        try:
            with pytest.raises(MeasuringFailed, match=f"can't write .*{advice}"):
                writer.append(THIRD)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert read_run(path).records == (OTHER,)
    go_on(path, RECORD)
    assert read_run(path).records == (OTHER, RECORD)


@pytest.mark.parametrize("room", [0, 9, 40])
def test_a_disk_without_room_for_the_first_line_blocks_nothing(path: Path, room: int) -> None:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limit[1]))
    try:
        with pytest.raises(MeasuringFailed, match=r"can't write .*; nothing is stored: begin the run again"):
            RunWriter.create(path, MANIFEST)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert not path.exists()


@pytest.mark.parametrize("left", [b"", b'{"ki', b'{"kind":"manifest","format":2,"run_id":"r'])
def test_a_new_run_replaces_what_one_that_was_killed_at_its_start_left(path: Path, left: bytes) -> None:
    """--resume can't go on with such a file."""
    path.write_bytes(left)
    with pytest.raises(BadFile, match="it has no complete line"):
        RunWriter.reopen(path)
    written(path, RECORD)
    assert read_run(path).records == (RECORD,)


@pytest.mark.parametrize("left", [b"mine", b"\n", b'{"kind":"suite"', b'{"kind":"manifest"}\n'])
def test_a_new_run_replaces_nothing_else(path: Path, left: bytes) -> None:
    path.write_bytes(left)
    with pytest.raises(BadInput, match="exists; continue it with --resume, or name another file"):
        RunWriter.create(path, MANIFEST)
    assert path.read_bytes() == left


def test_without_room_for_a_new_file_it_is_not_said_that_lines_are_kept(path: Path) -> None:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    with RunWriter.create(path, MANIFEST) as writer:
        path.write_text("mine")
        resource.setrlimit(resource.RLIMIT_FSIZE, (9, limit[1]))
        try:
            with pytest.raises(MeasuringFailed, match=r"changed by another process, .* are not kept"):
                writer.append(RECORD)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert path.read_text() == "mine"


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL])
def test_a_disk_that_lacks_calls_is_told_once(
    path: Path, number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lacking(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", lacking)
    monkeypatch.setattr("os.fsync", lacking)
    written(path, RECORD)
    go_on(path, OTHER)
    assert read_run(path).records == (RECORD, OTHER)
    locks, lines = capsys.readouterr().err.splitlines()
    assert locks == f"attnbench: the disk of {str(path)!r} has no locks: see that no other run writes there"
    assert lines.startswith(f"attnbench: the disk of {str(path)!r} can't be forced to keep lines")


# --- what another process does to the file ---------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda path: Path(shutil.copy(path, path.with_name("other"))).replace(path),
        Path.unlink,
        lambda path: path.write_text("mine"),
        lambda path: path.write_bytes(path.read_bytes() + b"mine"),
        lambda path: changed_later(path, b'"cpu":"x"', b'"cpu":"y"'),
        lambda path: path.parent.rename(path.parent.with_name("elsewhere")),
    ],
    ids=["replaced", "removed", "written over", "appended to", "a byte", "moved with its folder"],
)
def test_a_run_whose_file_is_taken_away_goes_on_in_a_new_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[[Path], object]
) -> None:
    path = tmp_path / "runs" / "run.jsonl"
    with RunWriter.create(path, MANIFEST) as writer:
        writer.append(RECORD)
        change(path)
        theirs = path.read_bytes() if path.exists() else None
        writer.append(OTHER)
        writer.append(END)
        assert writer.path == path.with_name("run-2.jsonl")
        assert writer.run == read_run(writer.path)
    told = f"attnbench: {str(path)!r} was replaced or changed by another process: the run goes on in "
    assert capsys.readouterr().err == f"{told}{str(writer.path)!r}, which has all its lines\n"
    assert read_run(writer.path).records == (RECORD, OTHER)
    assert (path.read_bytes() if path.exists() else None) == theirs


def test_a_resumed_run_whose_file_is_taken_away_loses_nothing(path: Path) -> None:
    line = one_repetition(WHOLE)
    written(path, line, RECORD)
    writer, _ = RunWriter.reopen(path)
    with writer:
        path.unlink()
        writer.append(OTHER)
    stored = read_run(path.with_name("run-2.jsonl"))
    assert (stored.repetitions, stored.records) == ((line,), (RECORD, OTHER))


UNTIMED = Record(MANIFEST.cases[0], "dot", "eager", "unsupported", "why")

# --- digests -----------------------------------------------------------------------------------------

CHANGED = "changed or written anew by another program, or a line before it is missing; measure again"


def test_the_digest_of_a_line_follows_from_it_and_from_the_line_before(path: Path) -> None:
    """As docs/files.md says it."""
    before = ""
    for line in written(path, RECORD, OTHER, END).decode().splitlines():
        digest = json.loads(line)["digest"]
        without = line.replace(f',"digest":"{digest}"', "")
        assert hashlib.sha256((before + without).encode()).hexdigest()[:16] == digest
        before = digest


@pytest.mark.parametrize(
    ("change", "number"),
    [
        (lambda lines: [*lines[:2], lines[3]], 3),
        (lambda lines: [lines[0], lines[2], lines[1], lines[3]], 2),
        (lambda lines: [lines[0], lines[1].replace(b":1.5,", b":0.15,"), *lines[2:]], 2),
        (lambda lines: [lines[0].replace(b'"cpu":"x"', b'"cpu":"y"'), *lines[1:]], 1),
        (lambda lines: [*lines[:3], undigested(lines[3])], 4),
        (lambda lines: [undigested(lines[0]), *lines[1:]], 2),
    ],
    ids=["missing", "swapped", "changed", "manifest", "no digest", "no digest at first"],
)
def test_a_changed_or_missing_line_is_refused(
    path: Path, change: Callable[[list[bytes]], list[bytes]], number: int
) -> None:
    lines = written(path, RECORD, OTHER, END).splitlines(keepends=True)
    path.write_bytes(b"".join(change(lines)))
    with pytest.raises(BadFile, match=f"line {number}: {CHANGED}$"):
        read_run(path)


def undigested(data: bytes) -> bytes:
    return re.sub(rb',"digest":"\w{16}"}', b"}", data)


REWRITERS: list[Callable[[Any], str]] = [
    json.dumps,
    lambda line: json.dumps(line, sort_keys=True, separators=(",", ":")),
    lambda line: json.dumps(line, separators=(", ", ":")),
    lambda line: json.dumps({"digest": line.pop("digest"), **line}, separators=(",", ":")),
]


@pytest.mark.parametrize("rewriter", REWRITERS, ids=["plain", "sorted", "blanks", "first"])
def test_a_file_that_another_program_wrote_anew_is_refused(
    path: Path, rewriter: Callable[[Any], str]
) -> None:
    """Else changed numbers would pass for those of an old file, which has no digests."""
    lines = written(path, RECORD, OTHER, END).splitlines()
    path.write_text("".join(f"{rewriter(json.loads(line))}\n" for line in lines))
    with pytest.raises(BadFile, match=f"line 1: {CHANGED}$"):
        read_run(path)


def test_files_without_digests_are_read_and_continued_as_ever(path: Path) -> None:
    path.write_bytes(undigested(written(path, UNTIMED)))
    go_on(path, replace(UNTIMED, backend="bmm"))
    assert b"digest" not in path.read_bytes()
    assert read_run(path).records == (UNTIMED, replace(UNTIMED, backend="bmm"))


@pytest.mark.parametrize("record", [RECORD, replace(UNTIMED, ratio=0.5)], ids=["no samples", "not timed"])
def test_without_digests_a_time_needs_its_samples(path: Path, record: Record) -> None:
    path.write_bytes(undigested(written(path, record)))
    with pytest.raises(BadFile, match=r"(?s)it has no digests and was changed: measure again"):
        read_runs(path, samples=False)


def test_without_digests_a_key_that_stands_twice_is_refused(path: Path) -> None:
    data = undigested(written(path, UNTIMED))
    path.write_bytes(data.replace(b'"rule":"dot"', b'"rule":"dot","rule":"general"'))
    with pytest.raises(BadFile, match="line 2: an object has the key 'rule' twice"):
        read_run(path)


def test_lines_that_end_as_in_other_systems_are_read(path: Path) -> None:
    path.write_bytes(written(path, RECORD, END).replace(b"\n", b"\r\n"))
    assert read_run(path).records == (RECORD,)


@pytest.mark.parametrize("blank", [b"\n", b" \n\n", b"\r\n", b"  "])
def test_blank_lines_at_the_end_are_left_out(path: Path, blank: bytes) -> None:
    data = written(path, RECORD)
    path.write_bytes(data + blank)
    stored = read_run(path)
    assert (stored.records, stored.torn) == ((RECORD,), False)
    go_on(path, OTHER)
    assert read_run(path).records == (RECORD, OTHER)
    assert path.read_bytes().startswith(data + b"{")
    assert merge([path], path.with_name("merged.jsonl")).path.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("facts", [3, "x", ["x"], {"mine": 3}])
def test_plugin_facts_that_are_no_objects_are_damage(path: Path, facts: Any) -> None:
    manifest = replace(MANIFEST, environment={"plugin_facts": facts})
    with RunWriter.create(path, manifest):
        pass
    with pytest.raises(BadFile, match=r"its manifest is damaged \(Expected `object`, got"):
        read_run(path)


# --- records of lost processes -----------------------------------------------------------------------

LOST = replace(RECORD, status="interrupted", reason="the oracle's process ended", median_ms=None)


def test_a_later_record_takes_the_place_of_an_interrupted_one(path: Path, tmp_path: Path) -> None:
    written(path, LOST, OTHER, LOST, RECORD)
    assert read_run(path).records == (RECORD, OTHER)
    written(tmp_path / "two.jsonl", RECORD, LOST)
    with pytest.raises(BadFile, match="line 3: a second line for eager"):
        read_run(tmp_path / "two.jsonl")


def test_a_file_does_not_name_the_home_of_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the command nor what a plugin raised."""
    monkeypatch.setenv("HOME", "/home/ada")
    path = tmp_path / "run.jsonl"
    said = "no such file: /home/ada/.cache/kernel, and not /home/adam or /opt/home/ada; cc -I/home/ada\u0007"
    head = manifest_of(
        cases=MANIFEST.cases, backends=["x"], command=["attnbench", "run", "/home/ada/mine.toml"],
        environment={"variables": {"TORCH_HOME": "/home/ada"}},
    )  # fmt: skip
    with RunWriter.create(path, head) as writer:
        writer.append(Record(MANIFEST.cases[0], "dot", "x", "error", said))
        assert writer.run == read_run(path)
    assert "/home/ada/" not in path.read_text()
    stored = read_run(path)
    assert stored.manifest.command[-1] == "~/mine.toml"
    assert stored.manifest.environment["variables"]["TORCH_HOME"] == "~"
    assert (
        stored.records[0].reason
        == "no such file: ~/.cache/kernel, and not /home/adam or /opt/home/ada; cc -I~\\x07"
    )
