"""The process of a command: what it imports, streams that can't be written, Ctrl-C."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import click
import pytest
from click.testing import Result
from distributions import write_distribution

from attnbench.cli import attnbench
from attnbench.cli.process import write_what_stdout_can

HEAVY = {"torch", "numpy", "pandas", "rich", "msgspec", "pluggy", "matplotlib", "scipy", "email"}
PLAN = ("run", "attention/dot/H1-L16-D8", "--backend", "eager", "--plan", "--format", "csv")

RUN_LINES = """
import os, sys
from attnbench.cli import attnbench
for line in sys.argv[1:]:
    print("running", line)
    if line.startswith("complete "):
        words = line.split(" ")[1:]
        os.environ.update(COMP_WORDS=" ".join(words), COMP_CWORD=str(len(words) - 1))
        os.environ["_ATTNBENCH_COMPLETE"], words = "bash_complete", []
    else:
        os.environ.pop("_ATTNBENCH_COMPLETE", None)
        words = line.split(" ")[1:]
    try:
        attnbench(words, prog_name="attnbench")
    except SystemExit as end:
        assert end.code in (0, 1, 2), end.code
print("imported", *sorted({name.partition(".")[0] for name in sys.modules}))
"""


def install(site: Path, count: int) -> dict[str, str]:
    """An environment with distributions that bring a plugin and a command each; each imports torch."""
    names = [f"attnbench_greedy_{number}" for number in range(count)]
    for number, name in enumerate(names):
        places = {"attnbench": name, "attnbench.commands": f"{name}:command"}
        points = {group: {f"greedy-{number}": place} for group, place in places.items()}
        write_distribution(site, name, points, {f"{name}.py": "import torch\n"})
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    chosen = ",".join(["attnbench", *names])
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "ATTNBENCH_LOAD_PLUGINS": chosen}


def imported(*lines: str, environment: Mapping[str, str] = os.environ) -> set[str]:
    """Return the top-level modules that command lines import, one after the other in one process."""
    done = subprocess.run(
        [sys.executable, "-c", RUN_LINES, *lines],
        env=environment, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert done.stdout.count("running ") == len(lines)
    return set(done.stdout.splitlines()[-1].split()[1:])


def test_help_completion_and_usage_errors_import_nothing_heavy(tmp_path: Path) -> None:
    lines = [
        "attnbench", "attnbench --help", "attnbench --version", "attnbench rnu", "attnbench run --dtype x",
        *(f"attnbench {command} --help" for command in (*attnbench.summaries, "list cases")),
        "complete attnbench ", "complete attnbench run --", "complete attnbench run --format j",
        "complete attnbench run --dtype b",
    ]  # fmt: skip
    found = imported(*lines, environment=install(tmp_path / "site", 24))
    assert found & HEAVY == set()
    assert {"click", "attnbench"} <= found


def test_lists_import_neither_torch_nor_pandas() -> None:
    lines = "attnbench list rules", "attnbench list cases edges", "attnbench plugins"
    assert imported(*lines) & {"torch", "pandas", "matplotlib", "scipy"} == set()
    assert imported("complete attnbench run --backend e") & {"torch", "pandas", "rich", "scipy"} == set()


def test_an_import_of_torch_is_noticed(tmp_path: Path) -> None:
    environment = install(tmp_path / "site", 1)
    assert imported("attnbench plugins", environment=environment) >= {"torch", "pluggy", "rich"}


def started(*words: str, **streams: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "attnbench", *words], timeout=60, check=False, text=True, **streams
    )  # type: ignore[call-overload,no-any-return]


@pytest.fixture
def unread() -> int:
    """The writing end of a pipe whose reader went away."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


@pytest.mark.parametrize("words", [["--help"], ["list", "cases"]])
def test_a_full_disk_behind_stdout_is_said(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = started(*words, stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (3, "attnbench: No space left on device\n")


@pytest.mark.parametrize(("words", "status", "lines"), [(PLAN, 0, 2), (["doctr"], 2, 0)])
def test_a_full_disk_behind_stderr_loses_no_data(words: list[str], status: int, lines: int) -> None:
    with Path("/dev/full").open("w") as full:
        done = started(*words, stdout=subprocess.PIPE, stderr=full)
    assert (done.returncode, len(done.stdout.splitlines())) == (status, lines)


def test_a_reader_of_stderr_that_goes_away_loses_no_data(unread: int) -> None:
    done = started(*PLAN, stdout=subprocess.PIPE, stderr=unread)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 2)


@pytest.mark.parametrize("words", [["list", "rules"], ["--help"]])
def test_a_reader_of_data_that_goes_away_is_not_a_failed_check(unread: int, words: list[str]) -> None:
    done = started(*words, stdout=unread, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("where", ["make_context", "invoke"])
def test_ctrl_c_before_a_command_is_130(
    where: str, invoke: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(click.Group, where, stopped)
    result = invoke("list", "suites")
    assert (result.exit_code, result.stderr) == (130, "attnbench: interrupted\n")


def test_many_ctrl_c_end_a_run_as_one_does(tmp_path: Path) -> None:
    words = ["--verbose", "run", "attention/dot/H1-L16-D8", "--backend", "eager", "--out", "run.jsonl"]
    # It would go on for long, with one server.
    words += ["--repetitions", "1", "--budget", "10"]
    run = subprocess.Popen(
        [sys.executable, "-m", "attnbench", *words], cwd=tmp_path, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert run.stderr is not None
    for line in run.stderr:
        if "variant case" in line:
            break
    while run.poll() is None:
        run.send_signal(signal.SIGINT)
        time.sleep(0.01)
    left = run.stderr.read()
    run.stderr.close()
    assert run.returncode == 130, left
    assert left.splitlines()[-1] == "attnbench: interrupted; continue with --resume run.jsonl"
    assert "Traceback" not in left


def test_ctrl_c_while_the_command_line_is_imported(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt\n")
    done = subprocess.run(
        [sys.executable, "-c", "from attnbench.__main__ import main; main()"],
        env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (130, "attnbench: interrupted\n")


@pytest.mark.parametrize(("encoding", "written"), [("utf-8", "√D █"), ("latin-1", "?D ?")])
def test_characters_that_stdout_lacks_are_replaced(
    monkeypatch: pytest.MonkeyPatch, encoding: str, written: str
) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    write_what_stdout_can()
    stream.write("√D █")
    stream.flush()
    assert stream.buffer.getvalue().decode(encoding) == written  # type: ignore[attr-defined]
