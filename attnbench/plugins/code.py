"""The identity of code: the files that a process has loaded of a plugin, and of attnbench, with digests."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from msgspec import Struct

import attnbench
from attnbench.types.extensions import Source

_DIGITS = 12
_OWN = "attnbench"
_LIBRARY = f"{Path(os.__file__).parent}{os.sep}"
_INSTALLED = ("/site-packages/", "/dist-packages/")


class Stamp(Struct, frozen=True):
    """A file of code. state: changes whenever somebody writes to the file, also if its time is set back."""

    file: str
    state: str


@cache
def attnbench_code() -> Stamp:
    """Return the folder of attnbench that this process runs; its state is the version, and a digest."""
    folder = Path(attnbench.__file__).parent
    return Stamp(str(folder), f"{attnbench.__version__} {_digest_of_folder(folder)}")


def code_of(source: Source) -> str:
    """Return a digest of the Python files of a loaded plugin's package, or of its module; "" for a file.

    The version of a plugin that is a file has such a digest already.
    """
    if source.path:
        return ""
    if source.distribution == _OWN:
        return attnbench_code().state.rpartition(" ")[2]
    file = _file_of(_package(source)) or _file_of(source.module)
    if not file:
        return ""
    path = Path(file)
    return _digest_of_folder(path.parent) if path.name.startswith("__init__.") else _digest(path.read_bytes())


def _digest_of_folder(folder: Path) -> str:
    # Editors leave links of such a name that lead nowhere, and files that are gone a moment later.
    content = []
    for path in folder.rglob("*.py"):
        with suppress(OSError):
            content.append((str(path.relative_to(folder)), path.read_bytes()))
    return _digest(repr(sorted(content)).encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGITS]


@cache
def digest_of(stamp: Stamp) -> str:
    """Return the first digits of the SHA-256 of a file; "" if it has changed since it was stamped."""
    try:
        with Path(stamp.file).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()[:_DIGITS]
    except OSError:
        return ""
    return digest if _stamp(stamp.file) == stamp else ""


class FirstStamps:
    """The stamps of what a process has loaded of plugins: each file as it was when its code was executed.

    A file that is saved again later is not the code that the process runs.
    """

    def __init__(self) -> None:
        self._first: dict[tuple[str, str], Stamp] = {}
        self._executed: dict[str, tuple[Stamp, str]] = {}

    def watch(self) -> None:
        """Stamp the file of each module when its code is executed from now on, also while a plugin prepares.

        Without it a file is stamped when it is first asked for. A process can't take this back.
        """

        def see(event: str, arguments: tuple[object, ...]) -> None:
            if event == "exec" and getattr(arguments[0], "co_name", "") == "<module>":
                stamp = _stamp(getattr(arguments[0], "co_filename", ""))
                if stamp is not None:
                    self._executed[stamp.file] = stamp, digest_of(stamp)

        sys.addaudithook(see)

    def of(self, sources: Iterable[Source]) -> dict[str, Stamp]:
        """Return the stamps of all modules of plugins by now, and of those beside them."""
        found = stamps(sources, beside=True)
        return {name: self._stamp_of(name, stamp) for name, stamp in found.items()}

    def _stamp_of(self, name: str, now: Stamp) -> Stamp:
        first, digest = self._executed.get(now.file, (now, ""))
        if first != now and digest == digest_of(now):
            # Somebody wrote the same again.
            first = now
        return self._first.setdefault((name, now.file), first)


def stamps(sources: Iterable[Source], *, beside: bool) -> dict[str, Stamp]:
    """Return the modules that this process has loaded of plugins, each file as it is now.

    Those are the modules of the plugin's package and of its distribution. beside: modules too that lie in
    the folder of a plugin that is a file, or that is imported from a folder of its project. Libraries that
    a plugin imports do not count: some of their modules are generated when they are imported.
    """
    packages: set[str] = set()
    folders: set[Path] = set()
    for source in sources:
        packages.add(_package(source))
        if beside and source.distribution != _OWN:
            folder = _project(source)
            if folder is None:
                packages |= _brought_with(source.distribution)
            else:
                folders.add(folder)
    found: dict[str, Stamp] = {}
    tops = {package.partition(".")[0] for package in packages}
    for name in list(sys.modules):
        ours = name.partition(".")[0] in tops and _is_of(name, packages)
        if ours or (folders and _lies_in(name, folders)):
            stamp = _stamp(_file_of(name))
            if stamp is not None:
                found[name] = stamp
    return found


def _package(source: Source) -> str:
    """Return the package whose modules are a plugin's: of attnbench itself the one with built-in plugins."""
    return source.module if source.distribution == _OWN else source.module.partition(".")[0]


def _is_of(name: str, packages: Iterable[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _file_of(name: str) -> str:
    """Return the file of a loaded module, "" for none. Modules that make attributes by themselves do not."""
    file = getattr(sys.modules.get(name), "__dict__", {}).get("__file__")
    return file if isinstance(file, str) else ""


def _stamp(file: str) -> Stamp | None:
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return Stamp(file, f"{found.st_ctime_ns} {found.st_size} {found.st_ino}")


def _project(source: Source) -> Path | None:
    """Return the folder that a plugin is imported from; None if libraries are installed there too."""
    file = Path(source.path or _file_of(_package(source)) or _file_of(source.module))
    folder = file.parent.parent if file.name.startswith("__init__.") and not source.path else file.parent
    return None if not file.name or _is_installed(str(file)) else folder.resolve()


def _is_installed(file: str) -> bool:
    return file.startswith(_LIBRARY) or any(folder in file for folder in _INSTALLED)


def _lies_in(name: str, folders: Iterable[Path]) -> bool:
    file = _file_of(name)
    if not file or name == "__main__" or _is_installed(file) or _is_of(name, (_OWN,)):
        return False
    place = Path(file).resolve()
    return any(place.is_relative_to(folder) for folder in folders)


@cache
def _brought_with(name: str) -> set[str]:
    """Return the top-level modules and packages that an installed distribution brings."""
    try:
        files = distribution(name).files or []
    except PackageNotFoundError:
        return set()
    return {file.parts[0].partition(".")[0] for file in files if file.suffix in (".py", ".so")}
