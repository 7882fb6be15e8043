"""Segments of real processes: slots as ordered, and a worker that fails in its slot fails alone."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from run_parts import LESS_CHECKED, PLAIN

from attnbench.ipc import messages as m
from attnbench.ipc import verifier_messages as rm
from attnbench.plugins.registry import load_registry
from attnbench.runner import handoff
from attnbench.runner.check import give_draw
from attnbench.runner.context import CaseContext, open_context, prepare_worker
from attnbench.runner.machine import cpu_quota
from attnbench.runner.pool import WorkerPool
from attnbench.runner.processes import WorkerFailed, WorkerLink, threads_of
from attnbench.types.record import Accuracy, CandidatePlan

TWO_THREADS = "attention/dot/B1-H4-Lq256-Lk256-D64/none/float32/cpu/forward/threads2"
ENOUGH_S = 60.0
MEMORY_BYTES = 2 * 1024**3
RIGHT = Accuracy(0, 0, 0, 0, 1, 1, 1, 1, 1)


def cpu_ns(pid: int) -> int:
    """What a process has had of all cores, with all its threads, by the system."""
    return time.clock_gettime_ns(~pid << 3 | 2)


class Bench:
    """Prepared workers of backends, and forks of them on the measured core."""

    def __init__(self, pool: WorkerPool, context: CaseContext) -> None:
        self._pool, self._context = pool, context
        self._registry = load_registry()
        self._prepared: dict[str, WorkerLink] = {}

    @contextmanager
    def children(self, *names: str) -> Iterator[dict[str, WorkerLink]]:
        """A fork of each prepared worker, with inputs; ended afterwards, with every descriptor closed."""
        for name in names:
            self.prepared_worker(name)
        before = len(list(Path("/proc/self/fd").iterdir()))
        links = {name: self._child(name) for name in names}
        try:
            yield links
        finally:
            for link in links.values():
                link.kill()
        assert len(list(Path("/proc/self/fd").iterdir())) == before

    def _child(self, name: str) -> WorkerLink:
        timed = self.prepared_worker(name).fork(timed=True, cpus=self._pool.measured_cpus(1))
        give_draw(timed, self._context.draws[0], fresh=True)
        timed.put_first()
        return timed

    def kept(self, *names: str) -> dict[str, WorkerLink]:
        """The prepared workers themselves with inputs, for backends that cannot be forked."""
        links = {name: self.prepared_worker(name) for name in names}
        for link in links.values():
            give_draw(link, self._context.draws[0], fresh=True)
            link.pin(self._pool.measured_cpus(self._context.threads))
            link.put_first()
        return links

    def prepared_worker(self, name: str) -> WorkerLink:
        """The prepared worker of a backend, made once."""
        if name not in self._prepared:
            entry = self._registry.backends[name]
            self._prepared[name], _ = prepare_worker(self._pool, self._context, entry)
        return self._prepared[name]

    def close(self) -> None:
        for prepared_worker in self._prepared.values():
            prepared_worker.kill()


@contextmanager
def open_bench(pool: WorkerPool, case: str = PLAIN, threads: int = 1) -> Iterator[Bench]:
    """On a small case."""
    pool.start_servers(threads)
    source = load_registry().rules["dot"].source
    opening = rm.OpenCase(
        case, source, timed_entropy=1, timed_draws=2, oracle_flops=4e9, without=LESS_CHECKED
    )
    with ExitStack() as stack:
        verifier = stack.enter_context(pool.lent_verifier())
        context = stack.enter_context(open_context(verifier, opening, threads, MEMORY_BYTES))
        bench = Bench(pool, context)
        stack.callback(bench.close)
        yield bench


def take(
    order: Sequence[str], links: dict[str, WorkerLink], *, number: int = 0, patience_s: float = ENOUGH_S
) -> handoff.Segment:
    """Take a segment in this order, with one call in a slot."""
    slots = Counter(order)
    plans = {
        name: CandidatePlan(
            RIGHT, 0.0, 0.0, [0.1], fresh=True, calls=1, samples=slots[name], warm_calls=0, repetitions=1
        )
        for name in links
    }
    return handoff.take_segment(number, order, links, plans, patience_s)


@pytest.fixture(scope="module", autouse=True)
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file with the process that a backend kills, known to all processes from their start."""
    with pytest.MonkeyPatch.context() as patch:
        path = tmp_path_factory.mktemp("victim") / "pid"
        patch.setenv("ODD_VICTIM", str(path))
        yield path


