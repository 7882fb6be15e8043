"""Merged files: their runs stay whole, byte for byte, and nothing counts twice."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_sides import CASES
from run_files import manifest_of, write_records

import attnbench
from attnbench.results.format import RunWriter, read_run, read_runs
from attnbench.results.merge import merge
from attnbench.results.read import read_side
from attnbench.types.errors import BadFile, BadInput
from attnbench.types.record import Record

WANTED = {"cases": CASES, "backends": ["eager", "bmm"]}
Written = list[tuple[dict[str, Any], list[Record], bool, bytes]]


def record(ms: float = 1.5, case: str = CASES[0], backend: str = "eager") -> Record:
    return Record(case, "dot", backend, "ok", reason='a "manifest" of its own', median_ms=ms)


@pytest.fixture
def one(tmp_path: Path) -> Path:
    return write_records(tmp_path / "one.jsonl", record(), finished=False, run_id="r", **WANTED)


@pytest.fixture
def both(tmp_path: Path) -> Path:
    """A merged file of the runs a, which was cut off, and b."""
    paths = [write_records(tmp_path / f"{n}.jsonl", record(), finished=n == "b", **WANTED) for n in "ab"]
    return merge(paths, tmp_path / "both.jsonl").path


@st.composite
def runs(draw: st.DrawFn) -> Written:
    """Runs of different names: facts, records, whether finished, and bytes of a line that was cut off."""
    names = draw(st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=4, unique=True))
    keys = st.lists(st.sampled_from([*product(*WANTED.values())]), unique=True)
    found = []
    for name in names:
        started = f"2026-01-{draw(st.integers(1, 28)):02}T00:00:00+00:00"
        facts = WANTED | {"run_id": name, "started": started, "environment": {"cpu": f"of {name}"}}
        records = [record(draw(st.floats(0.1, 10)), *key) for key in draw(keys)]
        torn = draw(st.sampled_from([b"", b"{", b'{"kind":"manifest"']))
        found.append((facts, records, draw(st.booleans()), torn))
    return found


@settings(max_examples=25)  # each writes files and forces them to disk
@given(written=runs())
def test_a_merged_file_holds_its_runs_unchanged(
    written: Written, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("merge")
    paths = []
    whole = {}
    for number, (facts, records, finished, torn) in enumerate(written):
        path = write_records(folder / f"{number}.jsonl", *records, finished=finished, **facts)
        whole[facts["run_id"]] = path.read_bytes()
        path.write_bytes(whole[facts["run_id"]] + torn)
        paths.append(path)
    merged = merge(paths, folder / "all.jsonl")
    data = merged.path.read_bytes()
    parts = read_runs(merged.path)
    assert {run.manifest.run_id: data[run.first_byte : run.complete_bytes] for run in parts} == whole
    assert sum(len(part) for part in whole.values()) == len(data)
    for facts, records, finished, _ in written:
        (part,) = (run for run in parts if run.manifest.run_id == facts["run_id"])
        assert part.manifest == manifest_of(**facts)
        assert [*part.records] == records
        assert (part.finished is not None) == finished
        assert not part.torn
    assert [part.manifest.started for part in parts] == sorted(facts["started"] for facts, *_ in written)
    cut = [note for note in merged.notes if "cut off and is left out" in note]
    assert len(cut) == sum(bool(torn) for *_, torn in written)
    # As sides of a comparison they are what their own files are.
    alone = {run.run_id: run for run in read_side(paths)}
    for run in read_side([merged.path]):
        own = alone.pop(run.run_id)
        assert replace(run, path=Path(), problems=()) == replace(own, path=Path(), problems=())
    assert not alone
    assert len(read_side([folder])) == len(paths)
    # Merging again changes nothing.
    again = merge([merged.path, *paths], folder / "again.jsonl")
    assert again.path.read_bytes() == data
    assert sum("and is kept once" in note for note in again.notes) == len(paths)


def test_of_copies_of_a_run_the_longer_is_kept(tmp_path: Path, one: Path) -> None:
    long = write_records(tmp_path / "long.jsonl", record(), record(backend="bmm"), run_id="r", **WANTED)
    for order in ([one, long], [long, one]):
        merged = merge(order, tmp_path / f"from_{order[0].stem}.jsonl")
        assert merged.path.read_bytes() == long.read_bytes()
        assert merged.notes == (f"{long}: the run r is longer here than in {one}, and is kept once",)


@pytest.mark.parametrize("piece", [1, 7, 2**20])
def test_copies_that_differ_are_refused_and_nothing_is_written(
    tmp_path: Path, one: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr("attnbench.results.merge._PIECE_BYTES", piece)
    copy = write_records(tmp_path / "copy.jsonl", finished=False, run_id="r", **WANTED)
    assert merge([copy, one], tmp_path / "new.jsonl").path.read_bytes() == one.read_bytes()
    copy.write_bytes(copy.read_bytes()[:-1] + b" \n")
    with pytest.raises(BadFile, match=r"hold different copies of the run 'r'"):
        merge([copy, one], tmp_path / "other.jsonl")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.jsonl", "new.jsonl", "one.jsonl"]


def test_an_existing_file_is_not_overwritten(tmp_path: Path, one: Path) -> None:
    data = one.read_bytes()
    dangling = tmp_path / "link.jsonl"
    dangling.symlink_to(tmp_path / "nowhere")
    for out in (one, dangling):
        with pytest.raises(BadInput, match="exists; name another file"):
            merge([one], out)
    assert one.read_bytes() == data


def test_the_umask_decides_who_may_read_the_new_file(tmp_path: Path, one: Path) -> None:
    before = os.umask(0o077)
    try:
        merge([one], tmp_path / "new.jsonl")
    finally:
        os.umask(before)
    assert (tmp_path / "new.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_full_disk_leaves_nothing(tmp_path: Path, one: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BadInput, match=r"can't write .*out.jsonl': No space left on device"):
        merge([one], tmp_path / "out.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["one.jsonl"]


def test_a_merged_file_is_not_resumed(tmp_path: Path, both: Path) -> None:
    data = both.read_bytes()
    for reading in (read_run, RunWriter.reopen):
        with pytest.raises(BadFile, match=r"holds 2 merged runs: .*needs the file of one run"):
            reading(both)
    assert both.read_bytes() == data
    assert read_run(merge([tmp_path / "a.jsonl"], tmp_path / "one.jsonl").path).manifest.run_id == "a"
    cut, whole = read_side([both])
    assert cut.problems == (
        f"{both}: the run a was cut off, 3 of its records are missing; "
        "to resume it, name the file that holds it alone",
    )
    assert whole.problems == ()


@pytest.mark.filterwarnings("ignore:.*records are missing", "ignore:.*its last line was cut off")
def test_damage_in_a_later_run_names_its_line(tmp_path: Path, both: Path) -> None:
    data = both.read_bytes()
    newer = write_records(tmp_path / "newer.jsonl", format=99).read_bytes()
    for more, sentence in (
        (b"rubbish\n", "line 6: damaged"),
        (data, "line 6: the run 'a' a second time: leave one copy only"),
        (newer, "has format 99"),
    ):
        both.write_bytes(data + more)
        with pytest.raises(BadFile, match=sentence):
            read_side([both])
    both.write_bytes(data + b'{"kind":"manif')
    assert [run.torn for run in read_runs(both)] == [False, True]
    assert attnbench.load(both).unfinished == (both,)
