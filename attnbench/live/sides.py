"""Both sides of a live comparison: commits in worktrees or interpreters, and whether they are comparable."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

import msgspec

from attnbench.ipc.messages import protocol_fingerprint
from attnbench.ipc.process import NOT_FROM, is_code_of, kill_group
from attnbench.live.facts import Facts, Question
from attnbench.live.imported import INTERPRETERS, Imported, measured_modules
from attnbench.live.worktree import Repository, Room, commit_of, repository_of, room
from attnbench.plugins.registry import Registry
from attnbench.types.errors import BadInput
from attnbench.types.extensions import Source
from attnbench.types.words import clean

Label = Literal["base", "head"]

UNCOMMITTED = "."
"""The ref that stands for the user's tree as it is."""


@dataclass(frozen=True)
class Side:
    """One of the two.

    name: as the user said it, with the commit. python: the interpreter to start servers with. paths: what
    comes first on the import path of its processes. commit: the full hash, "" where it's of no commit;
    uncommitted: whether it's that commit with what was changed since. tree: the folder that what is measured
    must come from; "" where that is whatever the interpreter has installed. own: the top-level modules that
    are measured. not_from: the user's tree, where this side must not import from it; else "".
    """

    label: Label
    name: str
    python: str
    paths: tuple[str, ...] = ()
    commit: str = ""
    uncommitted: bool = False
    tree: str = ""
    own: tuple[str, ...] = ()
    not_from: str = ""

    def __str__(self) -> str:
        return f"the {self.label} side, {self.name},"

    def environment(self) -> dict[str, str]:
        """Variables that its processes need besides those of this one; they are all that makes a side.

        Safe path: ``python -m`` would put the working folder before everything else, which is the user's
        tree on both sides.
        """
        variables = {"PYTHONSAFEPATH": "1", NOT_FROM: self.not_from}
        if self.tree:
            variables["PYTHONPATH"] = os.pathsep.join(self.paths)
        return variables


def side_of_ref(
    label: Label, ref: str, room: Room, measured: Iterable[Imported], python: str | None = None
) -> Side:
    """The side of a commit, checked out in a worktree; of ``.``, the user's tree as it is, without one.

    measured: what is imported from the repository, as :func:`attnbench.live.imported.measured_modules` says.

    Raises:
        BadInput: no such commit or interpreter, or git can't check it out.
    """
    repository, modules = room.repository, tuple(measured)
    uncommitted = ref == UNCOMMITTED
    commit = commit_of(repository, "HEAD" if uncommitted else ref)
    tree = repository.top if uncommitted else room.add(commit, label)
    roots = [place.parent for module in modules for place in module.locations]
    words = [Path(word).absolute() for word in os.environ.get("PYTHONPATH", "").split(os.pathsep) if word]
    return Side(
        label,
        name=_name(ref, commit),
        python=sys.executable if python is None else interpreter(python),
        paths=tuple(dict.fromkeys(str(_there(path, repository, tree)) for path in [*roots, *words])),
        commit=commit,
        uncommitted=uncommitted,
        tree=str(tree),
        own=tuple(module.name for module in modules),
        not_from="" if uncommitted else str(repository.top),
    )


def side_of_python(label: Label, python: str | None = None) -> Side:
    """The side of what an interpreter has installed; this one's where none is named.

    Raises:
        BadInput: there is no such interpreter.
    """
    found = sys.executable if python is None else interpreter(python)
    return Side(label, name=python or "what is installed here", python=found)


def interpreter(word: str) -> str:
    """An interpreter by its path, by the folder of its environment, or by a command's name.

    Links are not followed: by its own path an interpreter knows its environment.

    Raises:
        BadInput: there is none.
    """
    path = Path(word).expanduser()
    if path.is_dir():
        path = path / "bin" / "python"
    found = str(path.absolute()) if path.is_file() else shutil.which(word)
    if found is None or not os.access(found, os.X_OK):
        raise BadInput(f"no interpreter {word!r}: the path of a python, or of its environment, is needed")
    return found


def _name(ref: str, commit: str) -> str:
    """What to call a commit: as the user did, with the beginning of its hash."""
    if ref == UNCOMMITTED:
        return f"uncommitted work on {commit[:9]}"
    return commit[:9] if commit.startswith(ref) else f"{ref} ({commit[:9]})"


def _there(path: Path, repository: Repository, tree: Path) -> Path:
    """The same place in another tree; what is no code of the repository stays where it is."""
    if not is_code_of(path, repository.top):
        return path
    return tree / path.resolve().relative_to(repository.top)


_ANSWER_WITHIN_S = 120.0


