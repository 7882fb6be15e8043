"""Kills: a run that is killed at random moments and resumed has the records of one that was not."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import psutil
from commands import check, in_process

from attnbench.results.format import StoredRun, read_run
from attnbench.types.errors import BadFile

CASES = ("attention/dot/H2-L16-D8", "attention/dot/H2-L24-D8/causal")
BACKENDS = ("eager", "bmm", "numpy", "sdpa_math", "nn_multihead_attention")
LONGEST_S = 120.0
CHOSEN = [word for name in BACKENDS for word in ("--backend", name)]
WORDS = ("run", *CASES, *CHOSEN, "--budget", "0.02", "--repetitions", "3")
Outcome = dict[tuple[str, str], tuple[str, int]]
ENDED = 3
"""The status of a run that nothing disturbs: one of the backends supports none of the cases."""


@cache
def unbroken(folder: Path) -> tuple[Outcome, float]:
    """The records of a run that nobody disturbs, and the seconds it takes."""
    path, start = folder / "unbroken.jsonl", time.monotonic()
    check(in_process([*WORDS, "--out", str(path)], folder), [ENDED])
    return outcome(read_run(path)), time.monotonic() - start


def outcome(run: StoredRun) -> Outcome:
    """The status and the repetitions of each record of a finished run, by case and backend."""
    assert run.finished is not None, f"{run.path} is not finished"
    return {(record.case, record.backend): (record.status, record.repetitions) for record in run.records}


def trial(rng: random.Random, folder: Path, shared: Path) -> None:
    """Kill a run, and whatever goes on with it, up to three times. Complete repetitions stay as they are."""
    expected, takes_s = unbroken(shared)
    path, start = folder / "run.jsonl", time.monotonic()
    kills = rng.randint(1, 3)
    run, measured = None, ()
    while run is None or run.finished is None:
        assert time.monotonic() < start + LONGEST_S, "no end"
        words = ["run", "--resume", str(path)] if run else [*WORDS, "--out", str(path)]
        if kills > 0:
            _killed(words, folder, rng, takes_s)
        else:
            check(in_process(words, folder), [ENDED])
        kills -= 1
        run = _stored(path)
        if run is not None:
            assert run.repetitions[: len(measured)] == measured, (
                "a complete repetition was lost or measured again"
            )
            measured = run.repetitions
    found = outcome(run)
    assert found == expected, f"records differ: {dict(found.items() ^ expected.items())}"


def _stored(path: Path) -> StoredRun | None:
    """Read a run. A file without its first line, as a kill at the start leaves, is removed."""
    if not path.exists() or b"\n" not in path.read_bytes():
        path.unlink(missing_ok=True)
        return None
    try:
        return read_run(path)
    except BadFile as bad:
        raise AssertionError(f"a kill left a file that can't be read: {bad}") from bad


def _killed(words: list[str], folder: Path, rng: random.Random, takes_s: float) -> None:
    """Run a command, and kill it, a server or the verifier at a random moment; no process may be left."""
    command = [sys.executable, "-m", "attnbench", *words]
    # Into a file, since a pipe would be held open by what is left.
    with (folder / "stderr").open("wb") as errors:
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=errors)
    after_s, helper = rng.uniform(0.2, 1.1 * takes_s), rng.random() < 0.3
    sent = rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(after_s)
    # A worker's death is its backend's; that of a server or the verifier is nobody's.
    helpers = sorted(p.pid for p in _family(process.pid, recursive=False))
    others = _family(process.pid)
    victim = rng.choice(helpers) if helper and helpers else process.pid
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL if victim != process.pid else sent)
    try:
        status = process.wait(LONGEST_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"hung after {sent.name} to {victim}, {after_s:.2f} s in") from None
    said = (folder / "stderr").read_text(errors="replace")
    # While Python imports, it may print and drop an interruption.
    assert "Traceback" not in said or "Exception ignored" in said, said
    assert status in (ENDED, 130, -signal.SIGKILL, -signal.SIGINT, -signal.SIGTERM), f"{status}: {said}"
    _, alive = psutil.wait_procs(others, timeout=30)
    left = [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]
    assert not left, f"left after {sent.name}: {left}"


def _family(pid: int, *, recursive: bool = True) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return list(psutil.Process(pid).children(recursive=recursive))
    return []
