"""The libraries that plugins need are known with their versions, though nothing imports them."""

from __future__ import annotations

from pathlib import Path

import pytest
from distributions import write_distribution

from attnbench.plugins.libraries import libraries


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_distribution_states_what_it_requires_without_its_extras(site: Path) -> None:
    needed = ("attnbench", "Fast_Lib (>=1)", "not-installed>=3", "other.lib; python_version > '3'")
    write_distribution(site, "my-kernel", {}, {}, requires=(*needed, "unwanted; extra == 'test'"))
    for name in ("fast-lib", "other-lib", "unwanted"):
        write_distribution(site, name, {}, {}, version="2.5")
    assert libraries(["my-kernel", "mine.py"]) == {"fast-lib": "2.5", "other-lib": "2.5"}


def test_a_module_that_a_backend_declares_is_found_by_the_distribution_that_brings_it(site: Path) -> None:
    for name, module in (("fast-lib", "fast_lib"), ("odd-lib-python", "odd_lib")):
        info = write_distribution(site, name, {}, {f"{module}.py": "raise RuntimeError"}, version="3.1")
        (info / "top_level.txt").write_text(f"{module}\n")
    declared = ["fast_lib", "odd_lib.part", "in_no_place", "json"]
    assert libraries([], declared) == {"fast-lib": "3.1", "odd-lib-python": "3.1"}