@dataclass(frozen=True)
class _Asked:
    """A side's process. out, errors: files that get what it writes."""

    side: Side
    process: subprocess.Popen[bytes]
    out: IO[bytes]
    errors: IO[bytes]


def ask_all(sides: Sequence[Side], sources: tuple[Source, ...]) -> dict[str, Facts]:
    """What each side has, by its label; they are asked at the same time.

    sources: the plugins of this environment. The side of an interpreter is asked for those it has itself.

    Raises:
        BadInput: one can't be started, has no attnbench, or doesn't answer.
    """
    with ExitStack() as ending:
        asked = []
        for side in sides:
            question = Question(sources if side.tree else None, side.own, side.tree)
            asked.append(ending.enter_context(_started(side, question)))
        return {one.side.label: _answer(one) for one in asked}


@contextlib.contextmanager
def _started(side: Side, question: Question) -> Iterator[_Asked]:
    """A side's process, which has its question; killed at the end with all that its plugins have started.

    It writes to files: of a pipe the end comes only when all that they have started have closed it too.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        try:
            # In a session of its own: Ctrl-C reaches us, and we end it.
            process = subprocess.Popen(
                [side.python, "-m", "attnbench.live.facts"],
                env=os.environ | side.environment(),
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=errors,
                start_new_session=True,
            )
        except OSError as failure:
            raise BadInput(f"{side} can't be started ({side.python!r}): {failure.strerror}") from None
        try:
            assert process.stdin is not None
            # One that has ended already is told of when its answer is read.
            with contextlib.suppress(BrokenPipeError), process.stdin:
                process.stdin.write(msgspec.json.encode(question))
            yield _Asked(side, process, out, errors)
        finally:
            kill_group(process.pid)
            process.wait()


def _answer(asked: _Asked) -> Facts:
    side = asked.side
    try:
        status = asked.process.wait(timeout=_ANSWER_WITHIN_S)
    except subprocess.TimeoutExpired:
        raise BadInput(f"{side} has plugins that did not load within {_ANSWER_WITHIN_S:g} s") from None
    said = os.fsdecode(_read(asked.errors)).strip().splitlines()
    last = clean(said[-1]) if said else f"exit status {status}"
    if status != 0:
        if "No module named 'attnbench'" in last:
            raise BadInput(f"{side} has no attnbench: {side.python} -m pip install attnbench")
        raise BadInput(f"{side} has an attnbench that can't be asked what it has: {last}")
    try:
        return msgspec.json.decode(_read(asked.out), type=Facts)
    except msgspec.DecodeError:
        raise BadInput(f"{side} has another attnbench, which doesn't answer what is asked") from None


def _read(written: IO[bytes]) -> bytes:
    written.seek(0)
    return written.read()


def refuse_what_misleads(base: Side, head: Side, told: Mapping[str, Facts]) -> None:
    """Raise :class:`BadInput` where something else would be measured than what the sides are called.

    That is: a side whose workers say what this process doesn't understand, code that comes from elsewhere
    than its side, and two sides that are the same.
    """
    _refuse_protocol(base, head, told)
    for side in (base, head):
        _refuse_other_code(side, told[side.label])
    one, other = told[base.label], told[head.label]
    if (one.files, one.attnbench, one.versions) == (other.files, other.attnbench, other.versions):
        raise BadInput(
            f"both sides would be the same code: {base.name} and {head.name} have the same plugins from the "
            f"same files and the same libraries"
        )


def notes(side: Side, facts: Facts, known: Iterable[str]) -> Iterator[str]:
    """What a reader must know of a side, one sentence each.

    known: faults of plugins that this environment has anyhow.
    """
    for module, place in facts.elsewhere.items():
        found = f"; {place} is not it" if place else ""
        yield f"{side} has no module {module}{found}"
    for fault in facts.faults:
        if fault not in known:
            hint = "; a worktree has no files that git ignores" if side.tree and "not import" in fault else ""
            yield f"{side} has a plugin with a fault: {fault}{hint}"


def _refuse_protocol(base: Side, head: Side, told: Mapping[str, Facts]) -> None:
    others = [side for side in (base, head) if told[side.label].protocol != protocol_fingerprint()]
    if not others:
        return
    if len({told[side.label].protocol for side in (base, head)}) == 1:
        raise BadInput(
            f"both sides have an attnbench whose workers this one doesn't understand: compare with the "
            f"attnbench of the {head.label} side (from a checkout of {head.name}, or in its environment)"
        )
    raise BadInput(
        f"{others[0]} has an attnbench whose workers this one doesn't understand, so the two can't be "
        f"measured live: use the same attnbench on both sides, or make a run of each and compare their files"
    )


def _refuse_other_code(side: Side, facts: Facts) -> None:
    if "attnbench" in side.own and not is_code_of(facts.attnbench, side.tree):
        raise BadInput(_not_its_own(side, "attnbench", facts.attnbench))
    for module, place in facts.elsewhere.items():
        if place and _has(side, module):
            raise BadInput(_not_its_own(side, module, place))
    for file in facts.strays:
        raise BadInput(_not_its_own(side, "what its plugins need", file))


def _not_its_own(side: Side, what: str, place: str) -> str:
    return f"{side} would import {what} from {place!r}, and not from {side.tree!r}: {INTERPRETERS}"


def _has(side: Side, module: str) -> bool:
    """Whether the side's own tree has a module, whatever would be imported."""
    inner = Path(*module.split("."))
    roots = [Path(path) for path in side.paths if is_code_of(path, side.tree)]
    return any((root / inner).is_dir() or (root / inner).with_suffix(".py").is_file() for root in roots)


