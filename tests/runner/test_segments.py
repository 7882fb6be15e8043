"""Stretches of real processes: turns as ordered, and whoever fails in its turn fails alone."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from bench import ENOUGH_S, Bench, open_bench, take
from run_parts import PLAIN, by_backend, run_of

from attnbench.ipc import messages as m
from attnbench.results.format import StoredRun
from attnbench.runner import handoff as handoff
from attnbench.runner.link import WorkerFailed, WorkerLink
from attnbench.runner.pool import WorkerPool
from attnbench.types.record import Block

HERE = Path(__file__).parent
HONEST = ("honest1", "honest2", "honest3")
FAILURES = [
    ("third_abort", "crashed", "died of SIGABRT during timed calls"),
    ("third_exit_at_once", "crashed", "exited with status 3 during timed calls"),
    ("third_exit_politely", "crashed", r"the call called exit\(4\)"),
    ("third_raise_an_error", "error", "the call raised ValueError: not today"),
    ("third_tell_rubbish", "crashed", "the worker sent unreadable data during timed calls"),
    ("third_close_everything", "crashed", "exited with status 1|died of SIGKILL"),
]


@pytest.fixture(scope="module", autouse=True)
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where a backend reads whom to kill, known to all processes from their start."""
    with pytest.MonkeyPatch.context() as patch:
        path = tmp_path_factory.mktemp("victim") / "pid"
        patch.setenv("ODD_VICTIM", str(path))
        yield path


@pytest.fixture(scope="module")
def bench(victim: Path, pool: WorkerPool) -> Iterator[Bench]:
    with open_bench(pool) as opened:
        for name in (*HONEST, *(name for name, _, _ in FAILURES), "third_hang", "third_kill_the_victim"):
            opened.prepared_worker(name)
        yield opened


@pytest.fixture
def descriptors_kept(bench: Bench) -> Iterator[None]:
    """As many descriptors of this process afterwards as before."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    yield
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def end(links: dict[str, WorkerLink]) -> None:
    for link in links.values():
        link.kill()


def cpu_ns(pid: int) -> int:
    """What a process has had of all cores, by the system."""
    return time.clock_gettime_ns(~pid << 3 | 2)


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


# --- turns as ordered -----------------------------------------------------------------------------


def test_turns_are_taken_in_the_order_given_whatever_it_is(bench: Bench, descriptors_kept: None) -> None:
    links = bench.children(*HONEST)
    one, two, three = HONEST
    order = [two, one, one, three, two, one, one, one, two]
    done = take(order, links, number=5)
    assert done.failed == {}
    assert {name: block.turns for name, block in done.blocks.items()} == {
        name: [place for place, who in enumerate(order) if who == name] for name in HONEST
    }
    for block in done.blocks.values():
        assert (block.stretch, block.calls) == (5, 1)
        columns = (block.wall_ns, block.cpu_ns, block.switches, block.faults, block.asked_ns)
        assert {len(column) for column in columns} == {len(block.turns)}
    end(links)


def test_each_turn_takes_longer_by_the_clocks_around_it_than_its_sample(bench: Bench) -> None:
    links = bench.children("honest1", "honest2")
    done = take(["honest1", "honest2"] * 4, links, calls=50, warm_calls=10)
    for block in done.blocks.values():
        # Of the first and the last turn one side is the parent's, which may be asleep.
        inner = slice(1, None) if block.turns[0] == 0 else slice(-1)
        walls = block.wall_ns[inner]
        assert len(walls) == 3
        assert all(turn > wall for turn, wall in zip(block.asked_ns[inner], walls, strict=True))
    end(links)


def test_who_waits_for_the_baton_uses_no_core(bench: Bench) -> None:
    """One works for 0.3 s in each of five turns; the other has one before them and one after."""
    links = bench.children("honest1", "every_work_for_long")
    take(["honest1", "every_work_for_long"], links)
    before = {name: cpu_ns(link.pid) for name, link in links.items()}
    done = take(["honest1", *["every_work_for_long"] * 5, "honest1"], links)
    used = {name: cpu_ns(link.pid) - before[name] for name, link in links.items()}
    assert done.failed == {}
    assert used["every_work_for_long"] > 1_500_000_000
    # A message, two calls of microseconds and an answer: far less than a hundredth of the time it waited.
    assert used["honest1"] < used["every_work_for_long"] / 30
    end(links)


# --- whoever fails in its turn --------------------------------------------------------------------


@pytest.mark.parametrize(("name", "status", "reason"), FAILURES)
def test_who_fails_in_its_third_turn_fails_alone(
    bench: Bench, descriptors_kept: None, name: str, status: str, reason: str
) -> None:
    links = bench.children("honest1", name, "honest2")
    order = ["honest1", name, "honest2"] * 5
    done = take(order, links)
    assert {who: failed.status for who, failed in done.failed.items()} == {name: status}
    assert re.match(reason, done.failed[name].reason), done.failed[name].reason
    assert done.blocks == {}, "nobody's turns are complete"
    # The others can do it again, and hear nothing of what they did before.
    rest = {who: links[who] for who in ("honest1", "honest2")}
    again = take(["honest2", "honest1"] * 5, rest, number=1)
    assert again.failed == {}
    assert {who: block.turns for who, block in again.blocks.items()} == {
        "honest2": [0, 2, 4, 6, 8], "honest1": [1, 3, 5, 7, 9],
    }  # fmt: skip
    assert {block.stretch for block in again.blocks.values()} == {1}
    links[name].kill()
    assert is_gone(links[name].pid)
    end(links)


def test_who_hangs_with_the_baton_is_killed_and_fails_alone(
    bench: Bench, descriptors_kept: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handoff, "_CALLED_OFF_S", 2.0)
    links = bench.children("honest1", "third_hang", "honest2")
    # Time for the seven turns before it hangs, on a machine that is busy as well.
    done = take(["honest1", "third_hang", "honest2"] * 5, links, patience_s=4)
    assert {who: (failed.status, failed.reason) for who, failed in done.failed.items()} == {
        "third_hang": ("timeout", "timed calls took longer than 4 s; the worker was killed")
    }
    assert is_gone(links["third_hang"].pid)
    assert take(["honest1", "honest2"] * 2, {n: links[n] for n in ("honest1", "honest2")}).failed == {}
    end(links)


def test_one_that_is_dead_before_the_stretch_fails_alone(bench: Bench, descriptors_kept: None) -> None:
    links = bench.children("honest1", "honest2")
    os.kill(links["honest1"].pid, signal.SIGKILL)
    done = take(["honest1", "honest2"] * 3, links)
    assert {who: failed.status for who, failed in done.failed.items()} == {"honest1": "crashed"}
    assert done.failed["honest1"].reason == "died of SIGKILL during timed calls"
    assert take(["honest2"] * 3, {"honest2": links["honest2"]}).failed == {}
    end(links)


def test_who_is_in_its_turn_when_another_dies_may_end_it(
    bench: Bench, descriptors_kept: None, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be a call of minutes: it is no fault of its own that the stretch is called off meanwhile."""
    monkeypatch.setattr(handoff, "_CALLED_OFF_S", 0.0)
    links = bench.children("honest1", "third_kill_the_victim")
    victim.write_text(str(links["honest1"].pid))
    done = take(["honest1", "third_kill_the_victim"] * 5, links)
    assert {who: failed.reason for who, failed in done.failed.items()} == {
        "honest1": "died of SIGKILL during timed calls"
    }
    rest = {"third_kill_the_victim": links["third_kill_the_victim"]}
    assert take(["third_kill_the_victim"] * 2, rest).failed == {}
    end(links)


