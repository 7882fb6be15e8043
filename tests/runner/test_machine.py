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
from attnbench.runner.processes import wait_until_ended
from attnbench.runner.processor import cpu_details, largest_cache_bytes
from attnbench.runner.run import plugin_facts
from attnbench.types.errors import BadInput
from attnbench.types.extensions import EnvironmentFact, Source


def group(folder: str, **files: str) -> dict[str, str]:
    return {f"cgroup/{folder}/cpu.{name}": f"{text}\n" for name, text in files.items()}


ROOT = {"proc/self/cgroup": "0::/\n"}
SERVICE = {"proc/self/cgroup": "0::/a.slice/b.service/c\n"} | group("a.slice/b.service/c", max="max 100000")
SLICE = SERVICE | group("a.slice", max="300000 100000")
BOX = {"proc/self/cgroup": "7:memory:/box\n4:cpu,cpuacct:/box/inner\n0::/\n"}
NONE = {"cfs_quota_us": "-1", "cfs_period_us": "100000"}


def version_1(folder: str, **box: str) -> dict[str, str]:
    """No group has a quota but that of the box, if it is given."""
    inner = BOX | group(folder, **NONE) | group(f"{folder}/box/inner", **NONE)
    return inner | (group(f"{folder}/box", **box) | group("memory/box", max="100000 100000") if box else {})


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 8),
        (ROOT | group("", max="max 100000"), 8),
        # A container may see the name that the host gave its group, and only the root.
        ({"proc/self/cgroup": "0::/system.slice/docker-abc.scope\n"} | group("", max="300000 100000"), 3),
        (ROOT | group("", max="250000 100000"), 2),  # nothing can be pinned to half a core
        (ROOT | group("", max="50000 100000"), 1),  # but there is always one
        (ROOT | group("", max="6400000 100000"), 8),  # a larger quota gives no more cores
        (ROOT | group("", max="200000 50000"), 4),
        (ROOT | group("", max=""), 8),
        (ROOT | group("", max="nonsense"), 8),
        (ROOT | group("", max="100000 0"), 8),
        # The root has no cpu.max; a service's is on a slice above the group it runs in.
        (SERVICE, 8),
        (SLICE | group("a.slice/b.service", max="500000 100000"), 3),
        (SLICE | group("a.slice/b.service/c", max="200000 100000"), 2),
        (SLICE | group("another.slice", max="100000 100000"), 3),
        # Version 1 has its quota in two files, and version 2 may stand beside it.
        *((version_1(folder), 8) for folder in ("cpu,cpuacct", "cpu")),
        *((version_1(at, cfs_quota_us="250000", cfs_period_us="50000"), 5) for at in ("cpu,cpuacct", "cpu")),
        (
            {"proc/self/cgroup": "1:cpu:/\n0::/x\n"}
            | group("cpu", **NONE) | group("unified/x", max="600000 100000"),
            6,
        ),
    ],
)  # fmt: skip
def test_the_least_quota_of_all_groups_around_this_process_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], cores: int
) -> None:
    monkeypatch.setattr(machine, "allowed_cpus", lambda: tuple(range(8)))
    (tmp_path / "cgroup").mkdir()
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert machine.cpu_quota(tmp_path / "proc", tmp_path / "cgroup") == cores


def test_affinity_limits_the_quota() -> None:
    """A process pinned to one core has one, whatever the machine has."""
    script = "from attnbench.runner.machine import *; print(cpu_quota(), allowed_cpus(), split_cpus((3,), 1))"
    core = machine.allowed_cpus()[-1]
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
    machine.check_threads(quota)
    with pytest.raises(BadInput) as caught:
        machine.check_threads(threads)
    assert str(caught.value) == sentence


@given(st.sets(st.integers(0, 255), min_size=1, max_size=16).map(lambda s: tuple(sorted(s))), st.data())
def test_cores_are_split_so_that_nothing_else_runs_where_it_is_measured(
    cpus: tuple[int, ...], data: st.DataObject
) -> None:
    threads = data.draw(st.integers(1, len(cpus)))
    measured, rest = machine.split_cpus(cpus, threads)
    assert len(measured) == threads
    assert set(measured) <= set(cpus)
    if threads < len(cpus):
        assert sorted(measured + rest) == list(cpus)
        # The first core serves most interrupts: it is the last to be measured on.
        assert cpus[0] in rest
    else:
        assert measured == rest == cpus


def test_the_facts_of_the_machine_name_neither_user_nor_host() -> None:
    facts = machine.environment()
    told = json.dumps(facts)
    assert facts["python"] == platform.python_version()
    assert facts["cpus_allowed"] == list(machine.allowed_cpus())
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
    assert machine.environment()["git_commit"] is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.environment()["git_commit"] is None


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
    shares = machine.watch_cores(0.02)
    assert set(machine.allowed_cpus()) <= set(shares)
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
    warning = machine.busy_warning(threads, (0, 1, 2, 3), shares)
    assert warning.startswith(words)
    assert bool(warning) == bool(words)


def test_a_record_says_where_no_core_is_left_for_attnbench() -> None:
    assert machine.sharing_note((0, 1, 2), 2) == ""
    assert machine.sharing_note((0, 1), 2) == (
        "attnbench itself shared all 2 cores with this backend, so its time may be too long; fewer threads "
        "leave it a core"
    )
    assert machine.sharing_note((5,), 1).endswith("only core with this backend, so its time may be too long")


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


def test_variables_that_change_kernels_are_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that attnbench sets for its workers are none: what the user says there changes nothing.

    Those of a launcher of jobs are none either.
    """
    for name in machine.server_environment(2):
        monkeypatch.setenv(name, "9")
    before = machine.environment()["variables"]
    monkeypatch.setenv("OMP_THREAD_LIMIT", "1")
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    for name in ("A_PASSWORD", "OMPI_COMM_WORLD_RANK", "TORCHELASTIC_RUN_ID"):
        monkeypatch.setenv(name, "of this job")
    found = {"OMP_THREAD_LIMIT": "1", "MKL_CBWR": "COMPATIBLE"}
    assert machine.environment()["variables"] == before | found


X86 = """processor\t: 0
cpu family\t: 26
model\t\t: 2
model name\t: AMD EPYC
flags\t\t: fpu avx avx2 avx512f avx512_bf16

processor\t: 1
cpu family\t: 27
"""
ARM = "CPU implementer\t: 0x41\nCPU part\t: 0xd40\nFeatures\t: fp asimd sve\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (X86, "family 26 model 2, caches 48K 1M, AVX-512 BF16"),
        (ARM, "implementer 0x41 part 0xd40, caches 48K 1M, SVE"),
        ("", "caches 48K 1M"),
    ],
)
def test_a_processor_is_known_by_what_it_can(tmp_path: Path, text: str, words: str) -> None:
    for number, (level, kind, size) in enumerate(
        [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "1024K")]
    ):
        folder = tmp_path / "cache" / f"index{number}"
        folder.mkdir(parents=True)
        for name, said in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(f"{said}\n")
    (tmp_path / "cpuinfo").write_text(text)
    assert cpu_details(tmp_path, tmp_path / "cache") == words
    assert largest_cache_bytes(words) == 2**20
    assert cpu_details(tmp_path, tmp_path / "nowhere") == words.replace(", caches 48K 1M", "").replace(
        "caches 48K 1M", ""
    )
    assert largest_cache_bytes(cpu_details(tmp_path, tmp_path / "nowhere")) is None
