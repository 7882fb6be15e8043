"""The lines that docs/ci.md gives others to copy do what it says, in a project like theirs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from distributions import write_distribution

ROOT = Path(__file__).parents[2]


def joined(path: Path) -> str:
    """The text of a file in which a command that goes on with its options on the next line is one line."""
    return re.sub(r"(?: \\)?\n +(?=--)", " ", path.read_text())


DOCUMENT = joined(ROOT / "docs" / "ci.md")

KERNEL = '''
"""An attention of one's own."""
from attnbench import Backend, hookimpl

def supports(case, rule):
    return None if case.mask.causal == "upper_left" and case.H == case.Hkv else "not yet"

def prepare(setup):
    from torch.nn.functional import scaled_dot_product_attention as attend
    return lambda q, k, v: attend(q, k, v, is_causal=True) * {factor}

@hookimpl
def attnbench_backends():
    yield Backend(name="mine", summary="mine", prepare=prepare, rules=("scaled_dot",), supports=supports)
'''

PIP = '#!/bin/sh\necho "$@" >> "$PIP_WAS_ASKED"\n'
"""It can't fetch what builds a project here: that is installed already, as an editable install has it."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", DOCUMENT, re.DOTALL | re.MULTILINE)


def lines_of(where: str) -> list[str]:
    """The commands of the plain shell, of GitHub's steps, or of GitLab's script."""
    github, gitlab = blocks("yaml")
    if where == "shell":
        return blocks("sh")[0].splitlines()
    if where == "github":
        return re.findall(r"^ +- run: (.+)$", github, re.MULTILINE)
    script = gitlab.partition("script:\n")[2].partition("artifacts:")[0]
    return re.findall(r"^ +- (.+)$", script, re.MULTILINE)


def git(folder: Path, *words: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    who = ["-c", "user.name=Nobody", "-c", "user.email=nobody@example.org", "-c", "init.defaultBranch=main"]
    done = subprocess.run(
        ["git", *who, *words], cwd=folder, env=clean, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone of a plugin project on a branch with a change, as CI has it, and what it needs around it."""
    origin, clone, site, tools = (tmp_path / name for name in ("origin", "clone", "site", "tools"))
    origin.mkdir()
    git(origin, "init", "--quiet")
    (origin / "my_kernel.py").write_text(KERNEL.format(factor="1.0"))
    (origin / "gate.toml").touch()
    (origin / ".gitignore").write_text("__pycache__/\nresults/\n")
    git(origin, "add", "--all")
    git(origin, "commit", "--quiet", "--message", "a kernel")
    git(tmp_path, "clone", "--quiet", str(origin), "clone")
    git(clone, "checkout", "--quiet", "-b", "change")
    write_distribution(site, "my-kernel", {"attnbench": {"mine": "my_kernel"}}, {})
    tools.mkdir()
    (tools / "pip").write_text(PIP)
    (tools / "attnbench").write_text(f'#!/bin/sh\nexec {sys.executable} -P -m attnbench "$@"\n')
    for tool in tools.iterdir():
        tool.chmod(0o755)
    paths = [str(site), str(clone), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv("PATH", os.pathsep.join([str(tools), os.environ["PATH"]]))
    monkeypatch.setenv("PIP_WAS_ASKED", str(tmp_path / "asked"))
    monkeypatch.setenv("BASE", "origin/main")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    monkeypatch.setenv("CI_MERGE_REQUEST_DIFF_BASE_SHA", git(origin, "rev-parse", "main"))
    return clone


def change(clone: Path, factor: str) -> None:
    (clone / "my_kernel.py").write_text(KERNEL.format(factor=factor))
    git(clone, "commit", "--quiet", "--all", "--message", "a change")


def run(clone: Path, where: str) -> subprocess.CompletedProcess[str]:
    """Run the lines as a step does: the first that fails ends it."""
    script = "\n".join(["set -e", *lines_of(where)])
    return subprocess.run(["sh", "-c", script], cwd=clone, capture_output=True, text=True, check=False)


def test_there_are_lines() -> None:
    for where in ("shell", "github", "gitlab"):
        install, compare = lines_of(where)
        assert install == "pip install -e ."
        assert compare.startswith("attnbench compare ")
        assert " --ref " in compare


def test_the_line_to_try_by_hand_is_that_of_the_workflow() -> None:
    by_hand = lines_of("github")[1].replace('"$BASE"', "origin/main")
    assert blocks("sh")[1:] == [f"GITHUB_STEP_SUMMARY=summary.md {by_hand}\n"]


def test_our_own_workflow_has_the_line_of_the_document() -> None:
    own = joined(ROOT / ".github" / "workflows" / "bench.yml")
    steps = re.findall(r"^ +- run: (.+)$", own, re.MULTILINE)
    assert steps == [
        lines_of("github")[0].replace("install", "install -c constraints.txt"),
        lines_of("github")[1],
    ]
    assert "fetch-depth: 0" in own


def test_our_own_workflows_check_what_must_hold_before_a_change_lands() -> None:
    own = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    steps = set(re.findall(r"^ +- run: (.+)$", own, re.MULTILINE))
    lint = {"ruff check .", "ruff format --check .", "mypy", "lint-imports"}
    assert lint <= steps
    here = {line.replace(" --quiet", "") for line in (ROOT / ".ci" / "run").read_text().splitlines()}
    # .ci/run has the packages under plugins/ tested by .ci/plugins.
    of_packages = {line for line in steps if "plugins/" in line}
    assert steps - of_packages - {"pytest -m '${{ matrix.which }}'"} <= here
    assert "pytest plugins/attnbench-triton/tests" in of_packages


@pytest.mark.slow
@pytest.mark.parametrize(
    "where",
    ["shell", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("github", "gitlab"))],
)
def test_a_change_of_nothing_passes(clone: Path, tmp_path: Path, where: str) -> None:
    change(clone, "1.00")
    before = git(clone, "status", "--porcelain"), git(clone, "worktree", "list")
    done = run(clone, where)
    assert done.returncode == 0, done.stderr + done.stdout
    assert (tmp_path / "asked").read_text() == "install -e .\n"
    assert "mine" in done.stdout
    (stored,) = (clone / "results").glob("*.jsonl")
    assert stored.stat().st_size > 0
    assert (tmp_path / "summary.md").exists() == (where == "github")
    assert (git(clone, "status", "--porcelain"), git(clone, "worktree", "list")) == before


@pytest.mark.slow
def test_a_change_that_is_wrong_fails_and_the_page_of_the_job_says_so(clone: Path, tmp_path: Path) -> None:
    change(clone, "1.5")
    done = run(clone, "github")
    assert done.returncode == 1, done.stderr + done.stdout
    assert "mismatch" in (tmp_path / "summary.md").read_text()
    assert "mismatch" in done.stdout
