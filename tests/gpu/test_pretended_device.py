"""A run on a device that torch only pretends: parent, workers and timer go the ways that they go on a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
PRETENDED = HERE / "pretended"
CASES = (
    "attention/scaled_dot/B1-H2-L24-D8/causal/float32/cuda",
    "multihead/scaled_dot/B1-H2-L12-D8-E16/none/bfloat16/cuda/both",
    "attention/sinks/B1-H2-L24-D8/causal/float32/cuda/backward/seed1",
)
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("not_in_xdist")]


def python(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a module where torch pretends."""
    paths = [str(PRETENDED), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip


def records(folder: Path, *words: str) -> tuple[list[dict[str, Any]], str]:
    """Run attnbench; return the lines of its file and what it printed."""
    file = folder / "run.jsonl"
    done = python("attnbench", *words, "--out", str(file), folder=folder)
    return [json.loads(line) for line in file.read_text().splitlines()], done.stdout + done.stderr


def test_right_backends_pass_are_timed_and_state_how_a_device_was_timed(tmp_path: Path) -> None:
    words = ("run", *CASES, "--backend", "eager", "--backend", "per_head_loop", "--backend", "numpy")
    lines, printed = records(tmp_path, *words, "--repetitions", "3")
    assert lines[0]["environment"]["cuda_devices"] == ["a pretended device"], printed
    found = [line for line in lines if line["kind"] == "record"]
    statuses = {name: {one["status"] for one in found if one["backend"] == name} for name in words[5::2]}
    assert statuses == {"eager": {"ok"}, "per_head_loop": {"ok"}, "numpy": {"unavailable"}}, printed
    timed = [one for one in found if one["status"] == "ok"]
    assert all(any(note.startswith("batch") for note in one["notes"]) for one in timed)
    assert {one["peak_extra_bytes"] for one in timed} == {2**20}
    blocks = [
        b for line in lines if line["kind"] == "repetition" for of in line["samples"].values() for b in of
    ]
    assert {mhz for block in blocks for mhz in block["clock_mhz"]} == {1980}
    scales = [line["scale"] for line in lines if line["kind"] == "repetition"]
    assert all(scale["gemm_ns"] and not scale["convolution_ns"] for scale in scales)
    page = tmp_path / "page.html"
    told = python("attnbench", "report", "run.jsonl", "--html", str(page), folder=tmp_path)
    assert "a pretended device" in page.read_text(), told.stderr


def test_cases_that_are_larger_than_the_memory_of_the_device_are_not_begun(tmp_path: Path) -> None:
    case = "attention/scaled_dot/B1-H2-Lq1500-Lk1500-D8/none/float32/cuda/forward"
    lines, printed = records(tmp_path, "check", case, "--backend", "eager")
    (record,) = (line for line in lines if line["kind"] == "record")
    assert record["status"] == "out_of_memory", printed
    assert "and 16 MiB is free" in record["reason"]


ALONE = """
import fcntl
from dataclasses import replace
from attnbench import Backend, hookimpl

def prepare(setup):
    global file
    file = open({path!r}, "w")
    # Until this process ends.
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return lambda q, k, v: (q @ k.mT * setup.scoring.dot.scale).softmax(-1) @ v

@hookimpl
def attnbench_backends():
    for name in ("first", "second", "third", "fourth"):
        # No variant case is checked of what compiles.
        yield Backend(name, "a test", prepare, needs_dot_form=True, compiles=True)
"""


def test_backends_that_do_not_fit_the_device_together_are_checked_one_at_a_time(tmp_path: Path) -> None:
    plugin = tmp_path / "alone.py"
    plugin.write_text(ALONE.format(path=str(tmp_path / "lock")))
    case = "attention/scaled_dot/B1-H2-Lq400-Lk400-D8/none/float32/cuda/forward"
    names = [word for name in ("first", "second", "third", "fourth") for word in ("--backend", name)]
    lines, printed = records(tmp_path, "check", case, *names, "--plugin", str(plugin))
    found = {line["backend"]: line["status"] for line in lines if line["kind"] == "record"}
    assert found == dict.fromkeys(("first", "second", "third", "fourth"), "ok"), printed


CONFTEST = """
import pytest, sitecustomize, torch

sitecustomize.pretend()
sitecustomize.allow_outputs_on_the_cpu()
waited = []

@pytest.fixture(autouse=True)
def counting(monkeypatch):
    waited.clear()
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waited.append("device"))
"""
TESTS = """
import pytest
from conftest import waited

@pytest.mark.attnbench({case!r}, backends=["eager"])
def test_it(benchmark, attnbench_backend):
    before = len(waited)
    output = attnbench_backend()
    assert len(waited) == before + 1, "the call did not wait for the device"
    benchmark.pedantic(attnbench_backend, rounds=5)
    assert len(waited) == before + 6
"""


def test_a_call_of_the_pytest_fixture_waits_for_the_device(tmp_path: Path) -> None:
    """Else a test would time the launch alone."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_mine.py").write_text(TESTS.format(case=CASES[0]))
    done = python("pytest", "-q", "-p", "no:cacheprovider", "test_mine.py", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