@dataclass(frozen=True)
class TwoSides:
    """What is measured against what.

    base_facts, head_facts: what each has, as it says itself. notes: what a reader must know, one
    sentence each.
    """

    base: Side
    head: Side
    base_facts: Facts
    head_facts: Facts
    notes: tuple[str, ...] = field(default=())

    def backends(self) -> dict[str, frozenset[str]]:
        """By label, the names of the backends that the side has."""
        return {
            self.base.label: frozenset(self.base_facts.backends),
            self.head.label: frozenset(self.head_facts.backends),
        }

    def alike(self) -> frozenset[str]:
        """Backends whose plugin is the same file on both sides, with the same libraries."""
        if self.base_facts.versions != self.head_facts.versions:
            return frozenset()
        return frozenset(
            name
            for name, module in self.base_facts.backends.items()
            if self.head_facts.backends.get(name) == module
            and self.base_facts.files[module] == self.head_facts.files[module]
        )

    def manifest(self) -> dict[str, dict[str, Any]]:
        """By label, what a run file says of the side. Names no folder."""
        return {
            side.label: {
                "name": side.name,
                "commit": side.commit,
                "uncommitted": side.uncommitted,
                "versions": facts.versions,
            }
            for side, facts in ((self.base, self.base_facts), (self.head, self.head_facts))
        }


@contextmanager
def two_sides(
    ref: str | None,
    head: str | None,
    ref_python: str | None,
    head_python: str | None,
    registry: Registry,
    cwd: Path,
) -> Iterator[TwoSides]:
    """Make both sides; worktrees are there until the end of the block and removed however it ends.

    ref, head: commits, by any name that git knows; ``.`` is the user's tree with uncommitted work; None is
    what the interpreter has installed. ref_python, head_python: interpreters; None is this one. registry:
    what is loaded here, whose modules say what is measured. cwd: where the repository is looked for.

    Raises:
        BadInput: no repository, no such commit or interpreter, one that can't be measured, or both sides
            would be the same code.
    """
    _refuse_one_side(ref, head, ref_python, head_python)
    _refuse_files(registry)
    with ExitStack() as putting_away:
        if ref is None and head is None:
            sides = side_of_python("base", ref_python), side_of_python("head", head_python)
        else:
            repository = repository_of(cwd)
            modules = ["attnbench", *(source.module for source in registry.plugins)]
            measured = measured_modules(modules, repository)
            place = putting_away.enter_context(room(repository))

            def made(label: Label, word: str | None, python: str | None) -> Side:
                if word is None:
                    return side_of_python(label, python)
                return side_of_ref(label, word, place, measured, python)

            sides = made("base", ref, ref_python), made("head", head, head_python)
        told = ask_all(sides, registry.plugins)
        refuse_what_misleads(*sides, told)
        yield TwoSides(
            *sides,
            told["base"],
            told["head"],
            tuple(note for side in sides for note in notes(side, told[side.label], registry.faults)),
        )


def _refuse_files(registry: Registry) -> None:
    for source in registry.plugins:
        if source.path:
            raise BadInput(
                f"{source.distribution} is a file, which would be the same on both sides: live, plugins are "
                f"imported by name, from what is installed (pip install -e .) or as --plugin {source.name}"
            )


def _refuse_one_side(
    ref: str | None, head: str | None, ref_python: str | None, head_python: str | None
) -> None:
    if ref is not None or head is not None:
        if ref == head == UNCOMMITTED:
            raise BadInput("both sides would be the user's tree: name a commit for one of them, as HEAD")
        return
    pythons = [sys.executable if word is None else interpreter(word) for word in (ref_python, head_python)]
    if pythons[0] == pythons[1]:
        raise BadInput(f"both sides would be the same code: that of {pythons[0]!r}")
