"""``attnbench compare --ref``: what it refuses, and one comparison from the repository to the exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kernel_project import Install, Project

CASE = "attention/dot/B1-H2-L16-D8"
KERNEL = """
from attnbench import Backend, hookimpl

def prepare(setup):
    def call(q, k, v):
        for _ in range({times}):
            out = (q @ k.transpose(-1, -2)).softmax(-1) @ v
        return out
    return call

@hookimpl
def attnbench_backends():
    yield Backend(name="mine", summary="mine", prepare=prepare, rules=("dot",))
"""


def attnbench(where: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "attnbench", *words],
        cwd=where, capture_output=True, text=True, timeout=200, check=False,
        env=os.environ | {"COLUMNS": "120"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--ref", "HEAD", "--baseline", "eager"), "--baseline and --force are for stored runs"),
        (("--ref", "HEAD", "--force"), "--baseline and --force are for stored runs"),
        (("a", "b", "--budget", "1"), "--budget is for sides that are measured now: give --ref with it"),
        (("a", "b", "--backend", "eager"), "--backend is for sides that are measured now"),
        (("--ref", "HEAD", "--resume", "x"), "No such option '--resume'"),
        (("--ref", ".",), "both sides would be the user's tree"),
        (("--ref", "nowhere"), "no commit 'nowhere' in "),
        (("--ref", "HEAD", "smok"), "did you mean 'smoke'"),
        (("--ref", "HEAD", "--backend", "eagr", CASE), "no backend 'eagr'; did you mean 'eager'?"),
        (("--head-python", "/nowhere/python"), "no interpreter '/nowhere/python'"),
    ],
)  # fmt: skip
def test_what_can_not_be_is_one_sentence(words: tuple[str, ...], sentence: str, project: Install) -> None:
    there = project("mini_q")
    there.commit(mini_q=KERNEL.format(times=1))
    done = attnbench(there.repo, "compare", *words)
    assert done.returncode == 2, done.stderr
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def compare(there: Project, *words: str) -> subprocess.CompletedProcess[str]:
    words = (
        "--backend",
        "mine",
        "--budget",
        "0.02",
        "--sets",
        "9",
        "--out",
        str(there.repo / "out.jsonl"),
        *words,
    )
    return attnbench(there.repo, "compare", "--ref", "HEAD", CASE, *words)


@pytest.mark.slow
def test_a_slower_kernel_in_the_tree_fails_the_gate_and_can_be_looked_at_again(project: Install) -> None:
    there = project("mini_r")
    there.commit(mini_r=KERNEL.format(times=1))
    there.write(mini_r=KERNEL.format(times=8))
    done = compare(there, "--format", "json")
    assert done.returncode == 1, done.stderr
    (cell,) = json.loads(done.stdout)["cells"]
    assert (cell["backend"], cell["verdict"]) == ("mine", "slower")
    assert 2 < cell["ratio"] < 30
    assert "uncommitted work on " in done.stderr
    again = attnbench(there.repo, "compare", "out.jsonl", "--format", "json")
    assert (again.returncode, json.loads(again.stdout)["cells"]) == (1, [cell])
    larger = attnbench(there.repo, "compare", "out.jsonl", "--delta", "0.99", "--format", "json")
    assert json.loads(larger.stdout)["cells"][0]["delta"] == 0.99
    resumed = attnbench(there.repo, "run", "--resume", "out.jsonl")
    assert resumed.returncode == 2
    assert "is a live comparison, whose sides are gone: compare anew" in resumed.stderr
