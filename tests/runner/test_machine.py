"""What the machine has, and how its cores are shared between what is measured and the rest."""

from __future__ import annotations

import getpass
import json
import math
import platform
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.plugins.registry import Entry
from attnbench.runner import machine
from attnbench.runner.machine import (
    allowed_cpus,
    busy_warning,
    check_threads,
    cpu_quota,
    environment,
    sharing_note,
    split_cpus,
    watch_cores,
)
from attnbench.runner.processes import wait_until_ended
from attnbench.runner.run import plugin_facts
from attnbench.types.errors import BadInput
from attnbench.types.extensions import EnvironmentFact, Source


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Eight cores, and folders for /proc and /sys/fs/cgroup of a machine that isn't there."""
    monkeypatch.setattr(machine, "allowed_cpus", lambda: tuple(range(8)))
    proc, cgroup = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    cgroup.mkdir()
    return proc, cgroup


def groups(proc: Path, text: str) -> None:
    (proc / "self" / "cgroup").write_text(text)


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"cpu.{name}").write_text(text)


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("max 100000\n", 8),
        ("300000 100000\n", 3),
        ("250000 100000\n", 2),  # nothing can be pinned to half a core
        ("50000 100000\n", 1),  # but there is always one
        ("6400000 100000\n", 8),  # a larger quota gives no more cores
        ("200000 50000\n", 4),
        ("", 8),
        ("nonsense\n", 8),
        ("100000 0\n", 8),
    ],
)
def test_the_quota_of_the_control_group_counts(system: tuple[Path, Path], text: str, cores: int) -> None:
    proc, cgroup = system
    # A container may see the name that the host gave its group, and only the root.
    groups(proc, "0::/system.slice/docker-abc.scope\n" if cores == 3 else "0::/\n")
    write(cgroup, max=text)
    assert cpu_quota(proc, cgroup) == cores


def test_the_least_quota_of_all_groups_around_this_process_counts(system: tuple[Path, Path]) -> None:
    """The root has no cpu.max; a service's is on a slice above the group it runs in."""
    proc, cgroup = system
    assert cpu_quota(proc, cgroup) == 8
    groups(proc, "0::/a.slice/b.service/c\n")
    service = cgroup / "a.slice" / "b.service"
    steps = [(service / "c", "max", 8), (cgroup / "a.slice", "300000", 3), (service, "500000", 3)]
    steps += [(service / "c", "200000", 2), (cgroup / "another.slice", "100000", 2)]
    for folder, quota, cores in steps:
        write(folder, max=f"{quota} 100000\n")
        assert cpu_quota(proc, cgroup) == cores


@pytest.mark.parametrize("folder", ["cpu,cpuacct", "cpu"])
def test_version_1_has_its_quota_in_two_files(system: tuple[Path, Path], folder: str) -> None:
    proc, cgroup = system
    groups(proc, "7:memory:/box\n4:cpu,cpuacct:/box/inner\n0::/\n")
    write(cgroup / folder, cfs_quota_us="-1\n", cfs_period_us="100000\n")
    write(cgroup / folder / "box" / "inner", cfs_quota_us="-1\n", cfs_period_us="100000\n")
    assert cpu_quota(proc, cgroup) == 8
    write(cgroup / folder / "box", cfs_quota_us="250000\n", cfs_period_us="50000\n")
    write(cgroup / "memory" / "box", cfs_quota_us="100000\n", cfs_period_us="100000\n")
    assert cpu_quota(proc, cgroup) == 5


def test_version_2_beside_version_1_is_read_where_it_is(system: tuple[Path, Path]) -> None:
    proc, cgroup = system
    groups(proc, "1:cpu:/\n0::/x\n")
    write(cgroup / "cpu", cfs_quota_us="-1\n", cfs_period_us="100000\n")
    write(cgroup / "unified" / "x", max="600000 100000\n")
    assert cpu_quota(proc, cgroup) == 6


def test_systems_that_pin_nothing_are_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.sched_getaffinity")
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    with pytest.raises(
        BadInput, match=r"^attnbench measures on Linux only, and this is Darwin: use a container"
    ):
        allowed_cpus()


