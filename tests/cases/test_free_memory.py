from __future__ import annotations

from pathlib import Path

import pytest

from attnbench.cases.memory import free_memory

MACHINE = {"proc/meminfo": "MemTotal:  2000 kB\nMemFree: 1 kB\nMemAvailable:  1000 kB\n"}


def group(folder: str, most: str, used: int, inactive: int = 0) -> dict[str, str]:
    return {
        f"cgroup/{folder}memory.max": f"{most}\n",
        f"cgroup/{folder}memory.current": f"{used}\n",
        f"cgroup/{folder}memory.stat": f"anon 5\ninactive_file {inactive}\n",
    }


INNER = {"proc/self/cgroup": "0::/outer/inner\n"}
VERSION_1 = {
    "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/box\n0::/\n",
    "cgroup/memory/box/memory.limit_in_bytes": "700000\n",
    "cgroup/memory/box/memory.usage_in_bytes": "300000\n",
    "cgroup/memory/box/memory.stat": "total_inactive_file 50000\n",
}


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, 1000 * 1024),
        (INNER | group("outer/inner/", "max", 10), 1000 * 1024),
        (INNER | group("outer/inner/", "max", 10) | group("outer/", "900000", 500000), 400000),
        (INNER | group("outer/inner/", "300000", 100000, 40000) | group("outer/", "900000", 500000), 240000),
        # Inside a container the path may be the host's; then only the root is visible.
        ({"proc/self/cgroup": "0::/system.slice/docker-abc.scope\n"} | group("", "500000", 200000), 300000),
        (VERSION_1, 450000),
        ({"proc/self/cgroup": "0::/\n"} | group("", "100", 200), 0),
    ],
)
def test_the_smallest_of_all_limits_counts(tmp_path: Path, files: dict[str, str], free: int) -> None:
    (tmp_path / "cgroup").mkdir()
    for name, text in (MACHINE | files).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert free_memory(tmp_path / "proc", tmp_path / "cgroup") == free


def test_this_machine_has_free_memory() -> None:
    assert free_memory() > 2**20
