from __future__ import annotations

from pathlib import Path

import pytest

from attnbench.cases.memory import free_memory


@pytest.fixture
def machine(tmp_path: Path) -> tuple[Path, Path]:
    proc, cgroup = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    cgroup.mkdir()
    (proc / "meminfo").write_text("MemTotal:  2000 kB\nMemFree: 1 kB\nMemAvailable:  1000 kB\n")
    return proc, cgroup


def limit(folder: Path, most: str, used: int, inactive: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{most}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {inactive}\n")


def test_without_control_groups_what_the_kernel_calls_available_counts(machine: tuple[Path, Path]) -> None:
    assert free_memory(*machine) == 1000 * 1024


def test_the_tightest_group_above_this_process_counts(machine: tuple[Path, Path]) -> None:
    proc, cgroup = machine
    (proc / "self" / "cgroup").write_text("0::/outer/inner\n")
    limit(cgroup / "outer" / "inner", "max", 10)
    assert free_memory(proc, cgroup) == 1000 * 1024
    limit(cgroup / "outer", "900000", 500000)
    assert free_memory(proc, cgroup) == 400000
    limit(cgroup / "outer" / "inner", "300000", 100000, inactive=40000)
    assert free_memory(proc, cgroup) == 240000


def test_a_group_named_by_the_host_falls_back_to_the_root(machine: tuple[Path, Path]) -> None:
    proc, cgroup = machine
    (proc / "self" / "cgroup").write_text("0::/system.slice/docker-abc.scope\n")
    limit(cgroup, "500000", 200000)
    assert free_memory(proc, cgroup) == 300000


def test_version_1_groups_are_read_too(machine: tuple[Path, Path]) -> None:
    proc, cgroup = machine
    (proc / "self" / "cgroup").write_text("5:cpu,cpuacct:/x\n4:memory:/box\n0::/\n")
    box = cgroup / "memory" / "box"
    box.mkdir(parents=True)
    (box / "memory.limit_in_bytes").write_text("700000\n")
    (box / "memory.usage_in_bytes").write_text("300000\n")
    (box / "memory.stat").write_text("total_inactive_file 50000\n")
    assert free_memory(proc, cgroup) == 450000


def test_a_group_over_its_limit_has_nothing_free(machine: tuple[Path, Path]) -> None:
    proc, cgroup = machine
    (proc / "self" / "cgroup").write_text("0::/\n")
    limit(cgroup, "100", 200)
    assert free_memory(proc, cgroup) == 0


def test_this_machine_has_some() -> None:
    assert free_memory() > 2**20
