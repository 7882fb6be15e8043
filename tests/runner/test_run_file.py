"""The run file: whatever is complete is read, whatever is torn is cut, nothing is written twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from attnbench.results.format import RunWriter, check_new, expand, new_run_path, read_run
from attnbench.types.errors import BadFile, BadInput, MeasuringFailed
from attnbench.types.record import Block, EndLine, Manifest, Record, SetLine

MANIFEST = Manifest(
    format=1,
    run_id="r",
    started="2026-01-01T00:00:00+00:00",
    attnbench="0.1.0",
    command=["attnbench", "run"],
    cases=["attention/dot/B1-H1-Lq2-Lk2-D2/none/float32/cpu/forward"],
    backends=["eager", "bmm", "numpy", *(f"b{i}" for i in range(1000))],
    named=[],
    compiled_on=None,
    protocol={"sets": 8},
    plugins=[],
    environment={"cpu": "x"},
)
RECORD = Record(MANIFEST.cases[0], "dot", "eager", "ok", median_ms=1.5)
OTHER = Record(MANIFEST.cases[0], "dot", "bmm", "ok", median_ms=2.5)
THIRD = Record(MANIFEST.cases[0], "dot", "numpy", "ok", median_ms=3.5)


def written(path: Path, *lines: Record | EndLine | SetLine) -> bytes:
    with RunWriter.create(path, MANIFEST) as writer:
        for line in lines:
            writer.append(line)
    return path.read_bytes()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a" / "run.jsonl"
    written(path, RECORD, EndLine("later", 2.0, {"sets": 1.0}))
    stored = read_run(path)
    assert stored.manifest == MANIFEST
    assert stored.records == (RECORD,)
    assert stored.finished is not None
    assert not stored.torn


def test_every_line_is_one_json_object_with_its_kind(tmp_path: Path) -> None:
    lines = written(tmp_path / "run.jsonl", RECORD).decode().splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["manifest", "record"]


def test_pandas_reads_it(tmp_path: Path) -> None:
    import pandas as pd

    written(tmp_path / "run.jsonl", RECORD)
    frame = pd.read_json(tmp_path / "run.jsonl", lines=True)
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


def test_going_on_cuts_the_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    data = written(path, RECORD)
    path.write_bytes(data + b'{"kind":"rec')
    writer, _ = RunWriter.reopen(path)
    with writer:
        writer.append(OTHER)
    assert read_run(path).records == (RECORD, OTHER)


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with RunWriter.create(path, MANIFEST), pytest.raises(BadInput, match="being written by another run"):
        RunWriter.reopen(path)


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    data = written(path, RECORD)
    with pytest.raises(BadInput, match=r"exists; continue it with --resume"):
        RunWriter.create(path, MANIFEST)
    assert path.read_bytes() == data


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "has no complete line"),
        (b"not json\n", "its first line is not JSON"),
        (b'{"some": "json"}\n', "its first line is not a manifest"),
        (b"[1, 2]\n", "its first line is not a manifest"),
        (b'{"kind":"manifest","format":99}\n', "has format 99; this attnbench reads up to 1"),
        (b'{"kind":"manifest","format":1}\n', "its manifest is damaged"),
        (b'{"kind":"manifest","format":-5}\n', "there is no format -5"),
        (b"[" * 200_000 + b"\n", "its first line is not JSON"),
    ],
)
def test_files_that_are_not_ours(tmp_path: Path, data: bytes, says: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(data)
    with pytest.raises(BadFile, match=says):
        read_run(path)


def test_damage_in_the_middle_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    lines = written(path, RECORD, OTHER).splitlines(keepends=True)
    path.write_bytes(lines[0] + b"rubbish\n" + lines[2])
    with pytest.raises(BadFile, match="line 2: damaged"):
        read_run(path)


STRANGE = Record("attention/dot/B9-H1-Lq2-Lk2-D2/none/float32/cpu/forward", "dot", "eager", "ok")
ODD = Record(MANIFEST.cases[0], "dot", "nobody", "ok")


def one_set(*blocks: Block) -> SetLine:
    return SetLine(MANIFEST.cases[0], 0, [0], ["eager"], {}, {"eager": list(blocks)}, [], {})


WHOLE = Block(0, [0, 2], 1, [5, 5], [4, 4], [0, 0], [0, 0], [6, 6])


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ((RECORD, RECORD), "a second line for eager of"),
        ((one_set(WHOLE), one_set(WHOLE)), "a second line for the set 0 of"),
        ((STRANGE,), "the manifest does not name the case"),
        ((ODD,), "the manifest does not name the backend"),
        ((RECORD, MANIFEST), "a second manifest"),
        (
            (one_set(WHOLE, Block(1, [], 1, [], [], [], [], [])),),
            "a block without samples, or with impossible ones",
        ),
        ((one_set(replace(WHOLE, wall_ns=[5, 0])),), "a block without samples, or with impossible ones"),
        ((one_set(replace(WHOLE, calls=0)),), "a block without samples, or with impossible ones"),
        ((one_set(replace(WHOLE, turns=[0])),), "a block without samples, or with impossible ones"),
        ((one_set(replace(WHOLE, cpu_ns=[4, 4, 4])),), "a block without samples, or with impossible ones"),
        ((one_set(replace(WHOLE, asked_ns=[])),), "a block without samples, or with impossible ones"),
    ],
)
def test_lines_that_do_not_belong_are_named(tmp_path: Path, lines: tuple[Any, ...], says: str) -> None:
    path = tmp_path / "run.jsonl"
    written(path, *lines)
    with pytest.raises(BadFile, match=rf"line {len(lines) + 1}: .*{says}"):
        read_run(path)


def test_a_set_with_whole_blocks_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    line = one_set(WHOLE, replace(WHOLE, stretch=1))
    written(path, line)
    assert read_run(path).sets == (line,)


def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(BadFile, match="it is not a regular file"):
        read_run(tmp_path / "pipe.jsonl")
    with pytest.raises(BadFile, match="it is not a regular file"):
        read_run(Path("/dev/zero"))


def test_a_file_where_a_folder_should_be_and_the_other_way_round(tmp_path: Path) -> None:
    (tmp_path / "plain.txt").write_text("mine")
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(BadInput, match=r"is not a folder; give a folder, or a file whose name ends in"):
        check_new(new_run_path(tmp_path / "plain.txt", "id"))
    with pytest.raises(BadInput, match="is a folder"):
        check_new(tmp_path / "folder.jsonl")
    assert (tmp_path / "plain.txt").read_text() == "mine"


def test_a_missing_file_and_a_folder_without_runs(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="No such file"):
        read_run(tmp_path / "nothing.jsonl")
    with pytest.raises(BadFile, match="holds no run"):
        expand([tmp_path])


def test_a_folder_that_can_not_be_written() -> None:
    with pytest.raises(BadInput, match="can't make the folder"):
        RunWriter.create(Path("/proc/nowhere/run.jsonl"), MANIFEST)


def test_where_a_run_goes() -> None:
    assert new_run_path(Path("results"), "id") == Path("results/id.jsonl")
    assert new_run_path(Path("x/mine.jsonl"), "id") == Path("x/mine.jsonl")


_FILL_DISK = """
import resource, sys
from pathlib import Path
import msgspec
from attnbench.results.format import RunWriter
from attnbench.types.errors import MeasuringFailed, MeasuringFailed
from attnbench.types.record import Manifest, Record
manifest = msgspec.json.decode(sys.argv[2].encode(), type=Manifest)
writer = RunWriter.create(Path(sys.argv[1]), manifest)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))
try:
    for i in range(1000):
        writer.append(Record(manifest.cases[0], "dot", f"b{i}", "ok"))
except MeasuringFailed as failure:
    print(failure)
"""


def test_nobody_is_told_to_go_on_with_a_live_comparison(tmp_path: Path) -> None:
    live = msgspec.structs.replace(MANIFEST, sides={"base": {}, "head": {}})
    with RunWriter.create(tmp_path / "run.jsonl", live) as writer:
        os.close(writer._fd)
        with pytest.raises(MeasuringFailed, match=r"is kept, compare again$"):
            writer.append(RECORD)
        writer._fd = os.open(os.devnull, os.O_RDONLY)


def test_a_full_disk_is_a_sentence_and_loses_nothing_complete(tmp_path: Path) -> None:
    """A limit on the size of files stands in for a full disk: the write fails in the same place."""
    path = tmp_path / "run.jsonl"
    manifest = msgspec.json.encode(MANIFEST).decode()
    done = subprocess.run(
        [sys.executable, "-c", _FILL_DISK, str(path), manifest, str(len(manifest) + 12_000)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "can't write" in done.stdout
    assert f"--resume {path}" in done.stdout
    stored = read_run(path)
    assert len(stored.records) > 10
    writer, _ = RunWriter.reopen(path)
    with writer:
        writer.append(RECORD)
    assert read_run(path).records == (*stored.records, RECORD)
