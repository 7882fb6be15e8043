"""Columns and formats of plugins on the command line; the running itself is tested elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from run_files import write_records

import attnbench
import attnbench.api
from attnbench.plugins.sources import named
from attnbench.types.errors import Interrupted
from attnbench.types.record import Record

Invoke = Callable[..., Result]
CASE = "attention/dot/B1-H2-Lq8-Lk8-D4/none/float32/cpu/forward"
PLUGIN = """
from attnbench import EnvironmentFact, Metric, Reporter, hookimpl

def lines(rows, runs):
    shown = [f"{row['run']} {row['backend']} {row['price']}" for row in rows]
    return "\\n".join([*shown, *(f"{run['run_id']}: {run['finished']}" for run in runs)])

def broken(rows, runs):
    return rows[0]["nothing"]

@hookimpl
def attnbench_metrics():
    yield Metric("price", "what a call costs", "n$/call", lambda record, case: record.median_ms * 2)
    yield Metric("shaky", "a test", "shaky", lambda record, case: 1 / 0)

@hookimpl
def attnbench_reporters():
    yield Reporter("lines", "a line each", lines)
    yield Reporter("broken", "a test", broken)

@hookimpl
def attnbench_environment_facts():
    yield EnvironmentFact("turbo", "whether it's on", lambda: True)
"""


@pytest.fixture
def plugin(tmp_path: Path) -> str:
    file = tmp_path / "mini_extra.py"
    file.write_text(PLUGIN)
    return str(file)


def stored(path: Path, *, finished: bool = True) -> Path:
    right = Record(CASE, "dot", "eager", "ok", median_ms=1.5)
    refused = Record(CASE, "dot", "bmm", "unsupported", reason="why")
    return write_records(path, right, refused, finished=finished)


def told(plugin: str, words: str) -> str:
    return f"attnbench: plugin {named(plugin)}: {words}\n"


def shaky(plugin: str) -> str:
    words = "raised ZeroDivisionError: division by zero for eager on"
    return told(plugin, f"the metric 'shaky' {words} {CASE}; its cell stays empty")


def test_from_python_they_are_in_the_frame(
    tmp_path: Path, plugin: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = attnbench.load(stored(tmp_path / "a.jsonl"), plugins=plugin)
    assert run.frame["price"].tolist()[0] == 3.0
    assert run.frame["shaky"].isna().all()
    assert capsys.readouterr().err == shaky(plugin)


def test_a_format_of_a_plugin_prints_all_runs_at_once(invoke: Invoke, tmp_path: Path, plugin: str) -> None:
    first, second = stored(tmp_path / "a.jsonl"), stored(tmp_path / "b.jsonl", finished=False)
    result = invoke("report", str(first), str(second), "-p", plugin, "--format", "lines")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "a eager 3.0", "a bmm None", "b eager 3.0", "b bmm None", "a: True", "b: False",
    ]  # fmt: skip


FAILED = (
    "the reporter 'broken' raised KeyError: 'nothing'; the records are in their files: attnbench report "
    "prints them in another --format"
)


def test_a_reporter_that_raises_is_one_sentence_and_3_and_the_runs_file_is_kept(
    invoke: Invoke, tmp_path: Path, plugin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = stored(tmp_path / "a.jsonl")
    monkeypatch.setattr(attnbench.api, "start", lambda *_: attnbench.load(run))
    bench = tmp_path / "bench.json"
    words = ["--format", "broken", "-p", plugin, "--benchmark-json", str(bench)]
    result = invoke("run", CASE, "--baseline", "eager", *words)
    assert (result.exit_code, result.stdout) == (3, "")
    lines = result.stderr.splitlines(keepends=True)
    assert lines[-1] == told(plugin, FAILED)
    assert f"stored in {run}\n" in lines
    assert bench.exists()
    assert invoke("report", str(run), "--format", "json").exit_code == 0


def test_ctrl_c_is_told_whatever_a_reporter_does(
    invoke: Invoke, tmp_path: Path, plugin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = stored(tmp_path / "a.jsonl", finished=False)

    def stopped(*_: object) -> None:
        raise Interrupted(run)

    monkeypatch.setattr(attnbench.api, "start", stopped)
    result = invoke("check", CASE, "--format", "broken", "-p", plugin)
    assert result.exit_code == 130
    assert result.stderr == (
        f"{shaky(plugin)}{told(plugin, FAILED)}attnbench: interrupted; continue with --resume {run}\n"
    )


def test_plugins_shows_what_each_brings_in_one_column(
    invoke: Invoke, plugin: str, add_distribution: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    add_distribution("attnbench-t", {}, commands={"trend": "mini_trend:main"})
    rows = json.loads(invoke("plugins", "-p", plugin, "--format", "json").stdout)
    (of_command,) = (row for row in rows if row["name"] == "trend")
    assert (of_command["module"], of_command["commands"]) == ("mini_trend:main", ["trend"])
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, invoke("plugins").stdout.splitlines())) <= 80


LOGGED = """
import os

from attnbench import Backend, hookimpl

def log(*words):
    with open({log!r}, "a") as file:
        print("{name}", os.getpid(), *words, file=file)

log("imported")

def prepare(setup):
    return lambda q, k, v: (q @ k.mT).softmax(-1) @ v

@hookimpl
def attnbench_backends():
    yield Backend(
        "{name}", "a test", prepare, rules=("dot",), devices=("cpu",),
        supports=lambda case, rule: log("supports"), available=lambda device: log("available"),
    )
"""


@pytest.mark.slow
def test_a_worker_imports_the_plugin_of_its_backend_alone_and_asks_it(tmp_path: Path) -> None:
    log, words = tmp_path / "log", []
    for name in ("mine", "other"):
        (tmp_path / f"{name}.py").write_text(LOGGED.format(log=str(log), name=name))
        words += ["-p", str(tmp_path / f"{name}.py")]
    words += ["--backend", "mine", "--backend", "fused_multihead", "--note", "on the desk"]
    done = subprocess.run(
        [sys.executable, "-m", "attnbench", "check", CASE, *words, "--format", "json"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = [line.split() for line in log.read_text().splitlines()]
    (parent,) = {pid for name, pid, _ in lines if name == "other"}
    assert {what for _, pid, what in lines if pid == parent} == {"imported"}
    of_workers = [what for _, pid, what in lines if pid != parent]
    assert "imported" in of_workers
    asked = [what for what in of_workers if what != "imported"]
    assert asked[::2] == ["available"] * len(asked[::2])
    assert asked[1::2] == ["supports"] * len(asked[::2])
    rows = {row["backend"]: (row["status"], row["notes"]) for row in json.loads(done.stdout)}
    assert rows == {"mine": ("ok", "on the desk"), "fused_multihead": ("unsupported", "on the desk")}