def test_affinity_limits_the_quota() -> None:
    """A process pinned to one core has one, whatever the machine has."""
    script = "from attnbench.runner.machine import *; print(cpu_quota(), allowed_cpus(), split_cpus((3,), 1))"
    core = allowed_cpus()[-1]
    done = subprocess.run(
        [sys.executable, "-c", f"import os; os.sched_setaffinity(0, [{core}]); {script}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == f"1 ({core},) ((3,), (3,))\n"


@pytest.mark.parametrize(
    ("quota", "threads", "sentence"),
    [
        (1, 2, "2 threads: this process has 1 core; use 1 or fewer"),
        (4, 9, "9 threads: this process has 4 cores; use 4 or fewer"),
    ],
)
def test_more_threads_than_cores_are_refused(
    monkeypatch: pytest.MonkeyPatch, quota: int, threads: int, sentence: str
) -> None:
    monkeypatch.setattr(machine, "cpu_quota", lambda: quota)
    check_threads(quota)
    with pytest.raises(BadInput) as caught:
        check_threads(threads)
    assert str(caught.value) == sentence


@given(st.sets(st.integers(0, 255), min_size=1, max_size=16).map(lambda s: tuple(sorted(s))), st.data())
def test_cores_are_split_so_that_nothing_else_runs_where_it_is_measured(
    cpus: tuple[int, ...], data: st.DataObject
) -> None:
    threads = data.draw(st.integers(1, len(cpus)))
    measured, rest = split_cpus(cpus, threads)
    assert len(measured) == threads
    assert set(measured) <= set(cpus)
    if threads < len(cpus):
        assert sorted(measured + rest) == list(cpus)
        # The first core serves most interrupts: it is the last to be measured on.
        assert cpus[0] in rest
    else:
        assert measured == rest == cpus


def test_the_facts_of_the_machine_name_neither_user_nor_host() -> None:
    facts = environment()
    told = json.dumps(facts)
    assert facts["python"] == platform.python_version()
    assert facts["cpus_allowed"] == list(allowed_cpus())
    assert 1 <= facts["cpu_quota"] <= len(facts["cpus_allowed"])
    assert facts["memory_bytes"] > 2**28
    assert facts["libraries"]["torch"]
    assert facts["libraries"]["numpy"]
    for secret in (getpass.getuser(), socket.gethostname(), str(Path.home())):
        assert f'"{secret}"' not in told
    assert socket.gethostname() not in facts["system"]


def test_outside_a_repository_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert environment()["git_commit"] is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment()["git_commit"] is None


def test_a_zombie_has_ended_and_a_living_process_has_not() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with process:
        assert not wait_until_ended(process.pid, 0.0)
        process.kill()
        assert wait_until_ended(process.pid, 30)
        # Nobody has waited for it yet: there is still a zombie, whose end can be told.
        assert process.wait(0) == -signal.SIGKILL
    assert wait_until_ended(process.pid, 0.0)


# --- cores that other work uses -------------------------------------------------------------------


def test_the_share_of_each_core_is_told() -> None:
    shares = watch_cores(0.02)
    assert set(allowed_cpus()) <= set(shares)
    assert all(0 <= share <= 1 for share in shares.values())


@pytest.mark.parametrize(
    ("threads", "shares", "words"),
    [
        (1, {0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0}, ""),  # samples that lost time are left out
        (2, {0: 1.0, 1: 0.9, 2: 0.19, 3: 0.0}, ""),  # the last two are measured
        (2, {}, ""),  # it is not known
        (
            3, {0: 1.0, 1: 0.634, 2: 0.0, 3: 0.21},
            "3 threads are going to share cores with other work (core 1 is 63% busy, core 3 is 21%",
        ),
    ],
)  # fmt: skip
def test_several_threads_on_busy_cores_are_warned_of(
    threads: int, shares: dict[int, float], words: str
) -> None:
    warning = busy_warning(threads, (0, 1, 2, 3), shares)
    assert warning.startswith(words)
    assert bool(warning) == bool(words)


def test_a_record_says_where_no_core_is_left_for_attnbench() -> None:
    assert sharing_note((0, 1, 2), 2) == ""
    assert sharing_note((0, 1), 2) == (
        "measured on all 2 cores of this process, which attnbench's own process shares"
    )
    assert sharing_note((5,), 1).startswith("measured on the only core of this process")


# --- what plugins state of the machine --------------------------------------------------------------

SOURCE = Source("mini", "mini_facts", "attnbench-mini", "1.0")
OTHER = Source("other", "other_facts", "other", "2.0")
NEEDED = "where a text, a finite number, true, false or None is needed"


def entry(read: Any, name: str = "turbo", source: Source = SOURCE) -> Entry[EnvironmentFact]:
    return Entry(EnvironmentFact(name, "a test", read), source)


def test_facts_stand_under_the_distribution_that_reads_them() -> None:
    values = {"turbo": True, "cores": 4, "share": 0.5, "name": " a\nname ", "unknown": None}
    entries = [entry(lambda value=value: value, name) for name, value in values.items()]
    stated = plugin_facts([*entries, entry(lambda: "x", "theirs", OTHER)])
    assert stated == {
        "attnbench-mini": {"turbo": True, "cores": 4, "share": 0.5, "name": "a name", "unknown": None},
        "other": {"theirs": "x"},
    }
    assert json.loads(json.dumps(stated)) == stated


class Odd(float):
    pass


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (lambda: 1 / 0, "raised ZeroDivisionError: division by zero"),
        (lambda: sys.exit(2), "raised SystemExit: 2"),
        (lambda needed: 1, "raised TypeError: <lambda>() missing 1 required positional argument: 'needed'"),
        (lambda: math.nan, f"gave nan, {NEEDED}"),
        (lambda: {"a": 1}, f"gave {{'a': 1}}, {NEEDED}"),
        (lambda: 2**63, f"gave 9223372036854775808, {NEEDED}"),
        (lambda: Odd(1.5), f"gave 1.5, {NEEDED}"),
    ],
)
def test_one_that_fails_is_told_and_left_out(
    read: Any, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plugin_facts([entry(read), entry(lambda: 1, "other")]) == {"attnbench-mini": {"other": 1}}
    said = f"the fact 'turbo' {words}; the run goes without it"
    assert capsys.readouterr().err == f"attnbench: plugin attnbench-mini 1.0 (mini_facts): {said}\n"