def test_when_time_is_over_and_all_are_well_it_is_who_was_in_its_turn(bench: Bench) -> None:
    """Not the others, who only waited, and not everyone."""
    links = bench.children("honest1", "every_work_for_long", "honest2")
    order = ["every_work_for_long", "honest1", "honest2"] * 20
    done = take(order, links, patience_s=0.05)
    assert {who: failed.status for who, failed in done.failed.items()} == {"every_work_for_long": "timeout"}
    assert done.failed["every_work_for_long"].reason == (
        "the segment took longer than 0.05 s, and was then in a slot of this backend"
    )
    assert not is_gone(links["every_work_for_long"].pid)
    assert take(["honest1", "honest2"], {n: links[n] for n in ("honest1", "honest2")}).failed == {}
    end(links)


# --- what is told of turns ------------------------------------------------------------------------


def asked_of(
    order: list[str], bounds: list[tuple[int, int]], waited: dict[str, int], overslept_ns: int = 0
) -> dict[str, list[int]]:
    """Turns by the clocks around them, of a stretch from 0 to 1000."""
    taken = {}
    for name in dict.fromkeys(order):
        own = [times for who, times in zip(order, bounds, strict=True) if who == name]
        count = len(own)
        block = Block(0, [*range(count)], 1, *[[1] * count] * 4, asked_ns=[])
        taken[name] = m.SlotsTaken(block, [a for a, _ in own], [b for _, b in own])
    blocks = handoff._with_asked(order, taken, 0, 1000, overslept_ns, waited)
    return {name: block.asked_ns for name, block in blocks.items()}


def test_a_turn_is_from_the_end_of_the_one_before_to_the_beginning_of_the_next() -> None:
    order, bounds = ["a", "b", "a", "c"], [(10, 200), (220, 400), (430, 600), (650, 900)]
    nothing = {"a": 0, "b": 0, "c": 0}
    assert asked_of(order, bounds, nothing) == {"a": [220, 250], "b": [230], "c": [400]}
    # Whatever one says of its own turns changes nothing of what they took.
    bounds[1] = (399, 400)
    assert asked_of(order, bounds, nothing)["b"] == [230]
    # The parent sees the first begin and the last end, and may do so late.
    assert asked_of(order, bounds, nothing, 15) == {"a": [384, 250], "b": [230], "c": [385]}
    # A wait is part of such a turn: when it was is not known.
    assert asked_of(order, bounds, {"a": 50, "b": 50, "c": 50}) == asked_of(order, bounds, nothing)


