"""First steps of every worker process (on Linux alone), the end of its group, and code not to import."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec, PathFinder
from io import FileIO
from pathlib import Path
from types import ModuleType
from typing import Any

from attnbench.cases.memory import numbers, read

PARENT = "ATTNBENCH_PARENT"
"""The environment variable that says with which process another one ends."""

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def _set(option: int, value: int) -> None:
    """Set an attribute of this process in the kernel, see prctl(2)."""
    ctypes.CDLL(None).prctl(option, value)


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when its parent ends; end at once if it has."""
    _set(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)


def end_with(environ: MutableMapping[str, str]) -> None:
    """End with the process whose number an environment states, if it states one, and take it out."""
    if parent := environ.pop(PARENT, ""):
        die_with_parent(int(parent))


def live_by_line() -> None:
    """Undo :func:`die_with_parent`: a server sees the end of its line, and then ends its forks."""
    _set(_PR_SET_PDEATHSIG, 0)


def adopt_orphans() -> None:
    """Have the kernel make this process the parent of what its children leave, daemons too."""
    _set(_PR_SET_CHILD_SUBREAPER, 1)


def leave_terminal() -> None:
    """Ignore Ctrl-C, which is for the parent: it ends its workers itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def silence() -> None:
    """Discard what is printed and give no input: stdout is for data."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    print_to(null)
    os.close(null)


def print_to(descriptor: int) -> None:
    """Let stdout and stderr of this process and of those that it starts be this descriptor, from now on."""
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    for stream in (sys.stdout, sys.stderr):
        # By lines, so that the last ones are there if the process crashes.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
            stream.flush()


