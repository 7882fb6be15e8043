"""How candidates are measured: on one core, put first there, in random order, with balanced turns."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from run_parts import PLAIN, declared, run_of, six_turns

from attnbench.plugins.registry import load_registry
from attnbench.results.format import StoredRun
from attnbench.runner import link
from attnbench.runner.machine import allowed_cpus
from attnbench.types.record import SetLine

TWINS = ("honest1", "honest2", "honest3")
TELLS = "every_tell_where_it_runs"


def turns_of(line: SetLine, stretch: int = 0) -> list[str]:
    """Who was measured in each turn of a stretch."""
    taken = [
        (turn, name)
        for name, blocks in line.blocks.items()
        for block in blocks
        if block.stretch == stretch
        for turn in block.turns
    ]
    return [name for _, name in sorted(taken)]


def notes_of(folder: Path, patch: pytest.MonkeyPatch, **options: Any) -> list[dict[str, Any]]:
    """What each timed process of a run said of where it runs."""
    notes = folder / "notes"
    notes.mkdir()
    patch.setenv("ODD_NOTES", str(notes))
    stored = run_of(folder / "run", (PLAIN,), ("honest1", TELLS), sets=2, **options)
    assert {record.status for record in stored.records} == {"ok"}, [r.reason for r in stored.records]
    said = [json.loads(path.read_text()) for path in notes.iterdir()]
    assert len(said) == 2
    return said


def may_raise_priorities() -> bool:
    """Whether a process of ours may be given the highest priority: tried on one that is ended at once."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setpriority(os.PRIO_PROCESS, 0, link.HIGHEST_PRIORITY)
        except OSError:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    return status == 0


def test_contenders_are_pinned_to_one_core_and_put_first_there(
    odd_plugins: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First where the system allows it."""
    cores, mine = allowed_cpus(), os.getpriority(os.PRIO_PROCESS, 0)
    raised = link.HIGHEST_PRIORITY if may_raise_priorities() else mine
    for said in notes_of(tmp_path, monkeypatch):
        assert said == {"cpus": [cores[-1]], "nice": raised}
    assert allowed_cpus() == cores, "the parent has its cores back"
    assert os.getpriority(os.PRIO_PROCESS, 0) == mine


def test_where_priorities_may_not_be_raised_contenders_are_measured_without(
    odd_plugins: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = os.getpriority(os.PRIO_PROCESS, 0)

    def refuse(*ignored: int) -> None:
        raise PermissionError("Operation not permitted")

    monkeypatch.setattr(link.os, "setpriority", refuse)
    for said in notes_of(tmp_path, monkeypatch):
        assert said["nice"] == mine


@pytest.fixture(scope="module")
def usual(odd_plugins: None, tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    return run_of(tmp_path_factory.mktemp("usual"), (PLAIN,), TWINS, **six_turns(8))


def test_starts_are_in_random_order_and_turns_balanced(usual: StoredRun) -> None:
    assert len({tuple(line.order) for line in usual.sets}) > 1
    turns = [turns_of(line, stretch) for line in usual.sets for stretch in range(2)]
    assert len({tuple(order) for order in turns}) > 1
    assert all(before != after for order in turns for before, after in pairwise(order))
    assert {len(order) for order in turns} == {18}
    assert any(order[:3] != order[3:6] for order in turns)


@pytest.mark.slow
@pytest.mark.parametrize("forkable", [True, False])
def test_a_pinned_allocator_keeps_what_a_call_frees(
    odd_plugins: None, tmp_path: Path, forkable: bool
) -> None:
    """64 MiB: without it the system gives and clears thousands of pages in each call."""
    name = "takes_64_mib"
    registry = declared(load_registry(), name, forkable=forkable)
    faults = {}
    for pinned in (True, False):
        stored = run_of(
            tmp_path / str(pinned), (PLAIN,), (name,), registry=registry, allocator_pinned=pinned
        )  # fmt: skip
        (record,) = stored.records
        assert record.status == "ok", record.reason
        assert record.faults_per_call is not None
        faults[pinned] = record.faults_per_call
    # In huge pages, where the system gives them, it's 32.
    assert faults[False] > 20
    assert faults[True] < faults[False] / 20