def test_turns_in_a_row_have_equal_shares_less_what_was_waited() -> None:
    order, bounds = ["a", "b", "b", "b", "a"], [(10, 100), (120, 200), (200, 300), (300, 390), (400, 900)]
    assert asked_of(order, bounds, {"a": 0, "b": 0}) == {"a": [120, 610], "b": [100] * 3}
    assert asked_of(order, bounds, {"a": 0, "b": 60}) == {"a": [120, 610], "b": [80] * 3}
    alone = asked_of(["a"] * 4, [(1, 2), (3, 4), (5, 6), (7, 8)], {"a": 200})
    assert alone == {"a": [200] * 4}
    alone = asked_of(["a"] * 4, [(1, 2), (3, 4), (5, 6), (7, 8)], {"a": 200}, 100)
    assert alone == {"a": [175] * 4}
    assert asked_of(["a"], [(1, 2)], {"a": 990}) == {"a": [10]}
    assert asked_of(["a"], [(1, 2)], {"a": 9999}) == {"a": [0]}


# --- through whole runs ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def with_failures(odd_plugins: None, tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    """One call a turn and no warm calls, so that a third call is a third turn."""
    names = [name for name, _, _ in FAILURES]
    return run_of(
        tmp_path_factory.mktemp("failures"), (PLAIN,), ("eager", "honest1", *names, "honest2"),
        budget_s=0.05, sets=3, turn_s=1e-9, warm_s=0,
    )  # fmt: skip


def test_in_a_run_each_drops_out_of_its_first_set(with_failures: StoredRun) -> None:
    first, *others = with_failures.sets
    assert {name: failure.status for name, failure in first.failed.items()} == {
        name: status for name, status, _ in FAILURES
    }
    assert all(line.failed == {} for line in others)
    records = by_backend(with_failures)
    for name, status, reason in FAILURES:
        record = records[name]
        assert (record.status, record.reason) == (status, first.failed[name].reason)
        assert re.match(reason, record.reason), record.reason
        assert record.median_ms is None


def test_in_a_run_the_others_are_measured_whole(with_failures: StoredRun) -> None:
    """A stretch that was called off leaves nothing: it is taken again."""
    (planned,) = with_failures.cases
    left = ["eager", "honest1", "honest2"]
    for line in with_failures.sets:
        assert sorted(line.blocks) == sorted(line.verified) == left
        for name in left:
            assert [block.stretch for block in line.blocks[name]] == [0, 1]
            samples = planned.contenders[name].samples
            assert [len(block.turns) for block in line.blocks[name]] == [samples] * 2
        for number in range(2):
            blocks = [block for blocks in line.blocks.values() for block in blocks if block.stretch == number]
            turns = sorted(turn for block in blocks for turn in block.turns)
            assert all(earlier + 1 == later for earlier, later in pairwise(turns))
            assert turns[0] == 0
    for name in left:
        assert by_backend(with_failures)[name].status == "ok"


PARENT = """
import sys
from bench import open_bench, take
from attnbench.runner.options import Options
from attnbench.runner.pool import WorkerPool

with WorkerPool(Options()) as shop, open_bench(shop) as bench:
    links = bench.children("honest1", "third_hang", "honest2")
    print(*(link.pid for link in links.values()), flush=True)
    take([*links] * 5, links, patience_s=1000)
"""


def test_when_the_parent_is_killed_nobody_goes_on_waiting_for_a_baton(odd_plugins: None) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([os.environ["PYTHONPATH"], str(HERE)])}
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=-1, env=environment) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 3
        children = [psutil.Process(pid) for pid in pids]
        # Each holds its batons: it was asked, and waits or hangs.
        while not all(has_a_baton(pid) for pid in pids):
            assert parent.poll() is None
        parent.kill()
    assert psutil.wait_procs(children, timeout=ENOUGH_S)[1] == [], "a child outlived its parent"


def has_a_baton(pid: int) -> bool:
    found = []
    for path in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append("eventfd" in str(path.readlink()))
        except FileNotFoundError:
            continue
    return any(found)


def test_a_worker_that_says_nothing_of_its_failure_is_not_waited_for_for_ever(bench: Bench) -> None:
    """Stopped, not ended: nothing comes from it, and its line stays open."""
    links = bench.children("honest1", "honest2")
    os.kill(links["honest2"].pid, signal.SIGSTOP)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handoff, "_CALLED_OFF_S", 2.0)
        done = take(["honest1", "honest2"] * 3, links, patience_s=0.2)
    assert {who: failed.status for who, failed in done.failed.items()} == {"honest2": "timeout"}
    with pytest.raises(WorkerFailed, match="died of SIGKILL"):
        links["honest2"].ask(m.WarmUp(), m.Warmed, ENOUGH_S)
    end(links)
