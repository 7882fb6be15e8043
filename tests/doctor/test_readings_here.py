"""What the doctor reads on the machine it runs on, with disturbances that are really there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from attnbench.doctor.examine import examine
from attnbench.doctor.probe import _faulting
from attnbench.doctor.readings import Readings, probe, read_machine
from attnbench.runner.machine import allowed_cpus, cpu_quota


@pytest.fixture(scope="module")
def disturbed() -> Iterator[Readings]:
    """This machine, asked for more threads than it has, the allocator left alone, one core kept busy."""
    core = allowed_cpus()[-1]
    code = f"import os\nos.sched_setaffinity(0, {{{core}}})\nprint(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as busy:
        assert busy.stdout is not None
        busy.stdout.readline()
        try:
            yield read_machine(cpu_quota() + 1, "default")
        finally:
            busy.kill()


def test_a_core_that_is_kept_busy_is_named(disturbed: Readings) -> None:
    core = allowed_cpus()[-1]
    named = [f for f in examine(disturbed) if f.name == "busy core" and f.what.startswith(f"core {core},")]
    assert [finding.level for finding in named] == ["bad"]
    assert "a program there gets" in named[0].effect


def test_threads_over_the_quota_are_named_with_their_effect(disturbed: Readings) -> None:
    finding = next(f for f in examine(disturbed) if f.name == "threads")
    assert finding.level == "bad"
    assert finding.remedy == f"ask for --threads {cpu_quota()} or fewer"
    assert "the time with one" in finding.effect


def test_default_thresholds_fault_and_pinned_ones_do_not(disturbed: Readings) -> None:
    if disturbed.pinned is None or not disturbed.pinned["taken"]:
        pytest.skip("this C library has no thresholds to pin")
    assert disturbed.unpinned is not None
    assert 2 * max(disturbed.pinned["faults"]) < max(disturbed.unpinned["faults"])
    finding = next(f for f in examine(disturbed) if f.name == "allocator")
    assert finding.level == "bad"


def test_what_is_read_is_told_before(disturbed: Readings) -> None:
    assert disturbed.cpus == allowed_cpus()
    assert disturbed.libraries is not None
    assert disturbed.libraries["torch"].startswith("2.")
    assert set(disturbed.steady) == set(allowed_cpus())


def test_a_probe_that_fails_is_none() -> None:
    assert probe("no_such_probe") is None
    assert probe("steady", "no_core") is None
    assert os.sched_getaffinity(0) == set(allowed_cpus())


def test_a_heap_that_grows_once_more_is_no_fault_of_its_thresholds(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = iter([(0, 1.0)] * 4 + [(2048, 9.0)] + [(0, 1.0)] * 3)
    monkeypatch.setattr("attnbench.doctor.probe._naive", lambda q: q)
    monkeypatch.setattr("attnbench.doctor.probe._counted", lambda call: next(calls))
    assert _faulting(0) == {"ms": 1.0, "faults": 0.0}
