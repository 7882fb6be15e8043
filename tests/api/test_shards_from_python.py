"""Shards that are run, cut off, resumed and put together measure each case once."""

from __future__ import annotations

from pathlib import Path

import attnbench
from attnbench.cli.merge import shard_notes
from attnbench.results.merge import merge
from attnbench.types.errors import BadInput

CASES = [f"attention/dot/H1-L{length}-D4" for length in (7, 8, 9, 10)]


def test_shards_resume_and_make_up_the_whole(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.jsonl" for number in (1, 2)]
    runs = [
        attnbench.run(CASES, ["eager", "bmm"], timed=False, shard=f"{number}/2", out=path)
        for number, path in enumerate(paths, 1)
    ]
    whole = [case for run in runs for case in run.manifests[0].cases]
    assert len(set(whole)) == len(whole) == len(CASES)
    paths[0].write_bytes(b"".join(paths[0].read_bytes().splitlines(keepends=True)[:2]))
    again = attnbench.resume(paths[0])
    assert again.manifests[0] == runs[0].manifests[0]
    assert {(one.case, one.backend) for one in again.records} == {
        (one.case, one.backend) for one in runs[0].records
    }
    merged = merge(paths, tmp_path / "all.jsonl")
    assert list(shard_notes(merged.runs)) == []
    assert sorted(one.case for one in attnbench.load(merged.path).records) == sorted(2 * whole)


def test_an_empty_shard_is_refused_in_words(tmp_path: Path) -> None:
    said = []
    for number in (1, 2):
        try:
            attnbench.run(CASES[0], ["eager"], timed=False, shard=f"{number}/2", out=tmp_path)
        except BadInput as failure:
            said.append(str(failure) == f"nothing to run: no cases in shard {number}/2")
    assert said == [True]
