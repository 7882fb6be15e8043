"""Make both sides of a live comparison, commits or interpreters, and refuse what cannot be compared."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from attnbench.ipc.messages import ImportFrom, protocol_fingerprint
from attnbench.ipc.process import ALSO_FROM, NOT_FROM, answer_of, is_code_of
from attnbench.live.facts import Question, SideFacts
from attnbench.live.imported import INTERPRETERS, Imported, measured_modules
from attnbench.live.repository import (
    Checkouts,
    Repository,
    checkouts,
    commit_of,
    commits_lacking,
    declared_plugins,
    repository_of,
)
from attnbench.plugins.registry import Entry, Registry
from attnbench.runner.machine import check_linux
from attnbench.runner.processes import Interpreter
from attnbench.types.backend import Backend
from attnbench.types.compared import BASE, HEAD
from attnbench.types.errors import BadInput
from attnbench.types.extensions import Source
from attnbench.types.words import clean, count_of

Label = Literal["base", "head"]

UNCOMMITTED = "."
"""The ref that stands for the user's tree as it is."""


@dataclass(frozen=True)
class Side:
    """One of the two.

    name: the user's word, with the commit. python: the interpreter that starts servers. paths: come first on
    the import path of its processes. commit: the full hash; "" for an interpreter. uncommitted: the side is
    that commit with later changes. tree: the folder that measured code must come from; "" for whatever the
    interpreter has installed. own: the top-level modules that are measured. not_from: the user's tree, if
    this side must not import from it; else "".
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
        """Return the environment variables that make its processes those of this side.

        A side has no folders of this process, among which may be the user's tree.
        """
        variables = {ALSO_FROM: "", NOT_FROM: self.not_from}
        if self.tree:
            variables["PYTHONPATH"] = os.pathsep.join(self.paths)
        return variables

    def servers(self) -> Interpreter:
        """Return how its servers are started.

        Commits of a project that uses attnbench differ in their plugins alone, so both sides have the same
        servers. Where attnbench itself is measured, each side has its own.
        """
        if self.tree and "attnbench" not in self.own:
            paths = ImportFrom(self.paths, self.not_from)
            return Interpreter(self.python, {ALSO_FROM: ""}, paths)
        return Interpreter(self.python, self.environment())


def side_of_ref(
    label: Label, ref: str, trees: Checkouts, measured: Iterable[Imported], python: str | None = None
) -> Side:
    """Return the side of a commit, with its files in a new folder; for ``.`` that of the user's tree itself.

    measured: the modules that are imported from the repository.

    Raises:
        BadInput: no such commit or interpreter, or git can't check it out.
    """
    repository, modules = trees.repository, tuple(measured)
    uncommitted = ref == UNCOMMITTED
    commit = commit_of(repository, "HEAD" if uncommitted else ref)
    tree = repository.top if uncommitted else trees.add(commit, label)
    roots = [place.parent for module in modules for place in module.locations]
    words = [Path(word).absolute() for word in os.environ.get("PYTHONPATH", "").split(os.pathsep) if word]
    return Side(
        label,
        name=_name(ref, commit),
        python=interpreter(python),
        paths=tuple(dict.fromkeys(str(_there(path, repository, tree)) for path in [*roots, *words])),
        commit=commit,
        uncommitted=uncommitted,
        tree=str(tree),
        own=tuple(module.name for module in modules),
        not_from="" if uncommitted else str(repository.top),
    )


def side_of_python(label: Label, python: str | None = None) -> Side:
    """Return the side of what an interpreter has installed; None is this interpreter.

    Raises:
        BadInput: there is no such interpreter.
    """
    return Side(label, name=python or "what is installed here", python=interpreter(python))


def interpreter(word: str | None) -> str:
    """Find an interpreter by its path, its environment's folder, or a command's name; None is this one.

    Links are not followed, because an interpreter finds its environment by its own path.

    Raises:
        BadInput: there is none.
    """
    if word is None:
        return sys.executable
    path = Path(word).expanduser()
    if path.is_dir():
        path = path / "bin" / "python"
    found = str(path.absolute()) if path.is_file() else shutil.which(word)
    if found is None or not os.access(found, os.X_OK):
        raise BadInput(f"no interpreter {word!r}: give the path of a python, or of its environment")
    return found


def _name(ref: str, commit: str) -> str:
    if ref == UNCOMMITTED:
        return f"uncommitted work on {commit[:9]}"
    return commit[:9] if commit.startswith(ref) else f"{ref} ({commit[:9]})"


def _there(path: Path, repository: Repository, tree: Path) -> Path:
    """Return the same place in another tree; a place outside of the repository stays."""
    if not is_code_of(path, repository.top):
        return path
    return tree / path.resolve().relative_to(repository.top)


_ANSWER_WITHIN_S = 120.0


def ask(side: Side, sources: tuple[Source, ...]) -> SideFacts:
    """Ask a side in a process of its own what it has.

    sources: the plugins of this environment. The side of an interpreter is asked for its own plugins instead.

    Raises:
        BadInput: the process can't be started, has no attnbench, or doesn't answer.
    """
    question = Question(sources if side.tree else None, side.own, side.tree)
    words = msgspec.json.encode(question)
    try:
        status, out, errors = answer_of(
            side.python, "attnbench.live.facts", side.environment(), words, _ANSWER_WITHIN_S
        )
    except OSError as failure:
        raise BadInput(f"{side} can't be started ({side.python!r}): {failure.strerror}") from None
    if status is None:
        raise BadInput(f"{side} has plugins that did not load within {_ANSWER_WITHIN_S:g} s")
    return _answer(side, status, out, os.fsdecode(errors))


def _answer(side: Side, status: int, out: bytes, errors: str) -> SideFacts:
    lines = errors.strip().splitlines()
    last = clean(lines[-1]) if lines else f"exit status {status}"
    if status != 0 and "No module named 'attnbench'" in last:
        raise BadInput(f"{side} has no attnbench: {side.python} -m pip install attnbench")
    if status != 0:
        raise BadInput(f"{side} has an attnbench that can't be asked what it has: {last}")
    try:
        return msgspec.json.decode(out, type=SideFacts)
    except msgspec.DecodeError:
        raise BadInput(f"{side} has another attnbench, which doesn't answer what is asked") from None


def refuse_what_misleads(base: Side, head: Side, facts: Mapping[str, SideFacts]) -> None:
    """Refuse sides that would measure something else than their names say.

    Raises:
        BadInput: this process does not understand the workers of a side, a side would import code from
            elsewhere, or both sides are the same code.
    """
    _refuse_protocol(base, head, facts)
    for side in (base, head):
        _refuse_other_code(side, facts[side.label])
    one, other = facts[base.label], facts[head.label]
    if (one.files, one.attnbench, one.versions) == (other.files, other.attnbench, other.versions):
        raise BadInput(
            f"both sides would be the same code: {base.name} and {head.name} have the same plugins from the "
            f"same files and the same libraries"
        )


def notes(side: Side, facts: SideFacts, other: SideFacts) -> Iterator[str]:
    """Yield what a side lacks and the other side has, one sentence each. other: the answer of that side."""
    for module, place in facts.elsewhere.items():
        found = f"; {place} is not it" if place else ""
        if other.elsewhere.get(module) != place:
            yield f"{side} has no module {module}{found}"
    for fault in facts.faults:
        if fault not in other.faults:
            hint = "; a checkout has no files that git ignores" if side.tree else ""
            yield f"{side} has a plugin with a fault: {fault}{hint}"


def _refuse_protocol(base: Side, head: Side, facts: Mapping[str, SideFacts]) -> None:
    others = [side for side in (base, head) if facts[side.label].protocol != protocol_fingerprint()]
    if not others:
        return
    if facts[base.label].protocol == facts[head.label].protocol:
        raise BadInput(
            f"both sides have an attnbench whose workers this one doesn't understand: compare with the "
            f"attnbench of the {head.label} side (from a checkout of {head.name}, or in its environment)"
        )
    raise BadInput(
        f"{others[0]} has an attnbench whose workers this one doesn't understand, so the two can't be "
        f"measured live: use the same attnbench on both sides, or make a run of each and compare their files"
    )


def _refuse_other_code(side: Side, facts: SideFacts) -> None:
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
    """Return whether the side's own tree has a module, wherever it would be imported from."""
    inner = Path(*module.split("."))
    roots = [Path(path) for path in side.paths if is_code_of(path, side.tree)]
    return any((root / inner).is_dir() or (root / inner).with_suffix(".py").is_file() for root in roots)


