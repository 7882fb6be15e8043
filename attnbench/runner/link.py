"""The parent's end of the line to a worker or the verifier: ask, wait, and name what went wrong."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from attnbench.ipc import messages as m
from attnbench.ipc import verifier_messages as rm
from attnbench.ipc.channel import Channel, ChannelClosed, ChannelTimeout, close_all, socket_pair
from attnbench.runner.machine import sleep_environment, thread_environment
from attnbench.types.checks import Check
from attnbench.types.errors import MeasuringFailed
from attnbench.types.status import Status

_POLL_S = 0.002


def wait_until_ended(pid: int, most_s: float) -> bool:
    """Wait until a process has ended (a zombie counts), at most ``most_s``; return whether it has."""
    end = time.monotonic() + most_s
    while _state(pid) not in ("Z", "X"):
        if time.monotonic() >= end:
            return False
        time.sleep(_POLL_S)
    return True


def threads_of(pid: int) -> list[int]:
    """The ids of a process's threads; none where it has ended."""
    try:
        return [int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []


def oom_kills() -> int:
    """Return how many processes the system has killed since it started because memory ran out."""
    try:
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


@dataclass(frozen=True)
class Interpreter:
    """python: what to start. variables: of its processes' environment, besides those of this process."""

    python: str = sys.executable
    variables: Mapping[str, str] = field(default_factory=dict)


HERE = Interpreter()
"""The one that this process runs in."""


T = TypeVar("T")

START_TIMEOUT_S = 120.0
CLOSING_S = 2.0

HIGHEST_PRIORITY = -20
"""Within the ordinary scheduler, so that a backend that hangs leaves other processes a share."""


class WorkerFailed(Exception):  # noqa: N818
    """A worker did not do what was asked. Its record gets the status, the reason and the failed check.

    case: the id of the variant case that shows the failure; "" for the case itself.
    """

    def __init__(self, status: Status, reason: str, check: Check = "", case: str = "") -> None:
        super().__init__(reason)
        self.status: Status = status
        self.reason = reason
        self.check: Check = check
        self.case = case


class WorkerLink:
    """A running preloaded server or worker.

    Safe to ask from several threads: one question at a time.

    forked_by: the link to the process it was forked from, which alone can wait for it; None for a
    server, which the parent started itself.
    """

    def __init__(
        self, sock: socket.socket, pid: int, forked_by: WorkerLink | None, started: Started | None
    ) -> None:
        self._line: Channel[m.Request, m.Reply] = Channel(sock, m.Reply)  # type: ignore[arg-type]
        self.pid = pid
        self._forked_by = forked_by
        self._started = started
        self._ended: int | None = None
        self._last_words = ""
        self._asking = threading.Lock()
        self._oom_kills = oom_kills()

    def ask(
        self, request: m.Request, expects: type[T], timeout_s: float, fds: tuple[int, ...] = ()
    ) -> tuple[T, int]:
        """Send a request and wait for its answer; return it and its descriptor (-1 where there is none).

        Raises:
            WorkerFailed: ``timeout`` after ``timeout_s`` (the worker is killed), ``crashed`` where it
                ended, or whatever status it answered with.
        """
        with self._asking:
            self.tell(request, fds)
            return self.hear(type(request), expects, timeout_s)

    def tell(self, request: m.Request, fds: tuple[int, ...] = ()) -> None:
        """Send a request without waiting; :meth:`hear` must follow. Raises :class:`WorkerFailed`."""
        try:
            self._line.send(request, fds)
        except (ChannelClosed, OSError) as gone:
            raise WorkerFailed(*self._describe_death(type(request))) from gone

    def hear(self, request: type[m.Request], expects: type[T], timeout_s: float) -> tuple[T, int]:
        """Wait for the answer to a request of this type; as :meth:`ask`."""
        try:
            reply, received = self._line.receive(timeout_s)
        except ChannelTimeout as late:
            raise self.too_late(request, timeout_s) from late
        except (ChannelClosed, OSError) as gone:
            raise WorkerFailed(*self._describe_death(request)) from gone
        except msgspec.DecodeError as rubbish:
            self.kill()
            unreadable = f"the worker sent unreadable data during {m.doing(request)}"
            raise WorkerFailed("crashed", unreadable) from rubbish
        if isinstance(reply, m.Failed):
            close_all(received)
            raise WorkerFailed(reply.status, reply.reason, reply.check)
        if not isinstance(reply, expects):
            close_all(received)
            self.kill()
            wrong = f"the worker answered {request.__name__} with {type(reply).__name__}"
            raise WorkerFailed("crashed", wrong)
        fd = received.pop(0) if received else -1
        close_all(received)
        return reply, fd

    def too_late(self, request: type[m.Request], timeout_s: float) -> WorkerFailed:
        """Kill a worker that does not answer; return the failure."""
        self.kill()
        reason = f"{m.doing(request)} took longer than {timeout_s:g} s; the worker was killed"
        return WorkerFailed("timeout", reason)

    def fileno(self) -> int:
        """Return the descriptor, to wait on several workers at once."""
        return self._line.fileno()

    def fork(self, *, timed: bool, cpus: tuple[int, ...], pin_allocator: bool = False) -> WorkerLink:
        """Fork this worker; return the link to the new process."""
        ours, theirs = socket_pair()
        with theirs:
            try:
                forked, _ = self.ask(
                    m.Fork(timed, cpus, pin_allocator), m.Forked, START_TIMEOUT_S, (theirs.fileno(),)
                )
            except BaseException:
                ours.close()
                raise
        return WorkerLink(ours, forked.pid, self, None)

    @property
    def alive(self) -> bool:
        """Return whether a process that the parent started itself still runs."""
        return self._ended is None and self._started is not None and self._started.process.poll() is None

    @property
    def ended(self) -> bool:
        """Return whether it is known to have ended."""
        return self._ended is not None

    def pin(self, cpus: tuple[int, ...]) -> None:
        """Let the process run on these cores alone, from now on: every thread it has."""
        for thread in threads_of(self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(thread, cpus)

    def put_first(self) -> bool:
        """Have the process preferred to others on its core; return whether the system allows it.

        Where the kernel shares a core by sessions first (autogroups), a priority counts only within its
        session, so the session gets it too; never the one that this process is in, which is the user's.
        """
        try:
            threads = threads_of(self.pid)
            for thread in threads:
                os.setpriority(os.PRIO_PROCESS, thread, HIGHEST_PRIORITY)
            if os.getsid(self.pid) != os.getsid(0):
                with contextlib.suppress(FileNotFoundError):
                    Path(f"/proc/{self.pid}/autogroup").write_text(str(HIGHEST_PRIORITY))
        except OSError:
            return False
        return bool(threads)

    def kill(self) -> None:
        """End the process and the group it leads; done already is fine."""
        if self._ended is None:
            self._ended = self._end()

    def _end(self) -> int:
        if self._started is not None:
            # The server ends by itself when its line closes, and takes its prepared workers with it.
            self._line.close()
            code, self._last_words = self._started.end(CLOSING_S)
            return code
        assert self._forked_by is not None
        for end in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                end(self.pid, signal.SIGKILL)
        # Not before: it would end by itself, and how it ended would be a matter of luck.
        self._line.close()
        try:
            ended, _ = self._forked_by.ask(m.Reap(self.pid), m.Ended, START_TIMEOUT_S)
        except WorkerFailed:
            return -signal.SIGKILL
        return ended.code

    def _describe_death(self, request: type[m.Request]) -> tuple[Status, str]:
        """Return the status and reason of a worker that closed its line."""
        if self._ended is None:
            # The line closes a moment before the process ends: killing it now would hide how it ended.
            wait_until_ended(self.pid, CLOSING_S)
            self._ended = self._end()
        code, doing = self._ended, m.doing(request)
        if code == -signal.SIGKILL and oom_kills() > self._oom_kills:
            return (
                "out_of_memory",
                f"the system killed the worker during {doing}: the machine ran out of memory",
            )
        how = f"died of {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"
        return "crashed", f"{how} during {doing}" + (f": {self._last_words}" if self._last_words else "")


def start_server(threads: int, interpreter: Interpreter = HERE) -> WorkerLink:
    """Start a server: a fresh interpreter with torch loaded, ``threads`` threads in every library."""
    # One thread while compiling too: a pool of compilers would outlive the prepared worker that is forked.
    environment = thread_environment(threads) | sleep_environment() | {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
    started = start_process("attnbench.worker.server", [str(threads)], environment, interpreter)
    return WorkerLink(started.sock, started.process.pid, None, started)


@dataclass(frozen=True)
class Started:
    """A process that the parent started itself: our end of its line, and a file that gets its stderr."""

    sock: socket.socket
    process: subprocess.Popen[bytes]
    stderr: IO[bytes]
    _ended: list[tuple[int, str]] = field(default_factory=list)
    _ending: threading.Lock = field(default_factory=threading.Lock)

    def end(self, patience_s: float) -> tuple[int, str]:
        """Wait for it to end by itself, which it does when its line is closed; kill it if it doesn't.

        Gives how it ended, as :class:`subprocess.Popen` does, and the last line it wrote to stderr. May be
        called by several threads, again too: after Ctrl-C one closes what another was still asking.
        """
        with self._ending:
            if not self._ended:
                self._ended.append(self._end(patience_s))
            return self._ended[0]

    def _end(self, patience_s: float) -> tuple[int, str]:
        try:
            code = self.process.wait(timeout=patience_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        with self.stderr:
            self.stderr.seek(0)
            lines = self.stderr.read().decode(errors="replace").split("\n")
        return code, next((line.strip() for line in reversed(lines) if line.strip()), "")


def start_process(
    module: str, words: list[str], environment: dict[str, str], interpreter: Interpreter = HERE
) -> Started:
    """Start one of our modules with a line to it as its first argument and our pid as its last."""
    ours, theirs = socket_pair()
    stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the process has ended
    with theirs:
        command = [interpreter.python, "-m", module, str(theirs.fileno()), *words, str(os.getpid())]
        try:
            process = subprocess.Popen(
                command,
                pass_fds=(theirs.fileno(),),
                env=os.environ | dict(interpreter.variables) | environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            )
        except OSError as failure:
            raise MeasuringFailed(f"can't start {module}: {failure}") from failure
    return Started(ours, process, stderr)


class VerifierFailed(Exception):  # noqa: N818
    """The verifier can't judge this case; the message says why."""


class VerifierLink:
    """A running verifier. Safe to ask from several threads: one question at a time."""

    def __init__(self, timeout_s: float) -> None:
        self._started = start_process("attnbench.verifier.process", [], {"OPENBLAS_NUM_THREADS": "1"})
        self._line: Channel[rm.VerifierRequest, rm.VerifierReply] = Channel(
            self._started.sock,
            rm.VerifierReply,  # type: ignore[arg-type]
        )
        self._lock = threading.Lock()
        self._closed = False
        self._last_words = ""
        self._timeout_s = timeout_s

    def ask(self, request: rm.VerifierRequest, expects: type[T], fd: int = -1) -> tuple[T, int]:
        """Send a request (with a descriptor, which stays the caller's); return the answer and its descriptor.

        Raises:
            VerifierFailed: it could not, or ended, or took too long (it is killed).
        """
        with self._lock:
            try:
                self._line.send(request, () if fd < 0 else (fd,))
                reply, fds = self._line.receive(self._timeout_s)
            except ChannelTimeout as late:
                self.close()
                raise VerifierFailed(f"the oracle took more than {self._timeout_s:g} s") from late
            except (ChannelClosed, OSError) as gone:
                raise VerifierFailed(f"the oracle's process ended: {self.close()}") from gone
        if isinstance(reply, rm.RequestFailed):
            close_all(fds)
            raise VerifierFailed(f"the oracle failed: {reply.reason}")
        if not isinstance(reply, expects):
            close_all(fds)
            raise MeasuringFailed(f"the verifier answered {type(reply).__name__} to {type(request).__name__}")
        return reply, fds[0] if fds else -1

    @property
    def alive(self) -> bool:
        """Return whether it still runs."""
        return not self._closed and self._started.process.poll() is None

    def close(self) -> str:
        """End it; return the last line it wrote to stderr."""
        if not self._closed:
            self._closed = True
            self._line.close()
            _, self._last_words = self._started.end(CLOSING_S)
        return self._last_words
