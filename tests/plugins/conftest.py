from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a real distribution that holds one module: ``install(module, source)``."""
    before = set(sys.modules)
    count = 0

    def make(
        module: str, source: str, *, distribution: str = "", version: str = "1.0", value: str = ""
    ) -> Path:
        nonlocal count
        count += 1
        name = distribution or f"attnbench-{module}"
        folder = tmp_path / f"site{count}"
        info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[attnbench]\n{module} = {value or module}\n")
        (folder / f"{module}.py").write_text(source)
        monkeypatch.syspath_prepend(folder)
        return folder

    yield make
    for name in set(sys.modules) - before:
        if name.startswith("mini_"):
            del sys.modules[name]
