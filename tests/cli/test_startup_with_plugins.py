"""Help costs the same with many plugins as with one: what it imports is counted, since times flake.

``tests/benchmarks/startup.py`` has the times.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def install(site: Path, count: int) -> dict[str, str]:
    """An environment with plugins that bring a command each; nothing else imports wave."""
    site.mkdir()
    for number in range(count):
        name = f"attnbench_one_of_many_{number}"
        info = site / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        groups = {"attnbench": name, "attnbench.commands": f"{name}:command"}
        points = (f"[{group}]\nmany-{number} = {value}\n" for group, value in groups.items())
        (info / "entry_points.txt").write_text("\n".join(points))
        (site / f"{name}.py").write_text("import wave\n")
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def imported(command: str, environment: dict[str, str]) -> set[str]:
    """Every module that a command line imports, as the interpreter itself tells."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "attnbench", command],
        env=environment, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    told = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in told}


def test_help_imports_the_same_with_many_plugins_as_with_one(tmp_path: Path) -> None:
    without = imported("--help", dict(os.environ))
    one, many = (imported("--help", install(tmp_path / str(count), count)) for count in (1, 24))
    assert many == one
    tops = {name.partition(".")[0] for name in many - without}
    assert tops <= sys.stdlib_module_names | {"attnbench"}


def test_this_test_notices_a_plugin_that_is_imported(tmp_path: Path) -> None:
    assert "wave" in imported("plugins", install(tmp_path / "site", 1))
