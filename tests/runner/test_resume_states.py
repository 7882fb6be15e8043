"""A run is cut off at every kind of place, by taking lines from the end of its file, and goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from run_parts import CAUSAL, PLAIN, run_of

import attnbench
from attnbench.plugins.registry import Registry, load_registry
from attnbench.results.format import StoredRun, read_run
from attnbench.runner.progress import Moment
from attnbench.runner.run import resume_run
from attnbench.types.errors import BadFile, BadInput

NAMES = ("eager", "bmm", "fused_multihead")
SETS = 2


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    return run_of(tmp_path_factory.mktemp("whole"), (PLAIN, CAUSAL), NAMES, named=NAMES, sets=SETS)


def kinds(path: Path) -> list[str]:
    return [json.loads(line)["kind"] for line in path.read_text().splitlines()]


ONE_CASE = ["record", "case", "set", "set", "record", "record"]


def test_the_lines_of_a_run_come_in_this_order(whole: StoredRun) -> None:
    """What the cuts below count on."""
    assert kinds(whole.path) == ["manifest", *ONE_CASE, *ONE_CASE, "end"]


def outcome(stored: StoredRun) -> set[tuple[str, str, str, str, int]]:
    return {(r.case, r.backend, r.status, r.reason, r.sets) for r in stored.records}


@pytest.mark.parametrize(
    ("kept", "sets_measured"),
    [
        pytest.param(1, 4, id="only the manifest"),
        pytest.param(3, 4, id="the plan"),
        pytest.param(5, 2, id="all sets of a case and none of its records"),
        pytest.param(6, 2, id="some of the records"),
        pytest.param(13, 0, id="everything but the end"),
    ],
)
def test_it_goes_on_from_there(whole: StoredRun, tmp_path: Path, kept: int, sets_measured: int) -> None:
    path = tmp_path / "run.jsonl"
    lines = whole.path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:kept]))
    told: list[Moment] = []
    assert attnbench.load(path).unfinished == (path,)
    run = attnbench.resume(path, progress=told.append)
    again = read_run(path)
    assert path.read_bytes().startswith(b"".join(lines[:kept])), "what was there is as it was"
    assert outcome(again) == outcome(whole)
    assert len(again.records) == len(NAMES) * 2
    assert [(line.case, line.index) for line in again.sets] == [(s.case, s.index) for s in whole.sets]
    assert sum(moment.doing.startswith("set ") for moment in told) == sets_measured
    assert run.unfinished == ()
    assert run.records == again.records
    assert kinds(path)[-1] == "end"


def test_with_all_sets_there_the_records_follow_from_them_alone(whole: StoredRun, tmp_path: Path) -> None:
    """The very numbers of the unbroken run, though checks and memory are done anew."""
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(whole.path.read_bytes().splitlines(keepends=True)[:5]))
    attnbench.resume(path)
    of_first = {r.backend: r for r in whole.records if r.case == PLAIN}
    for record in read_run(path).records:
        if record.case == PLAIN and record.status == "ok":
            first = of_first[record.backend]
            for name in ("median_ms", "ratio", "timed_calls", "tflops", "accuracy", "warmup_ms"):
                assert getattr(record, name) == getattr(first, name), name


def test_a_check_goes_on_too(tmp_path: Path) -> None:
    path = tmp_path / "check.jsonl"
    run_of(path, (PLAIN, CAUSAL), NAMES, timed=False)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:5]))
    run = attnbench.resume(path)
    assert [(r.case, r.backend, r.status, r.median_ms) for r in run.records] == [
        (case, name, status, None)
        for case in (PLAIN, CAUSAL)
        for name, status in (("fused_multihead", "unsupported"), ("eager", "ok"), ("bmm", "ok"))
    ]


def without_backend(registry: Registry) -> None:
    del registry.backends["bmm"]


def without_rule(registry: Registry) -> None:
    del registry.rules["dot"]


@pytest.mark.parametrize(
    ("remove", "begins"),
    [(without_backend, "no backend 'bmm'; "), (without_rule, "no rule 'dot'; ")],
)
def test_a_plugin_that_is_gone_is_a_sentence_and_leaves_the_file_alone(
    whole: StoredRun, tmp_path: Path, remove: Callable[[Registry], None], begins: str
) -> None:
    path = tmp_path / "run.jsonl"
    data = b"".join(whole.path.read_bytes().splitlines(keepends=True)[:4])
    path.write_bytes(data)
    registry = load_registry()
    remove(registry)
    with pytest.raises(BadInput) as caught:
        resume_run(path, registry, None)
    assert str(caught.value).startswith(begins)
    assert path.read_bytes() == data


def test_a_baseline_that_does_not_exist_is_refused_as_in_a_new_run(whole: StoredRun, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    data = b"".join(whole.path.read_bytes().splitlines(keepends=True)[:4])
    data = data.replace(b'"baseline":"eager"', b'"baseline":"nosuch"', 1)
    path.write_bytes(data)
    with pytest.raises(BadInput, match=r"^no backend 'nosuch'; "):
        resume_run(path, load_registry(), None)
    assert path.read_bytes() == data


@pytest.mark.parametrize(
    "damage",
    [{"unheard_of": 1}, {"sets": 0}, {"sets": "many"}, {"budget_s": None}],
    ids=["a dial of another version", "an impossible dial", "a word for a number", "nothing for a number"],
)
def test_dials_that_are_none_are_a_sentence(
    whole: StoredRun, tmp_path: Path, damage: dict[str, object]
) -> None:
    manifest, *rest = whole.path.read_text().splitlines(keepends=True)
    changed = json.loads(manifest)
    changed["protocol"] |= damage
    path = tmp_path / "run.jsonl"
    path.write_text(json.dumps(changed) + "\n" + rest[0])
    with pytest.raises((BadFile, BadInput)):
        attnbench.resume(path)