@dataclass(frozen=True)
class TwoSides:
    """Both sides.

    facts: the answer of each, by its label. notes: what a reader must know, one sentence each.
    """

    base: Side
    head: Side
    facts: Mapping[str, SideFacts]
    notes: tuple[str, ...] = ()

    def backends(self) -> dict[str, frozenset[str]]:
        """Return by label the names of the side's backends."""
        return {label: frozenset(facts.backends) for label, facts in self.facts.items()}

    def candidates(self) -> dict[str, dict[str, Entry[Backend]]]:
        """Return by name the candidates of each backend that a side has, by label, as that side declares it.

        A backend that head lacks or can't import is a candidate there too: its worker tells why.
        """
        base, head = (self.facts[side.label] for side in (self.base, self.head))
        found: dict[str, dict[str, Entry[Backend]]] = {}
        for name, declared in base.backends.items():
            found[name] = {BASE: declared.entry(BASE)}
            # A module that a worker would import from elsewhere is not head's.
            if not head.elsewhere.get(declared.source.module):
                found[name][HEAD] = declared.entry(HEAD)
        for name, declared in head.backends.items():
            found.setdefault(name, {})[HEAD] = declared.entry(HEAD)
        return found

    def manifest(self) -> dict[str, dict[str, Any]]:
        """Return by label the facts of a side for the run file, without folders."""
        return {
            side.label: {
                "name": side.name,
                "commit": side.commit,
                "uncommitted": side.uncommitted,
                "versions": self.facts[side.label].versions,
            }
            for side in (self.base, self.head)
        }


