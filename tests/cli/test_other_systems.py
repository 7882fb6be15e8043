"""Commands on macOS and Windows, by a Python without what these systems lack. Only measuring needs Linux."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[2] / "results"
GPT2, SMOKE = str(RESULTS / "reference-gpt2.jsonl"), str(RESULTS / "reference-smoke.jsonl")
PLUGIN = (
    Path(__file__).parents[2] / "plugins" / "attnbench-example" / "src" / "attnbench_example" / "__init__.py"
)
ONE = ("attention/dot/H1-L16-D8", "--backend", "eager")

WITHOUT = """
import ctypes, os, pathlib, platform, shutil, signal, subprocess, sys, tempfile
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
for module, names in {
    os: "eventfd fork geteuid getloadavg getuid killpg memfd_create register_at_fork sched_getaffinity "
    "sched_setaffinity setsid sysconf waitid",
    signal: "SIGHUP SIGKILL pthread_sigmask",
}.items():
    for name in names.split():
        delattr(module, name)
platform.system = lambda: "Windows"
from attnbench.__main__ import main
main()
"""


def call(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, *words], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("list", "rules"),
        ("list", "cases", "gpt2"),
        ("plugins",),
        ("report", GPT2),
        ("report", GPT2, "--html", "page.html"),
        ("compare", GPT2, GPT2),
        ("history", str(RESULTS)),
        ("merge", GPT2, SMOKE, "--out", "all.jsonl"),
        ("choose", SMOKE, "--out", "choice.toml"),
        ("explain",),
        ("compare-rules", "dot", "--width", "4"),
        ("new", "mine"),
        ("capture", "--out", "calls.toml", "--", sys.executable, "-c", "import torch"),
    ],
    ids=" ".join,
)
def test_what_needs_no_measuring_works(words: tuple[str, ...], tmp_path: Path) -> None:
    done = call(tmp_path, *words)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("run", *ONE),
        ("check", *ONE),
        ("check", "--plugin", str(PLUGIN)),
        ("doctor",),
        ("fleet", "--on", "local"),
        ("run", *ONE, "--on", "local", "--out", "all.jsonl"),
        ("compare", "--ref", "HEAD", "--head", "HEAD"),
    ],
    ids=" ".join,
)
def test_measuring_says_what_it_needs(words: tuple[str, ...], tmp_path: Path) -> None:
    done = call(tmp_path, *words)
    assert done.returncode == 2, done.stderr
    assert done.stderr.strip().splitlines()[-1] == (
        "attnbench: attnbench measures on Linux only, and this is Windows: use a container, for example "
        "docker run -it -v .:/work -w /work python:3.12 bash"
    )
    assert list(tmp_path.iterdir()) == []
