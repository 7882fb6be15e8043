"""A run goes on with the code that it was begun with, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnbench.plugins.registry import load_wanted
from attnbench.runner.run import check_same_plugins
from attnbench.types.case import Case
from attnbench.types.errors import BadInput
from attnbench.types.record import Manifest, PluginLine

KERNEL = """
from attnbench import Backend, hookimpl
@hookimpl
def attnbench_backends():
    yield Backend("own_kernel", "a test", prepare=print)
"""
CASES = (Case("attention", "dot", 1, 1, 1, 4, 4, 4, 4),)
OWN = ("own_kernel",)


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    file = tmp_path / "own_kernel.py"
    file.write_text(KERNEL)
    return file


def begun_with(file: Path) -> Manifest:
    registry = load_wanted([str(file)])
    lines = [PluginLine(s.name, s.distribution, s.version) for s in registry.plugins]
    return Manifest(
        format=1, run_id="r", started="", attnbench="0", command=[], cases=[], backends=[], named=[],
        compiled_on=None, protocol={}, plugins=lines, environment={},
    )  # fmt: skip


def test_the_same_file_is_the_same_code(kernel: Path) -> None:
    check_same_plugins(OWN, CASES, begun_with(kernel), load_wanted([str(kernel)]))


def test_a_file_that_was_edited_is_refused(kernel: Path) -> None:
    manifest = begun_with(kernel)
    kernel.write_text(KERNEL + "# faster now\n")
    with pytest.raises(BadInput, match=r"begun with own_kernel\.py \w{12}, and here it is \w{12}"):
        check_same_plugins(OWN, CASES, manifest, load_wanted([str(kernel)]))


def test_a_plugin_that_is_not_given_again_is_named(kernel: Path) -> None:
    with pytest.raises(BadInput, match=r"not loaded here: own_kernel of own_kernel\.py \w{12}; install"):
        check_same_plugins(OWN, CASES, begun_with(kernel), load_wanted())


def test_a_plugin_that_the_run_does_not_need_may_be_another(kernel: Path) -> None:
    manifest = begun_with(kernel)
    kernel.write_text(KERNEL + "# faster now\n")
    check_same_plugins(("eager",), CASES, manifest, load_wanted([str(kernel)]))
    check_same_plugins(("eager",), CASES, manifest, load_wanted())