def _with_declared(
    known: tuple[Source, ...], repository: Repository, refs: Iterable[str]
) -> tuple[Source, ...]:
    """Add the plugins that a commit declares and that are not installed here."""
    found = {source.module: source for source in known}
    for ref in refs:
        commit = "" if ref == UNCOMMITTED else commit_of(repository, ref)
        for source in declared_plugins(repository, commit):
            found.setdefault(source.module, source)
    return tuple(found.values())


def behind(repository: Repository, base: tuple[str, Side], head: tuple[str, Side]) -> Iterator[str]:
    """Warn of commits of base that head lacks: what they change would be told of head, the other way round.

    base, head: the user's words with their sides.
    """
    lacking = commits_lacking(repository, base[1].commit, head[1].commit)
    if lacking:
        word = "HEAD" if head[1].uncommitted else head[0]
        yield (
            f"{base[0]} has {count_of(lacking, 'commit')} that {word} lacks, and what they change is told "
            f'too: --ref "$(git merge-base {base[0]} {word})" leaves them out'
        )


@contextmanager
def two_sides(
    ref: str | None,
    head: str | None,
    ref_python: str | None,
    head_python: str | None,
    registry: Registry,
    cwd: Path,
) -> Iterator[TwoSides]:
    """Make both sides; the files of commits are there until the end of the block.

    ref, head: commits, by any name that git knows; ``.`` is the user's tree with uncommitted work; None is
    what the interpreter has installed. ref_python, head_python: interpreters; None is this one. registry: the
    plugins of this environment, whose modules are measured. cwd: a folder in the repository.

    Raises:
        BadInput: no repository, no such commit or interpreter, one that can't be measured, or both sides
            would be the same code.
    """
    check_linux()
    for source in registry.plugins:
        if source.path:
            raise BadInput(
                f"{source.distribution} is a file, which would be the same on both sides. --ref imports "
                f"plugins by name: install it (pip install -e .), or put its folder on the import path, "
                f"PYTHONPATH={shlex.quote(str(Path(source.path).parent))}, and give --plugin {source.name}"
            )
    sources = registry.plugins
    with ExitStack() as removing:
        measured: tuple[Imported, ...] = ()
        if ref is not None or head is not None:
            repository = repository_of(cwd)
            sources = _with_declared(sources, repository, [word for word in (ref, head) if word is not None])
            measured = measured_modules(["attnbench", *(source.module for source in sources)], repository)
            trees = removing.enter_context(checkouts(repository))

        def made(label: Label, word: str | None, python: str | None) -> Side:
            if word is None:
                return side_of_python(label, python)
            return side_of_ref(label, word, trees, measured, python)

        sides = made("base", ref, ref_python), made("head", head, head_python)
        facts: dict[str, SideFacts] = {side.label: ask(side, sources) for side in sides}
        refuse_what_misleads(*sides, facts)
        base, head_facts = (facts[side.label] for side in sides)
        sentences = [*notes(sides[0], base, head_facts), *notes(sides[1], head_facts, base)]
        if ref is not None and head is not None:
            sentences += behind(repository, (ref, sides[0]), (head, sides[1]))
        yield TwoSides(*sides, facts, tuple(sentences))
