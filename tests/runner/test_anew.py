"""Every set draws its luck anew: which contenders are prepared anew, by which process, from what."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from run_parts import PLAIN, parent_of, run_of

from attnbench.ipc import messages as m
from attnbench.ipc.shared_memory import pack
from attnbench.runner.link import WorkerFailed
from attnbench.runner.options import Options
from attnbench.runner.plan import prepared_anew, sets_for
from attnbench.runner.pool import WorkerPool
from attnbench.types.extensions import Source

BACKENDS = Source("backends", "attnbench.backends", "attnbench", "0")
GONE = Source("gone", "no_such_module_anywhere", "gone", "1")


def test_what_prepares_quickly_is_prepared_anew() -> None:
    assert prepared_anew(40_000_000, 60_000_000)
    assert not prepared_anew(40_000_000, 60_000_001)


def test_the_plan_of_a_run_says_who_is_prepared_anew(tmp_path: Path) -> None:
    (planned,) = run_of(tmp_path, (PLAIN,), ("eager", "bmm"), sets=2).cases
    for contender in planned.contenders.values():
        assert contender.fresh
        assert contender.anew == (contender.prepare_ms + contender.first_call_ms <= 100)


def test_plugins_are_imported_once_and_forked_from_then_on() -> None:
    with WorkerPool(Options()) as pool:
        first = pool.new_worker(1, pool.all_cpus, (BACKENDS,))
        second = pool.new_worker(1, pool.all_cpus, (BACKENDS,))
        other = pool.new_worker(1, pool.all_cpus)
        # The mould of the first two is not the server, and there is one of it.
        parents = [parent_of(link.pid) for link in (first, second, other)]
        assert parents[0] == parents[1] != parents[2]
        maps = Path(f"/proc/{first.pid}/maps").read_text()
        assert "libtorch_cpu" in maps
        for link in (first, second, other):
            link.kill()


def test_a_plugin_that_does_not_import_is_told_by_who_prepares_it() -> None:
    no_parameters, specs = pack({}, "float32")
    with WorkerPool(Options()) as pool:
        prepared_worker = pool.new_worker(1, pool.all_cpus, (GONE,))
        request = m.Prepare(PLAIN, "mine", GONE, GONE, specs, None)
        with pytest.raises(WorkerFailed, match=r"gone 1 .* does not import"):
            prepared_worker.ask(request, m.Prepared, 60, (no_parameters,))
        prepared_worker.kill()
    os.close(no_parameters)


@pytest.mark.parametrize(
    ("budget_s", "sets"),
    [(0.001, 9), (0.249, 9), (0.25, 22), (1.999, 22), (2, 30), (3.9, 30), (4, 40), (99, 40)],
)
def test_sets_follow_from_the_budget(budget_s: float, sets: int) -> None:
    assert sets_for(budget_s) == sets
