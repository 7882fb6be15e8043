"""The table of what libraries' recurrences compute: it has all rules, backends and pinned versions."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

from attnbench.rules import attnbench_rules

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import recurrent_libraries as libraries

ROOT = Path(__file__).parents[2]
UPDATES = [rule.name for rule in attnbench_rules() if rule.update is not None]


def test_the_table_has_all_rules_and_the_pinned_versions() -> None:
    """Where it has not: python tests/benchmarks/recurrent_libraries.py --write, with all packages."""
    assert list(libraries.RULES) == UPDATES
    written = libraries.DOCS.read_text().split(libraries.BEGIN)[1].split(libraries.END)[0]
    lines = [line for line in written.splitlines() if line.startswith("|")]
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]
    assert rows[0][2:] == UPDATES
    assert {len(row) for row in rows} == {2 + len(UPDATES)}
    named = [name for _, names in libraries.LIBRARIES.values() for name in names]
    assert [row[0] for row in rows[2:]] == [*named, libraries.ANY_SIZE]
    pinned = dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    versions = {tuple(row[1].split()) for row in rows[2:]}
    assert {name for name, _ in versions} == set(libraries.LIBRARIES)
    assert {(name, pinned.get(name, version)) for name, version in versions} == versions


@pytest.mark.parametrize("library", ["ggml", "onnxruntime", "transformers", "vllm"])
def test_the_table_has_all_backends_of_a_package(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    monkeypatch.syspath_prepend(ROOT / "plugins" / f"attnbench-{library}")
    backends = import_module(f"attnbench_{library}").attnbench_backends()
    listed = {name for _, names in libraries.LIBRARIES.values() for name in names}
    own = {backend.name for backend in backends if "recurrent" in backend.operations}
    assert own == {name for name in listed if name.startswith(f"{library}_")}
