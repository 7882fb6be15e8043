"""Commands on macOS and Windows, by a Python without what these systems lack. Only measuring needs Linux."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RUNS = Path(__file__).parents[1] / "runs"
GPT2, SMOKE = str(RUNS / "gpt2.jsonl"), str(RUNS / "smoke.jsonl")
PLUGIN = (
    Path(__file__).parents[2] / "plugins" / "attnbench-example" / "src" / "attnbench_example" / "__init__.py"
)
ONE = "attention/dot/H1-L16-D8 --backend eager"

WITHOUT = """
import ctypes, os, pathlib, platform, shlex, shutil, signal, subprocess, sys, tempfile
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
for line in sys.argv[1:]:
    sys.argv = shlex.split(line)
    try:
        main()
    except SystemExit as end:
        print(f"{end.code or 0}: {line}", file=sys.stderr)
"""


def statuses(folder: Path, *lines: str) -> list[str]:
    """Run command lines, one after the other in one process; return what was said of each and its status."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *(f"attnbench {line}" for line in lines)],
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stderr.splitlines()


@pytest.mark.slow
def test_what_needs_no_measuring_works(tmp_path: Path) -> None:
    lines = (
        "--help", "list rules", "list cases gpt2", "plugins", f"report {GPT2}",
        f"report {GPT2} --html page.html", f"compare {GPT2} {GPT2}", f"history {RUNS}",
        f"merge {GPT2} {SMOKE} --out all.jsonl", f"choose {SMOKE} --out choice.toml", "explain",
        "compare-rules dot --width 4", "new mine",
        f"capture --out calls.toml -- {sys.executable} -c 'import torch'",
    )  # fmt: skip
    said = statuses(tmp_path, *lines)
    assert [line for line in lines if f"0: attnbench {line}" not in said] == [], said


def test_measuring_says_what_it_needs(tmp_path: Path) -> None:
    refusal = (
        "attnbench: attnbench measures on Linux only, and this is Windows: use a container, for example "
        "docker run -it -v .:/work -w /work python:3.12 bash"
    )
    lines = (
        f"run {ONE}", f"check {ONE}", f"check --plugin {PLUGIN}", "doctor", "fleet --on local",
        f"run {ONE} --on local --out all.jsonl", "compare --ref HEAD --head HEAD",
    )  # fmt: skip
    said = statuses(tmp_path, *lines)
    for line in lines:
        end = said.index(f"2: attnbench {line}")
        assert said[end - 1] == refusal, line
    assert list(tmp_path.iterdir()) == []
