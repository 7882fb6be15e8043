"""Capturing: a block of this process, or a whole program with its child processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from attnbench.programs.begin import FLEX, FOLDER, STEPS, functions_in
from attnbench.programs.suite import SUITE, Captured, captured
from attnbench.programs.tally import Calls, read_calls
from attnbench.results.targets import check_target, write_files
from attnbench.types.errors import BadInput

_SITE = Path(__file__).parent / "site"


class Capture:
    """The value of ``with attnbench.capture() as calls``; ``calls.captured`` is there after the block."""

    captured: Captured

    def write(self, path: Path | str, *, force: bool = False) -> None:
        """Write the suite of the block's calls.

        force: replace any file; without it only one that attnbench captured is replaced.

        Raises:
            BadInput: the block made no call that a case can say, or the file can't be written or replaced.
        """
        if not self.captured.cases:
            raise BadInput("no attention call was captured: there is nothing to write")
        check_target(Path(path), SUITE, force=force, otherwise="force=True")
        write_files({Path(path): self.captured.toml().encode()})


@contextmanager
def capture(steps: int | None = None) -> Iterator[Capture]:
    """Count the attention calls of a block, in all threads; see :class:`Captured`.

    Modules that imported an attention function by its name are seen; local variables that hold one are not.
    steps: how many steps of optimizers to record; counts are then those of one. None for all that the block
    calls. The block also runs where recording fails, as on a full disk; the notes say so.
    """
    from attnbench.programs.watch import Watch

    result, watch = Capture(), None
    calls = Calls({}, 0, 0.0)
    with ExitStack() as after:
        try:
            folder = Path(after.enter_context(_folder()))
            watch = Watch(folder, steps)
        except OSError as failure:
            calls = replace(calls, lost=(failure.strerror or str(failure),))
        else:
            for name in [one for one in sys.modules if one in ("torch", FLEX) or functions_in(one)]:
                watch.patch(sys.modules[name])
        try:
            yield result
        finally:
            if watch is not None:
                watch.restore()
                calls = read_calls(folder)
            result.captured = captured(calls, by_step=steps is not None)


def _folder() -> tempfile.TemporaryDirectory[str]:
    """Make a folder for the files of a recording. Processes may still write while it is removed."""
    return tempfile.TemporaryDirectory(prefix="attnbench-capture-", ignore_cleanup_errors=True)


def run_program(command: Sequence[str], steps: int | None = None) -> tuple[int, Captured]:
    """Run a program with its calls counted; return its exit status, as a shell gives it, and the calls.

    Ctrl-C reaches the program, which decides whether it ends.

    Raises:
        BadInput: it can't be started, or there is no temporary folder.
    """
    with ExitStack() as after:
        try:
            folder = after.enter_context(_folder())
        except OSError as failure:
            raise BadInput(f"no temporary folder: {failure}; set TMPDIR to one with room") from failure
        path = os.pathsep.join(filter(None, [str(_SITE), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path, FOLDER: folder}
        if steps is not None:
            environment[STEPS] = str(steps)
        try:
            program = subprocess.Popen(command, env=environment)
        except OSError as failure:
            hint = f"; is it python {command[0]}?" if command[0].endswith(".py") else ""
            raise BadInput(f"can't start {command[0]!r}: {failure.strerror}{hint}") from failure
        status = _wait(program)
        return status if status >= 0 else 128 - status, captured(
            read_calls(Path(folder)), by_step=steps is not None
        )


def _wait(program: subprocess.Popen[bytes]) -> int:
    """Wait for a program. A request to end is passed on; Ctrl-C comes to it from the terminal."""

    def passed_on(number: int, _: object) -> None:
        program.send_signal(number)

    endings = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    before = {number: signal.signal(number, passed_on) for number in endings}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return program.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
