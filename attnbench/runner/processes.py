"""The parent's end of the line to a worker or the verifier: requests, answers, reasons of failures."""

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec

from attnbench.cases.memory import numbers
from attnbench.ipc import messages as m
from attnbench.ipc import verifier_messages as rm
from attnbench.ipc.channel import Channel, close_all, socket_pair
from attnbench.ipc.process import (
    also_from_here,
    command_of,
    descendants,
    has_ended,
    is_stopped,
    kill_all,
    kill_group,
    session_of,
)
from attnbench.plugins.code import Stamp
from attnbench.runner.machine import server_environment
from attnbench.types.errors import MeasuringFailed
from attnbench.types.record import Accuracy, DropoutNumbers
from attnbench.types.status import Check, Status

_POLL_S = 0.002
LOOK_S = 5.0
"""How often a process that is waited for is looked at: whether somebody has stopped it."""


def wait_until_ended(pid: int, most_s: float) -> bool:
    """Wait at most ``most_s`` until a process has ended (a zombie has); return whether it has."""
    end = time.monotonic() + most_s
    while not has_ended(pid):
        if time.monotonic() >= end:
            return False
        time.sleep(_POLL_S)
    return True


def threads_of(pid: int) -> list[int]:
    """Return the ids of a process's threads; none if it has ended."""
    try:
        return [int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []


def oom_kills() -> int:
    """Return how many processes the system has killed since it started because memory ran out."""
    return numbers(Path("/proc/vmstat")).get("oom_kill", 0)


@dataclass(frozen=True)
class Interpreter:
    """How servers are started, and where their workers import plugins from.

    variables: added to the environment. side: the import path of a side of a live comparison; None for the
    server's own. Interpreters that differ in nothing else share servers.
    """

    python: str = sys.executable
    variables: Mapping[str, str] = field(default_factory=dict)
    side: m.ImportFrom | None = None


HERE = Interpreter()
"""The interpreter of this process."""


T = TypeVar("T")

START_TIMEOUT_S = 120.0
CLOSING_S = 2.0

_MOST_PRINTED, _MOST_PRINTED_BYTES, _MOST_KEPT_BYTES = 10, 4096, 2**20
"""The lines that are shown of what a worker printed, how much of it is read, and how much it keeps."""

HIGHEST_PRIORITY = -20
"""The highest nice priority, not a real-time one, so that a backend that hangs leaves others a share."""


class HelperLost(Exception):  # noqa: N818
    """A process of attnbench ended or was stopped.

    status: of the records that are missing if it happens twice. backend: the only one that ran then, or "".
    """

    def __init__(self, reason: str, status: Status = "interrupted", backend: str = "") -> None:
        super().__init__(reason)
        self.status: Status = status
        self.backend = backend


class ServerLost(HelperLost):
    """A server ended, and its forks with it; or a process was stopped. A backend may have done it."""


STOPPED = "a process of attnbench was stopped (SIGSTOP)"


def _receive(line: Channel[Any, T], pid: int, timeout_s: float) -> tuple[T, list[int]]:
    """Wait for one message of a process; raises as :meth:`Channel.receive`, and soon if it was stopped."""
    end = time.monotonic() + timeout_s
    while True:
        left_s = end - time.monotonic()
        try:
            return line.receive(max(0.001, min(LOOK_S, left_s)))
        except TimeoutError:
            if left_s <= LOOK_S or is_stopped(pid):
                raise


class WorkerFailed(Exception):  # noqa: N818
    """A request to a worker failed. The record gets the status, the reason and the failed check.

    case: the id of the variant case that shows the failure; "" for the case itself. Of a wrong output,
    accuracy (with dropout: dropout) says by how much, failed_on on which inputs. printed: the last lines that
    the worker printed. trace: the traceback of what it raised.
    """

    printed = ""
    trace = ""

    def __init__(
        self,
        status: Status,
        reason: str,
        check: Check = "",
        case: str = "",
        failed_on: Sequence[str] = (),
        accuracy: Accuracy | None = None,
        dropout: DropoutNumbers | None = None,
    ) -> None:
        super().__init__(reason)
        self.status: Status = status
        self.reason = reason
        self.check: Check = check
        self.case = case
        self.failed_on = failed_on
        self.accuracy = accuracy
        self.dropout = dropout


class WorkerKilled(WorkerFailed):
    """A worker died of a signal that another program may have sent it: it deserves a second try."""


def how_ended(code: int, last_words: str, during: str = "") -> str:
    """Return in words how a process ended: its signal or status, and the last line of its stderr."""
    how = f"died of {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"
    return how + during + (f": {last_words}" if last_words else "")


class Process:
    """A process that the parent started itself: our end of its line, and a file that gets its stderr."""

    def __init__(self, sock: socket.socket, process: subprocess.Popen[bytes], stderr: IO[bytes]) -> None:
        self.sock = sock
        self.process = process
        self._stderr = stderr
        self._ended: tuple[int, str] | None = None
        # After Ctrl-C one thread closes what another still waits for.
        self._ending = threading.Lock()

    def end(self, patience_s: float) -> tuple[int, str]:
        """Wait for it to end by itself, which it does when its line is closed; kill it if it does not.

        Return its status, as :class:`subprocess.Popen` has it, and the last line that it wrote to stderr.
        Several threads may call it, also again.
        """
        with self._ending:
            if self._ended is None:
                try:
                    code = self.process.wait(timeout=patience_s)
                except subprocess.TimeoutExpired:
                    self.process.kill()
                    code = self.process.wait()
                with self._stderr:
                    self._stderr.seek(0)
                    lines = self._stderr.read().decode(errors="replace").split("\n")
                self._ended = code, next((line.strip() for line in reversed(lines) if line.strip()), "")
            return self._ended


def start_process(
    module: str, words: list[str], environment: dict[str, str], interpreter: Interpreter = HERE
) -> Process:
    """Start a module of attnbench. Its first argument is its line, its last one our process id."""
    ours, theirs = socket_pair()
    stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the process has ended
    with theirs:
        words = [str(theirs.fileno()), *words, str(os.getpid())]
        try:
            process = subprocess.Popen(
                command_of(module, *words, python=interpreter.python),
                pass_fds=(theirs.fileno(),),
                env=os.environ | also_from_here() | dict(interpreter.variables) | environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            )
        except OSError as failure:
            raise MeasuringFailed(f"can't start {module}: {failure}") from failure
    return Process(ours, process, stderr)


class WorkerLink:
    """A running preloaded server or worker. Several threads may ask it: it answers one request at a time.

    origin: the process that the parent started, for a server; for a worker the link to the process that it
    was forked from, which alone can wait for its end. timeout_s: for requests that have no other, here and in
    forks. attnbench: the code that it runs; None where it was not asked. prints: the descriptor of the file
    that gets what it prints; it is closed with the worker.
    """

    def __init__(
        self,
        sock: socket.socket,
        pid: int,
        origin: WorkerLink | Process,
        timeout_s: float = START_TIMEOUT_S,
        attnbench: Stamp | None = None,
        prints: int = -1,
    ) -> None:
        self._line: Channel[m.Request, m.Reply] = Channel(sock, m.Reply)  # type: ignore[arg-type]
        self.pid = pid
        self.attnbench = attnbench
        self._origin = origin
        self._timeout_s = timeout_s
        self._answered = False
        self._ended: int | None = None
        self._last_words = ""
        self._left: list[int] = []
        self._asking = threading.Lock()
        self._oom_kills = oom_kills()
        self._prints = prints
        self._printed = ""

    def ask(
        self,
        request: m.Request,
        expects: type[T],
        timeout_s: float | None = None,
        fds: tuple[int, ...] = (),
    ) -> tuple[T, int]:
        """Send a request and wait for its answer; return it and its descriptor, -1 for none.

        Raises:
            WorkerFailed: ``timeout`` after ``timeout_s`` (the worker is killed), ``crashed`` if it ended, or
                the status that it answered with.
            ServerLost: it ended with its server, or was stopped.
        """
        with self._asking:
            self.tell(request, fds)
            return self.hear(type(request), expects, timeout_s)

    def tell(self, request: m.Request, fds: tuple[int, ...] = ()) -> None:
        """Send a request without waiting; :meth:`hear` must follow. Raises as :meth:`ask`."""
        if is_stopped(self.pid):
            raise self._stopped(type(request))
        try:
            self._line.send(request, fds)
        except OSError as gone:
            raise self._death(type(request)) from gone

    def hear(
        self, request: type[m.Request], expects: type[T], timeout_s: float | None = None
    ) -> tuple[T, int]:
        """Wait for the answer to a request of this type; as :meth:`ask`."""
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            reply, received = _receive(self._line, self.pid, timeout_s)
        except TimeoutError as late:
            raise self.too_late(request, timeout_s) from late
        except OSError as gone:
            raise self._death(request) from gone
        except msgspec.DecodeError as rubbish:
            self.kill()
            unreadable = f"the worker sent unreadable data during {m.doing(request)}"
            raise self._failed("crashed", unreadable) from rubbish
        self._answered = True
        if isinstance(reply, expects):
            close_all(received[1:])
            if self._prints >= 0 and os.fstat(self._prints).st_size > _MOST_KEPT_BYTES:
                os.ftruncate(self._prints, 0)
            return reply, received[0] if received else -1
        close_all(received)
        if isinstance(reply, m.Failed):
            failure = self._failed(reply.status, reply.reason, reply.check)
            failure.trace = reply.trace
            raise failure
        self.kill()
        wrong = f"the worker answered {request.__name__} with {type(reply).__name__}"
        raise self._failed("crashed", wrong)

    def _failed(
        self, status: Status, reason: str, check: Check = "", kind: type[WorkerFailed] = WorkerFailed
    ) -> WorkerFailed:
        self._read_prints()
        failure = kind(status, reason, check)
        failure.printed = self._printed
        return failure

    def _read_prints(self) -> None:
        """Read the last lines that the worker printed, unless it has ended: then they are known."""
        if self._prints >= 0:
            end = os.fstat(self._prints).st_size
            start = max(0, end - _MOST_PRINTED_BYTES)
            lines = os.pread(self._prints, end - start, start).decode(errors="replace").splitlines()
            self._printed = "\n".join([line for line in lines if line.strip()][-_MOST_PRINTED:])

    def too_late(self, request: type[m.Request], timeout_s: float) -> WorkerFailed | ServerLost:
        """Kill a worker that does not answer; return the failure."""
        if has_ended(self.pid):
            # A process that it left holds its line open.
            return self._death(request)
        if is_stopped(self.pid):
            return self._stopped(request)
        self.kill()
        reason = f"{m.doing(request)} took longer than {timeout_s:g} s; the worker was killed"
        return self._failed("timeout", reason)

    def _stopped(self, request: type[m.Request]) -> ServerLost:
        """Kill a process that was stopped; return the loss."""
        kill_all([self.pid])
        self.kill()
        return ServerLost(f"{STOPPED} during {m.doing(request)}")

    def fileno(self) -> int:
        """Return the descriptor, to wait on several workers at once."""
        return self._line.sock.fileno()

    def fork(
        self, *, timed: bool, cpus: tuple[int, ...], keeps_memory: bool | None = None, backward: bool = False
    ) -> WorkerLink:
        """Fork this process; return the link to the new one. Raises as :meth:`ask`."""
        ours, theirs = socket_pair()
        request = m.Fork(timed, cpus, keeps_memory, backward)
        with theirs:
            try:
                forked, prints = self.ask(request, m.Forked, self.patience_s, (theirs.fileno(),))
            except WorkerFailed as failure:
                ours.close()
                if self is self._server:
                    raise ServerLost(f"a server that loads torch failed: {failure}") from failure
                raise
            except BaseException:
                ours.close()
                raise
        return WorkerLink(ours, forked.pid, self, self._timeout_s, forked.attnbench, prints)

    @property
    def patience_s(self) -> float:
        """The time to answer where no backend is asked. The first answer may come after loading torch."""
        return max(self._timeout_s, CLOSING_S) if self._answered else START_TIMEOUT_S

    @property
    def _server(self) -> WorkerLink:
        return self if isinstance(self._origin, Process) else self._origin._server

    @property
    def alive(self) -> bool:
        """Return whether a server still runs."""
        return (
            self._ended is None and isinstance(self._origin, Process) and self._origin.process.poll() is None
        )

    def pin(self, cpus: tuple[int, ...]) -> None:
        """Let every thread of the process run on these cores alone from now on."""
        for thread in threads_of(self.pid):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(thread, cpus)

    def put_first(self) -> bool:
        """Give the process the highest priority on its core; return whether the system allows it.

        If the kernel shares a core by sessions first (autogroups), a priority counts only within its session,
        so the session gets it too; never that of this process, which is the user's.
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
        """End the process and the group it leads; it may have ended already."""
        if self._ended is None:
            self._ended = self._end()

    def _end(self) -> int:
        try:
            return self._end_process()
        finally:
            self._read_prints()
            if self._prints >= 0:
                os.close(self._prints)
                self._prints = -1

    def _end_process(self) -> int:
        if isinstance(self._origin, Process):
            # The server ends by itself when its line closes, and ends its workers.
            self._line.sock.close()
            code, self._last_words = self._origin.end(CLOSING_S)
            return code
        # Of one that has ended, only its session still tells what it left.
        self._left = session_of(self.pid) if has_ended(self.pid) else descendants(self.pid)
        kill_group(self.pid)
        kill_all([self.pid, *self._left])
        # Not before: it would end by itself, and its status would depend on which is faster.
        self._line.sock.close()
        if is_stopped(self._origin.pid):
            return -signal.SIGKILL
        try:
            return self._origin.ask(m.Reap(self.pid), m.Reaped, self._origin.patience_s)[0].code
        except (WorkerFailed, ServerLost):
            return -signal.SIGKILL

    def _death(self, request: type[m.Request]) -> WorkerFailed | ServerLost:
        """Return the failure of a worker that closed its line."""
        by_itself = False
        if self._ended is None:
            # The line closes a moment before the process ends; to kill it now would hide how it ended.
            by_itself = wait_until_ended(self.pid, CLOSING_S)
            self._ended = self._end()
        code, doing, server = self._ended, m.doing(request), self._server
        if server is not self and not server.alive:
            return ServerLost(f"the server of a worker ended during {doing}")
        if code == -signal.SIGKILL and oom_kills() > self._oom_kills:
            killed = f"the system killed the worker during {doing}: the machine ran out of memory"
            return self._failed("out_of_memory", killed)
        words = how_ended(code, self._last_words, f" during {doing}")
        if self._left:
            words += "; it left processes running, which were ended"
        if by_itself and code in (-signal.SIGKILL, -signal.SIGTERM):
            return self._failed("crashed", words, kind=WorkerKilled)
        return self._failed("crashed", words)


def start_server(
    threads: int, interpreter: Interpreter = HERE, timeout_s: float = START_TIMEOUT_S
) -> WorkerLink:
    """Start a server: a fresh interpreter with torch loaded, ``threads`` threads in every library."""
    started = start_process(
        "attnbench.worker.server", [str(threads)], server_environment(threads), interpreter
    )
    return WorkerLink(started.sock, started.process.pid, started, timeout_s)


class VerifierFailed(Exception):  # noqa: N818
    """The verifier can't judge this case; the message says why. check: the one that a rule failed, or "".

    late: whether it took too long, so that asking again would take as long.
    """

    def __init__(self, reason: str, check: Check = "", *, late: bool = False) -> None:
        super().__init__(reason)
        self.check: Check = check
        self.late = late


class VerifierLink:
    """A running verifier. Several threads may ask it: it answers one request at a time.

    failed: whether a request failed, after which another process must be asked.
    """

    def __init__(self, timeout_s: float) -> None:
        self._started = start_process("attnbench.verifier.process", [], {"OPENBLAS_NUM_THREADS": "1"})
        self._line: Channel[rm.VerifierRequest, rm.VerifierReply] = Channel(
            self._started.sock,
            rm.VerifierReply,  # type: ignore[arg-type]
        )
        self.pid = self._started.process.pid
        self._lock = threading.Lock()
        self._closed = False
        self._timeout_s = timeout_s
        self.failed = False

    def ask(self, request: rm.VerifierRequest, expects: type[T], fd: int = -1) -> tuple[T, int]:
        """Send a request and a descriptor, which stays the caller's; return the answer and its descriptor.

        Raises:
            VerifierFailed: it could not, or took too long (it is killed).
            HelperLost: it ended, or was stopped.
        """
        with self._lock:
            try:
                if is_stopped(self.pid):
                    raise TimeoutError
                self._line.send(request, () if fd < 0 else (fd,))
                reply, fds = _receive(self._line, self.pid, self._timeout_s)
            except TimeoutError as late:
                stopped = is_stopped(self.pid)
                self.close()
                if stopped:
                    raise ServerLost(STOPPED) from late
                raise VerifierFailed(f"the oracle took more than {self._timeout_s:g} s", late=True) from late
            except OSError as gone:
                last_words = self.close()
                code = self._started.process.returncode
                # Anything but a kill was most likely a rule's doing.
                status: Status = "interrupted" if code == -signal.SIGKILL else "unjudged"
                raise HelperLost(f"the oracle's process {how_ended(code, last_words)}", status) from gone
        if isinstance(reply, expects):
            return reply, fds[0] if fds else -1
        close_all(fds)
        if isinstance(reply, rm.RequestFailed):
            self.failed = True
            raise VerifierFailed(f"the oracle failed{reply.reason}", reply.check)
        raise MeasuringFailed(f"the verifier answered {type(reply).__name__} to {type(request).__name__}")

    @property
    def alive(self) -> bool:
        """Return whether it still runs."""
        return not self._closed and self._started.process.poll() is None

    def close(self) -> str:
        """End it; return the last line it wrote to stderr."""
        if not self._closed:
            self._closed = True
            self._line.sock.close()
        return self._started.end(CLOSING_S)[1]
