from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from attnbench.cli import attnbench


@pytest.fixture(autouse=True)
def own_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load no plugins but attnbench's own, whatever is installed beside it."""
    monkeypatch.setenv("ATTNBENCH_LOAD_PLUGINS", "attnbench")
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def invoke() -> Callable[..., Result]:
    """Run a command line in this process: ``invoke("list", "rules")``."""
    return lambda *words: CliRunner().invoke(attnbench, list(words), prog_name="attnbench")


@pytest.fixture
def add_distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Install a distribution: ``add_distribution("attnbench-x", {"x.py": "..."}, plugin="x", commands=...)``.

    plugin: the module of a plugin. commands: places by name. Modules called ``mini_*`` are forgotten again.
    """
    before = set(sys.modules)

    def add(
        name: str, files: dict[str, str], *, plugin: str = "", commands: dict[str, str] | None = None,
        summary: str = "A test",
    ) -> None:  # fmt: skip
        site = tmp_path / f"site-{name}"
        info = site / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nSummary: {summary}\n\nName: not this\n"
        )
        points = f"[attnbench]\n{plugin} = {plugin}\n" if plugin else ""
        if commands:
            points += "".join(["[attnbench.commands]\n", *(f"{k} = {v}\n" for k, v in commands.items())])
        (info / "entry_points.txt").write_text(points)
        for file, text in files.items():
            (site / file).write_text(text)
        monkeypatch.syspath_prepend(site)
        monkeypatch.setenv("ATTNBENCH_LOAD_PLUGINS", f"{os.environ['ATTNBENCH_LOAD_PLUGINS']},{name}")

    yield add
    for module in set(sys.modules) - before:
        if module.startswith("mini_"):
            del sys.modules[module]
