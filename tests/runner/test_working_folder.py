"""A run measures what is installed, whatever lies in the folder that it is started in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from distributions import write_distribution

from attnbench.results.format import StoredRun, read_run

CASE = "attention/dot/H1-L16-D8"
SCRIPT = ("-P", "-c", "from attnbench.__main__ import main; main()")
"""As the command ``attnbench``, whose first folder is that of the command."""
MODULE = ("-m", "attnbench")

KERNEL = """
import attnbench
def prepare(setup):
    from torch.nn.functional import scaled_dot_product_attention
    return lambda q, k, v: scaled_dot_product_attention(q, k, v, scale=1.0)
@attnbench.hookimpl
def attnbench_backends():
    yield attnbench.Backend(name={name!r}, summary="a test", prepare=prepare, rules=("dot",))
"""
TRAP = "open(__file__ + '.executed', 'w').close()\nraise RuntimeError('of the working folder')\n"


def run_in(folder: Path, how: tuple[str, ...], *words: str, path: Path | None = None) -> StoredRun:
    """Run a case in a folder, and return its file. path: more to import from."""
    paths = [*filter(None, [path and str(path), os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, *how, "run", CASE, *words, "--repetitions", "1", "--budget", "0.01",
         "--out", "run.jsonl"],
        cwd=folder, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    return read_run(folder / "run.jsonl")


@pytest.fixture
def traps(tmp_path: Path) -> Path:
    """A folder with modules that must not be imported, named as ones that every process needs."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("select", "token", "struct", "numpy", "msgspec"):
        (folder / f"{name}.py").write_text(TRAP)
    return folder


def test_a_folder_with_another_attnbench_and_another_kernel_measures_what_is_installed(
    tmp_path: Path, traps: Path
) -> None:
    site = tmp_path / "site"
    write_distribution(site, "fast-kernel", {"attnbench": {"fast": "fast_kernel"}}, {})
    (site / "fast_kernel.py").write_text(KERNEL.format(name="fast"))
    for name in ("attnbench", "fast_kernel"):
        (traps / name).mkdir()
        (traps / name / "__init__.py").write_text(TRAP)
    run = run_in(traps, SCRIPT, "--backend", "fast", path=site)
    assert [(one.backend, one.status, one.reason) for one in run.records] == [("fast", "ok", "")]
    assert list(traps.rglob("*.executed")) == []


def test_the_module_runs_beside_names_of_the_standard_library_and_finds_plugins_there(traps: Path) -> None:
    """A module by its name, and a file; each with a module beside it."""
    (traps / "of_the_folder.py").write_text("import beside\n" + KERNEL.format(name="near"))
    (traps / "mine.py").write_text("import beside\n" + KERNEL.format(name="mine"))
    (traps / "beside.py").write_text("")
    words = ("--plugin", "of_the_folder", "--plugin", "mine.py", "--backend", "near", "--backend", "mine")
    run = run_in(traps, MODULE, *words)
    assert {one.backend: (one.status, one.reason) for one in run.records} == {
        "near": ("ok", ""), "mine": ("ok", ""),
    }  # fmt: skip
    assert list(traps.rglob("*.executed")) == []
