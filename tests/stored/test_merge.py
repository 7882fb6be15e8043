"""Merged files: what is split again is what was merged, byte for byte, and nothing counts twice."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import attnbench
from attnbench.results.format import RunWriter, read_run, read_runs
from attnbench.results.merge import merge
from attnbench.types.errors import BadFile, BadInput
from attnbench.types.record import EndLine, Manifest, Record

CASES = [f"attention/dot/B1-H1-Lq{n}-Lk{n}-D2/none/float32/cpu/forward" for n in (2, 3)]
BACKENDS = ["eager", "bmm"]
END = EndLine("later", 2.0, {"sets": 1.0})


def manifest(name: str, started: str = "2026-01-01T00:00:00+00:00", cpu: str = "x") -> Manifest:
    return Manifest(
        format=1, run_id=name, started=started, attnbench="0.1.0", command=[], cases=CASES, backends=BACKENDS,
        named=[], compiled_on=None, protocol={"sets": 8}, plugins=[], environment={"cpu": cpu},
    )  # fmt: skip


def record(ms: float = 1.5, case: str = CASES[0], backend: str = "eager") -> Record:
    return Record(case, "dot", backend, "ok", reason='a "manifest" of its own', median_ms=ms)


def stored(path: Path, head: Manifest, *lines: Record | EndLine) -> Path:
    with RunWriter.create(path, head) as writer:
        for line in lines:
            writer.append(line)
    return path


@st.composite
def runs(draw: st.DrawFn) -> list[tuple[Manifest, list[Record | EndLine], bytes]]:
    """Runs of different names, some cut off, some in the middle of a line."""
    names = draw(st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=4, unique=True))
    keys = [(case, backend) for case in CASES for backend in BACKENDS]
    found = []
    for name in names:
        started = f"2026-01-{draw(st.integers(1, 28)):02}T00:00:00+00:00"
        lines: list[Record | EndLine] = [
            record(draw(st.floats(0.1, 10)), *key)
            for key in draw(st.lists(st.sampled_from(keys), unique=True))
        ]
        finished = draw(st.booleans())
        torn = draw(st.sampled_from([b"", b"{", b'{"kind":"manifest"']))
        found.append((manifest(name, started, cpu=f"of {name}"), lines + [END] * finished, torn))
    return found


@settings(max_examples=25)  # each writes files and forces them to disk
@given(written=runs())
def test_splitting_gives_back_what_was_merged(
    written: list[tuple[Manifest, list[Record | EndLine], bytes]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("merge")
    paths = []
    whole = {}
    for number, (head, lines, torn) in enumerate(written):
        path = stored(folder / f"{number}.jsonl", head, *lines)
        whole[head.run_id] = path.read_bytes()
        path.write_bytes(whole[head.run_id] + torn)
        paths.append(path)
    merged = merge(paths, folder / "all.jsonl")
    data = merged.path.read_bytes()
    parts = read_runs(merged.path)
    assert {run.manifest.run_id: data[run.first_byte : run.complete_bytes] for run in parts} == whole
    assert sum(len(part) for part in whole.values()) == len(data)
    for head, lines, _ in written:
        (part,) = (run for run in parts if run.manifest.run_id == head.run_id)
        assert part.manifest == head
        assert [*part.records] == [line for line in lines if isinstance(line, Record)]
        assert (part.finished is not None) == (END in lines)
        assert not part.torn
    assert [part.manifest.started for part in parts] == sorted(head.started for head, _, _ in written)
    assert sum("cut off and is left out" in note for note in merged.notes) == sum(
        bool(torn) for _, _, torn in written
    )


@settings(max_examples=25)  # each writes files and forces them to disk
@given(written=runs(), twice=st.lists(st.integers(0, 3), max_size=3))
def test_merging_again_changes_nothing(
    written: list[tuple[Manifest, list[Record | EndLine], bytes]],
    twice: list[int],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("again")
    paths = [stored(folder / f"{n}.jsonl", head, *lines) for n, (head, lines, _) in enumerate(written)]
    once = merge(paths, folder / "once.jsonl").path
    again = [once, *(paths[n] for n in twice if n < len(paths))]
    more = merge(again, folder / "more.jsonl")
    assert more.path.read_bytes() == once.read_bytes()
    assert len(more.notes) == len(again) - 1
    assert all("already, and is kept once" in note for note in more.notes)


def test_each_run_of_a_merged_file_is_a_family_of_its_own_and_names_its_machine(tmp_path: Path) -> None:
    one = stored(tmp_path / "one.jsonl", manifest("r1", cpu="Zen"), record(1.0), END)
    two = stored(tmp_path / "two.jsonl", manifest("r2", cpu="Xeon"), record(2.0), END)
    both = merge([one, two], tmp_path / "both.jsonl").path
    run = attnbench.load(both)
    assert run.paths == (both, both)
    assert [m.environment["cpu"] for m in run.manifests] == ["Zen", "Xeon"]
    assert run.by_file == ((record(1.0),), (record(2.0),))
    assert run.judged == attnbench.load([one, two]).judged
    assert run.unfinished == ()
    assert len(run.frame) == 2


def test_of_a_run_that_went_on_the_longer_copy_is_kept_and_that_is_said(tmp_path: Path) -> None:
    short = stored(tmp_path / "short.jsonl", manifest("r"), record())
    long = stored(tmp_path / "long.jsonl", manifest("r"), record(), record(backend="bmm"), END)
    for order in ([short, long], [long, short]):
        merged = merge(order, tmp_path / f"from_{order[0].stem}.jsonl")
        assert merged.path.read_bytes() == long.read_bytes()
        assert merged.notes == (f"{long}: the run r goes further here than in {short}, and is kept once",)


def test_copies_that_are_not_alike_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    one = stored(tmp_path / "one.jsonl", manifest("r"), record(1.0))
    two = stored(tmp_path / "two.jsonl", manifest("r"), record(2.0))
    with pytest.raises(BadFile, match=r"hold the run 'r' both, but not alike"):
        merge([one, two], tmp_path / "both.jsonl")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.jsonl", "two.jsonl"]


def test_a_file_that_stands_is_not_overwritten(tmp_path: Path) -> None:
    one = stored(tmp_path / "one.jsonl", manifest("r"), record())
    data = one.read_bytes()
    with pytest.raises(BadInput, match="exists; name another file"):
        merge([one], one)
    dangling = tmp_path / "link.jsonl"
    dangling.symlink_to(tmp_path / "nowhere")
    with pytest.raises(BadInput, match="exists; name another file"):
        merge([one], dangling)
    assert one.read_bytes() == data


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_comes_meanwhile_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    one = stored(tmp_path / "one.jsonl", manifest("r"), record())
    out = tmp_path / "out.jsonl"
    link = os.link

    def comes_first(source: Path, target: Path) -> None:
        out.write_text("mine")
        if not links:
            raise OSError(errno.EPERM, "no links here")
        link(source, target)

    monkeypatch.setattr(os, "link", comes_first)
    with pytest.raises(BadInput, match="exists; name another file"):
        merge([one], out)
    assert out.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.jsonl", "out.jsonl"]


def test_where_a_file_has_one_name_only_it_is_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    one = stored(tmp_path / "one.jsonl", manifest("r"), record())
    assert merge([one], tmp_path / "out.jsonl").path.read_bytes() == one.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.jsonl", "out.jsonl"]


@pytest.mark.parametrize("at_once", [1, 7, 2**20])
def test_runs_are_copied_and_compared_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr("attnbench.results.merge._AT_ONCE", at_once)
    whole = stored(tmp_path / "a.jsonl", manifest("r"), record())
    copy = stored(tmp_path / "b.jsonl", manifest("r"))
    merge([copy, whole], tmp_path / "new.jsonl")
    assert (tmp_path / "new.jsonl").read_bytes() == whole.read_bytes()
    copy.write_bytes(copy.read_bytes()[:-1] + b" \n")
    with pytest.raises(BadFile, match="but not alike"):
        merge([copy, whole], tmp_path / "other.jsonl")


def test_who_may_read_the_new_file_is_as_the_umask_says(tmp_path: Path) -> None:
    one = stored(tmp_path / "a.jsonl", manifest("r"), record())
    before = os.umask(0o077)
    try:
        merge([one], tmp_path / "new.jsonl")
    finally:
        os.umask(before)
    assert (tmp_path / "new.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    one = stored(tmp_path / "one.jsonl", manifest("r"), record())
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BadInput, match=r"can't write .*out.jsonl': No space left on device"):
        merge([one], tmp_path / "out.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["one.jsonl"]


def test_a_merged_file_is_not_gone_on_with(tmp_path: Path) -> None:
    paths = [stored(tmp_path / f"{name}.jsonl", manifest(name), record()) for name in "ab"]
    both = merge(paths, tmp_path / "both.jsonl").path
    data = both.read_bytes()
    for reading in (read_run, RunWriter.reopen):
        with pytest.raises(BadFile, match=r"holds 2 runs, as attnbench merge writes them: .*that one alone"):
            reading(both)
    assert both.read_bytes() == data
    assert read_run(merge(paths[:1], tmp_path / "one.jsonl").path).manifest.run_id == "a"


def test_damage_in_a_later_run_names_its_line(tmp_path: Path) -> None:
    paths = [stored(tmp_path / f"{name}.jsonl", manifest(name), record()) for name in "ab"]
    both = merge(paths, tmp_path / "both.jsonl").path
    data = both.read_bytes()
    both.write_bytes(data + b"rubbish\n")
    with pytest.raises(BadFile, match="line 5: damaged"):
        read_runs(both)
    both.write_bytes(data + data)
    with pytest.raises(BadFile, match="line 5: a second manifest of the run 'a', which would count twice"):
        read_runs(both)
    newer = manifest("c")
    stored(tmp_path / "newer.jsonl", replace(newer, format=99))
    both.write_bytes(data + (tmp_path / "newer.jsonl").read_bytes())
    with pytest.raises(BadFile, match="has format 99"):
        read_runs(both)


def test_of_a_merged_file_the_last_run_alone_can_be_torn(tmp_path: Path) -> None:
    paths = [stored(tmp_path / f"{name}.jsonl", manifest(name), record()) for name in "ab"]
    both = merge(paths, tmp_path / "both.jsonl").path
    both.write_bytes(both.read_bytes() + b'{"kind":"manif')
    assert [run.torn for run in read_runs(both)] == [False, True]
    assert attnbench.load(both).unfinished == (both,)