def limit_memory(extra_bytes: int) -> None:
    """Refuse to allocate more than ``extra_bytes`` beyond what this process holds now.

    The limit counts private writable memory (RLIMIT_DATA), not address space, much of which libraries never
    touch. The allocation beyond it fails with the message of the library that asked.
    """
    import resource  # not on every system that reads this file

    held = 1024 * numbers(Path("/proc/self/status")).get("VmData", 0)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = held + extra_bytes
    if hard != resource.RLIM_INFINITY:
        soft = min(soft, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def be_first_to_go() -> None:
    """Let the kernel end this process rather than the parent when memory runs out."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123
        file.write("1000")


def state_of(folder: str | Path) -> str:
    """Return the state of a process or thread as in proc(5): T if it is stopped, X if there is none."""
    return (read(Path(folder, "stat")).rpartition(")")[2].split() or "X")[0]


def has_ended(pid: int) -> bool:
    """Return whether a process has ended; one that nobody has waited for (a zombie) has."""
    return state_of(f"/proc/{pid}") in "ZX"


def is_stopped(pid: int) -> bool:
    """Return whether a process was stopped (SIGSTOP): it answers nothing until somebody continues it."""
    return state_of(f"/proc/{pid}") == "T"


def children_of(pid: int) -> frozenset[int]:
    """Return the children of a process that still run, where the kernel tells."""
    found: set[int] = set()
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        found.update(map(int, read(children).split()))
    return frozenset(child for child in found if not has_ended(child))


def descendants(pid: int) -> list[int]:
    """Return the children of a process that still run, and theirs."""
    return [each for child in children_of(pid) for each in (child, *descendants(child))]


def session_of(leader_pid: int) -> list[int]:
    """Return the processes that still run of the session that a process led."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
            if state not in "ZX" and int(session) == leader_pid:
                found.append(int(stat.parent.name))
    return found


def kill_all(pids: Iterable[int]) -> None:
    """Kill these processes, as far as they still run and the system allows it."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def kill_group(leader_pid: int) -> None:
    """Kill what is left of the process group that a process leads or led."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader_pid, signal.SIGKILL)


def command_of(module: str, *words: str, python: str = sys.executable) -> list[str]:
    """Return the command of a module, which imports nothing from the folder that it is started in.

    There may be another attnbench, a ``select.py``, or a package that is named like an installed one.
    """
    return [python, "-P", "-m", module, *words]


ALSO_FROM = "ATTNBENCH_ALSO_FROM"
"""The variable that names the folders that the process that starts another one imports from."""


def also_from_here() -> dict[str, str]:
    """Return the variable by which another process of this interpreter finds what this one can import.

    This process may have further folders, from ``python -m``, a script, pytest or a program that adds them.
    """
    folders = [str(Path(folder).absolute()) for folder in sys.path if isinstance(folder, str)]
    return {ALSO_FROM: os.pathsep.join(folders)}


def answer_of(
    python: str, module: str, variables: Mapping[str, str], question: bytes, limit_s: float
) -> tuple[int | None, bytes, bytes]:
    """Run a module with a question on stdin; return its status, its stdout and its stderr.

    It runs in a session of its own, so that Ctrl-C reaches this process alone; what it has started is killed
    with it in the end. Its output goes to files: a pipe would stay open until all that hold it have ended.
    status: None if its time was over.

    Raises:
        OSError: it can't be started.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command_of(module, python=python),
            env=os.environ | also_from_here() | dict(variables),
            stdin=subprocess.PIPE, stdout=out, stderr=errors, start_new_session=True,
        )  # fmt: skip
        status: int | None = None
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(question, timeout=limit_s)
                status = process.returncode
        finally:
            kill_group(process.pid)
            process.wait()
        out.seek(0)
        errors.seek(0)
        return status, out.read(), errors.read()


def stdout_for_answers() -> FileIO:
    """Return stdout for answers alone: what this process prints from now on, also from C, goes to stderr."""
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    return answers


NOT_FROM = "ATTNBENCH_NOT_FROM"
"""The variable that names the folder."""

_INSTALLED = frozenset({"site-packages", "dist-packages"})


def is_code_of(path: str | Path, tree: str | Path) -> bool:
    """Return whether a file or folder is code of a tree: inside it, but not in an environment inside it.

    An environment in the tree (``.venv``) holds installed packages, which are not part of a commit.
    """
    real, top = Path(path).resolve(), Path(tree).resolve()
    return real.is_relative_to(top) and not _INSTALLED.intersection(real.relative_to(top).parts)


def forbidden() -> Path | None:
    """Return the folder that this process must not import from, or None."""
    named = os.environ.get(NOT_FROM)
    return Path(named) if named else None


def set_import_path() -> None:
    """Let this process import from the folders of the one that started it, and not from the user's tree.

    Those come last, so that they hide neither a library nor an installed plugin.
    """
    also = os.environ.get(ALSO_FROM, "").split(os.pathsep)
    sys.path += [folder for folder in also if folder and folder not in sys.path]
    keep_off_other_code()


def keep_off_other_code() -> None:
    """Take the user's tree off the import path of this process, where it is forbidden, and off other finders.

    An editable install puts it there. A module that a commit does not have would then be imported from the
    user's tree instead of missing.
    """
    tree = forbidden()
    if tree is not None:
        sys.path[:] = [entry for entry in sys.path if not is_code_of(entry or ".", tree)]
        sys.meta_path[:] = [
            finder if finder in _PYTHONS_OWN else _Without(finder, tree) for finder in sys.meta_path
        ]


_PYTHONS_OWN = (BuiltinImporter, FrozenImporter, PathFinder)
"""Finders that know no tree but the import path."""


@dataclass(frozen=True)
class _Without:
    """A finder of modules without what it finds in a tree."""

    finder: Any
    tree: Path

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec: ModuleSpec | None = self.finder.find_spec(name, path, target)
        if spec is None:
            return None
        places = [spec.origin] if spec.has_location else spec.submodule_search_locations
        return None if any(is_code_of(place, self.tree) for place in places or () if place) else spec


def import_from(paths: Sequence[str], not_from: str) -> None:
    """Import from these folders first, here and in child processes, and never from ``not_from``."""
    os.environ |= {NOT_FROM: not_from, "PYTHONPATH": os.pathsep.join(paths)}
    keep_off_other_code()
    sys.path[:0] = paths
