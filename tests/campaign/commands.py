"""Commands of attnbench that are tried, and what must hold of each, whatever it was given."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_S = 90.0
STATUSES = (0, 1, 2, 3, 4, 130)


@dataclass(frozen=True)
class Done:
    """A command that ended. status: as a shell gives it; None if it was killed because it took too long."""

    words: tuple[str, ...]
    status: int | None
    stdout: str
    stderr: str


def in_fork(words: Sequence[str], folder: Path, timeout_s: float = TIMEOUT_S) -> Done:
    """Run a command in a fork of this process, which takes a tenth of the time of a new interpreter."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        pid = os.fork()
        if pid == 0:
            _become(words, folder, out.fileno(), errors.fileno())
        end, code = time.monotonic() + timeout_s, None
        while code is None and time.monotonic() < end:
            ended, waited = os.waitpid(pid, os.WNOHANG)
            code = os.waitstatus_to_exitcode(waited) if ended else None
            time.sleep(0.002)
        if code is None:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        said = []
        for file in (out, errors):
            file.seek(0)
            said.append(file.read().decode(errors="surrogateescape"))
    return Done(tuple(words), code, said[0], said[1])


def _become(words: Sequence[str], folder: Path, out: int, errors: int) -> None:
    """Turn this fork into the command; never return."""
    status = 99
    try:
        os.setsid()
        os.chdir(folder)
        null = os.open(os.devnull, os.O_RDONLY)
        for there, here in ((null, 0), (out, 1), (errors, 2)):
            os.dup2(there, here)
        sys.argv = ["attnbench", *words]
        # As the command line of a new process: bytes of any kind, with what is not UTF-8 in surrogates.
        sys.stdout = open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        from attnbench.cli import attnbench

        try:
            attnbench(list(words), prog_name="attnbench")
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def in_process(
    words: Sequence[str], folder: Path, environment: dict[str, str] | None = None,
    before: Callable[[], None] | None = None, timeout_s: float = TIMEOUT_S,
) -> Done:  # fmt: skip
    """Run a command in a new process. before: called in it first."""
    # With -P, as the console script, it does not import from the working folder.
    command = [sys.executable, "-P", "-m", "attnbench", *words]
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, start_new_session=True, preexec_fn=before,
    )  # fmt: skip
    try:
        out, errors = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, errors = process.communicate()
        return Done(tuple(words), None, out.decode(errors="replace"), errors.decode(errors="replace"))
    # In the encoding that the environment asks for, which may be another than UTF-8.
    decoded = (text.decode(errors="replace") for text in (out, errors))
    return Done(tuple(words), process.returncode, *decoded)


def check(done: Done, statuses: Sequence[int] = STATUSES) -> Done:
    """Assert that a command ended by itself, with a status of ours and a sentence, and printed clean text."""
    said = f"{' '.join(done.words)[:2000]!a}\n  status {done.status}\n  {done.stderr[-1500:]!a}"
    assert done.status is not None, f"it hung: {said}"
    assert done.status in statuses, said
    for text in (done.stdout, done.stderr):
        odd = {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c not in "\n\t"}
        assert not odd, f"it printed {odd!a}: {said}"
    assert "Traceback" not in done.stderr, said
    assert "ATTNBENCH_TRACEBACK" not in done.stderr, said  # It advises to set it where it expected no error.
    if done.status in (2, 3):
        assert done.stderr.strip() or done.stdout.strip(), f"no word: {said}"
    return done