@pytest.fixture(scope="module")
def bench(victim: Path, pool: WorkerPool) -> Iterator[Bench]:
    with open_bench(pool) as opened:
        yield opened


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def assert_rest_goes_on(links: dict[str, WorkerLink], failed: str) -> None:
    """The others take their slots again, whatever slots they had before."""
    rest = {name: link for name, link in links.items() if name != failed}
    again = take([*rest] * 5, rest, number=1)
    assert again.failed == {}
    assert {name: block.slots for name, block in again.samples.items()} == {
        name: [*range(place, 5 * len(rest), len(rest))] for place, name in enumerate(rest)
    }
    assert {block.segment for block in again.samples.values()} == {1}


def test_a_worker_that_waits_for_its_slot_uses_no_core(bench: Bench) -> None:
    """One works for 0.3 s in each of five slots; the other has one before them and one after."""
    with bench.children("honest1", "every_work_for_long") as links:
        take(["honest1", "every_work_for_long"], links)
        before = {name: cpu_ns(link.pid) for name, link in links.items()}
        done = take(["honest1", *["every_work_for_long"] * 5, "honest1"], links)
        used = {name: cpu_ns(link.pid) - before[name] for name, link in links.items()}
    assert done.failed == {}
    assert used["every_work_for_long"] > 1_500_000_000
    # A message, two calls of microseconds and an answer: far less than a hundredth of the time it waited.
    assert used["honest1"] < used["every_work_for_long"] / 30


@pytest.mark.skipif(cpu_quota() < 2, reason="needs two cores")
def test_no_thread_of_a_library_goes_on_spinning(pool: WorkerPool) -> None:
    """Left alone, those of torch do for 8 ms and those of numpy's BLAS for 100."""
    with open_bench(pool, TWO_THREADS, threads=2) as bench:
        links = bench.kept("eager", "numpy", "every_work_for_long")
        working = {"every_work_for_long": links.pop("every_work_for_long")}
        for name, link in links.items():
            assert take([name] * 5, {name: link}).failed == {}
            assert len(threads_of(link.pid)) >= 2, "several have worked"
            before = cpu_ns(link.pid)
            assert take([*working], working).failed == {}
            assert cpu_ns(link.pid) - before < 2_000_000, name


def test_a_worker_that_hangs_in_its_third_slot_fails_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handoff, "_CALLED_OFF_S", 2.0)
    with bench.children("honest1", "third_hang", "honest2") as links:
        # Time for the seven slots before it hangs, on a busy machine too.
        done = take(["honest1", "third_hang", "honest2"] * 5, links, patience_s=4)
        assert {name: (failed.status, failed.reason) for name, failed in done.failed.items()} == {
            "third_hang": ("timeout", "timed calls took longer than 4 s; the worker was killed")
        }
        assert done.samples == {}, "the slots of the others are incomplete too"
        assert_rest_goes_on(links, "third_hang")
        links["third_hang"].kill()
        assert is_gone(links["third_hang"].pid)


def test_a_worker_that_is_dead_before_the_segment_fails_alone(bench: Bench) -> None:
    with bench.children("honest1", "honest2") as links:
        os.kill(links["honest2"].pid, signal.SIGKILL)
        done = take(["honest1", "honest2"] * 3, links, patience_s=ENOUGH_S)
        statuses = {name: failed.status for name, failed in done.failed.items()}
        assert statuses == {"honest2": "crashed"}
        with pytest.raises(WorkerFailed, match="died of SIGKILL"):
            links["honest2"].ask(m.WarmUp(), m.Warmed, ENOUGH_S)
        assert_rest_goes_on(links, "honest2")


def test_a_worker_in_its_slot_may_end_it_when_another_dies(
    bench: Bench, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its call may take minutes, and it is not its fault that the segment is called off meanwhile."""
    monkeypatch.setattr(handoff, "_CALLED_OFF_S", 0.0)
    with bench.children("honest1", "third_kill_the_victim") as links:
        victim.write_text(str(links["honest1"].pid))
        done = take(["honest1", "third_kill_the_victim"] * 5, links)
        assert {name: failed.reason for name, failed in done.failed.items()} == {
            "honest1": "died of SIGKILL during timed calls"
        }
        assert_rest_goes_on(links, "honest1")


def test_when_the_time_is_over_the_worker_in_its_slot_fails(bench: Bench) -> None:
    """Not the others, which only waited."""
    with bench.children("honest1", "every_work_for_long", "honest2") as links:
        order = ["every_work_for_long", "honest1", "honest2"] * 20
        done = take(order, links, patience_s=0.05)
        assert {name: (failed.status, failed.reason) for name, failed in done.failed.items()} == {
            "every_work_for_long": (
                "timeout", "the segment took longer than 0.05 s, and was then in a slot of this backend",
            )
        }  # fmt: skip
        assert not is_gone(links["every_work_for_long"].pid)
        assert_rest_goes_on(links, "every_work_for_long")
