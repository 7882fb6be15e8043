"""A run killed at any moment goes on where it stopped; no worker outlives its parent."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from attnbench.results.format import StoredRun, read_run
from attnbench.types.errors import BadFile
from attnbench.types.record import SetLine

KILLS = 20
CASES = (
    "attention/dot/B1-H2-Lq16-Lk16-D8/none/float32/cpu/forward",
    "attention/scaled_dot/B1-H2-Lq16-Lk16-D8/causal/float32/cpu/forward",
    "attention/additive/B1-H2-Lq16-Lk16-D8/none/float32/cpu/forward",
)
BACKENDS = ("eager", "bmm", "weighted_sum", "sdpa_math")
SETS = 3


def start(*words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "attnbench", "run", *words]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def fresh(path: Path) -> list[str]:
    chosen = [word for name in BACKENDS for word in ("--backend", name)]
    return [*CASES, *chosen, "--budget", "0.01", "--sets", str(SETS), "--out", str(path)]


def begin(path: Path) -> subprocess.Popen[bytes]:
    """The same run with fewer checks, which has no words on the command line."""
    code = (
        "from pathlib import Path\n"
        "from run_parts import run_of\n"
        f"run_of(Path({str(path)!r}), {CASES}, {BACKENDS}, sets={SETS}, timeout_s=120)"
    )
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip


def workers_of(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def outcome(stored: StoredRun) -> dict[tuple[str, str], tuple[str, str, int]]:
    return {(r.case, r.backend): (r.status, r.reason, r.sets) for r in stored.records}


def set_keys(sets: tuple[SetLine, ...]) -> Counter[tuple[str, int]]:
    return Counter((line.case, line.index) for line in sets)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    path = tmp_path_factory.mktemp("unbroken") / "run.jsonl"
    assert begin(path).wait(120) == 0
    stored = read_run(path)
    assert stored.finished is not None
    assert len(stored.records) == len(CASES) * len(BACKENDS)
    return stored


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_at_random_points_it_ends_with_the_records_of_an_unbroken_run(
    unbroken: StoredRun, tmp_path: Path
) -> None:
    assert unbroken.finished is not None
    path = tmp_path / "run.jsonl"
    rng = random.Random(20260101)
    kills = 0
    resumed = False
    left_behind: list[psutil.Process] = []
    sets_before: tuple[SetLine, ...] = ()
    while kills < KILLS:
        process = start("--resume", str(path)) if resumed else begin(path)
        # Anywhere from the import to a little beyond the end of an unbroken run.
        end = time.monotonic() + rng.uniform(0, 1.1 * unbroken.finished.wall_s + 1)
        while time.monotonic() < end and process.poll() is None:
            left_behind = workers_of(process.pid) or left_behind
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
        assert psutil.wait_procs(left_behind, timeout=60)[1] == [], "a worker outlived its parent"
        try:
            stored = read_run(path)
        except BadFile:
            path.unlink(missing_ok=True)
            resumed = False
            continue
        assert stored.sets[: len(sets_before)] == sets_before, "a complete set was lost or measured again"
        sets_before = stored.sets
        if stored.finished is not None:
            path.rename(tmp_path / f"finished{kills}.jsonl")
            assert outcome(stored) == outcome(unbroken)
            sets_before = ()
            resumed = False
        else:
            resumed = True
    last = start("--resume", str(path)) if resumed and path.exists() else begin(path)
    assert last.wait(120) == 0
    whole = read_run(path)
    assert outcome(whole) == outcome(unbroken)
    assert set_keys(whole.sets) == set_keys(unbroken.sets)
    assert max(set_keys(whole.sets).values()) == 1
    assert Counter((r.case, r.backend) for r in whole.records).most_common(1)[0][1] == 1


@pytest.mark.parametrize("attempt", [1, 2])
def test_what_a_backend_has_left_behind_ends_with_a_parent_that_is_killed(
    broken_plugin: str, tmp_path: Path, attempt: int
) -> None:
    """It's of the group of a process that was forked by another than the server."""
    words = [CASES[0], "--backend", "leave_a_child_when_timed", "--budget", "1", "--out", str(tmp_path)]
    process = start(*words)
    seen: dict[int, psutil.Process] = {}
    while len(seen) < 20:
        assert process.poll() is None
        seen |= {each.pid: each for each in workers_of(process.pid)}
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert psutil.wait_procs(seen.values(), timeout=60)[1] == []


def test_a_finished_run_resumes_to_itself(unbroken: StoredRun, tmp_path: Path) -> None:
    path = tmp_path / "copy.jsonl"
    path.write_bytes(unbroken.path.read_bytes())
    assert start("--resume", str(path)).wait(60) == 0
    assert path.read_bytes() == unbroken.path.read_bytes()


@pytest.mark.slow
def test_two_runs_at_once_into_one_folder(tmp_path: Path) -> None:
    words = [CASES[0], "--backend", "eager", "--budget", "0.01", "--sets", "2", "--out", str(tmp_path)]
    both = [start(*words), start(*words)]
    assert [process.wait(120) for process in both] == [0, 0]
    files = sorted(tmp_path.glob("*.jsonl"))
    assert len(files) == 2
    assert all(read_run(file).finished is not None for file in files)


def test_ctrl_c_ends_cleanly_with_what_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    # Long enough that the second case still goes on when the first has its records, however busy the machine.
    long = ("--budget", "0.5", "--format", "json")
    command = [sys.executable, "-m", "attnbench", "run", *fresh(path), *long]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    workers: list[psutil.Process] = []
    while process.poll() is None and (not path.exists() or b'"kind":"record"' not in path.read_bytes()):
        workers = workers_of(process.pid) or workers
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGINT)
    out, notes = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in notes
    assert f"--resume {path}" in notes
    assert '"status": "ok"' in out
    assert psutil.wait_procs(workers, timeout=60)[1] == []
    assert read_run(path).finished is None
