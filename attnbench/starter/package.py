"""A complete package for a new plugin: its names, its files, and how they are written."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from string import Template

from attnbench import __version__
from attnbench.types.errors import BadInput

PREFIX = "attnbench-"
LONGEST = 60
_WORD = re.compile(r"[a-z0-9]+(?:[-_.]+[a-z0-9]+)*", re.IGNORECASE | re.ASCII)
"""As the packaging specification has names of distributions.

ASCII, since the Kelvin sign is a k to IGNORECASE, and the long s an s."""


@dataclass(frozen=True)
class Names:
    """What a plugin is called.

    distribution: what pip installs, and the folder. module: what is imported. backend: on command lines.
    """

    distribution: str
    module: str
    backend: str


def names_of(word: str) -> Names:
    """The names that a word means: ``My.Kernel`` is attnbench-my-kernel, attnbench_my_kernel and my_kernel.

    Capitals and runs of ``-``, ``_`` and ``.`` become what pip makes of them; the prefix is added where it
    isn't there.

    Raises:
        BadInput: no distribution can be called so, or nothing is left beside the prefix.
    """
    if "/" in word:
        path = PurePath(word)
        raise BadInput(
            f"name {word!r}: a name is needed, not a path; say where with --into, as in "
            f"attnbench new {path.name or 'my-kernel'} --into {path.parent}"
        )
    if not _WORD.fullmatch(word):
        raise BadInput(
            f"name {word!r}: letters a to z, digits, '-', '_' and '.', beginning and ending with a letter or "
            "digit, as in my-kernel"
        )
    if len(word) > LONGEST:
        raise BadInput(f"name {word!r}: {len(word)} characters; {LONGEST} are the most")
    short = re.sub(r"[-_.]+", "-", word).lower().removeprefix(PREFIX)
    if short == PREFIX.rstrip("-"):
        raise BadInput(f"name {word!r}: that is attnbench itself; name what is new, as in my-kernel")
    backend = short.replace("-", "_")
    return Names(f"{PREFIX}{short}", f"attnbench_{backend}", backend)


TEMPLATES = Path(__file__).parent / "templates"

FILES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    ".gitignore": "gitignore",
    ".github/workflows/ci.yml": "ci.yml",
    "src/$module/__init__.py": "module.py",
    "src/$module/py.typed": "py.typed",
    "tests/test_$backend.py": "test_backend.py",
}
"""By path within the package, the template of each file. Names of both may hold what is put in."""

TRIED = "attention/scaled_dot/H8-L1024-D64"
"""The case that a new backend is first measured on."""


def package(names: Names) -> dict[str, str]:
    """The text of every file, by path within the package; the same for the same names and version."""
    words = {
        "distribution": names.distribution,
        "module": names.module,
        "backend": names.backend,
        "class_name": "Test" + "".join(part.capitalize() for part in names.backend.split("_")),
        "release": ".".join(__version__.split(".")[:2]),
        "run": run_line(names),
    }
    return {
        Template(path).substitute(words): Template(_text(template)).substitute(words)
        for path, template in FILES.items()
    }


def run_line(names: Names) -> str:
    """The command that puts a row of the new backend beside those of two others."""
    beside = " ".join(f"--backend {name}" for name in ("eager", "sdpa_flash", names.backend))
    return f"attnbench run {TRIED} {beside}"


def next_lines(names: Names, folder: str) -> tuple[str, ...]:
    """What to do with a package that was written to ``folder``, as lines for a shell."""
    return (f"cd {folder}", "pip install -e '.[test]'", "pytest", run_line(names))


def _text(template: str) -> str:
    return (TEMPLATES / f"{template}.txt").read_text(encoding="utf-8")


def write_folder(folder: Path, files: Mapping[str, str]) -> None:
    """Write texts, by path within it, as a new folder. However it ends, there is all of it or nothing.

    They're written beside it under a name that nobody knows and then given the folder's in one step.

    Raises:
        BadInput: something of that name is there, which stays as it is; or there is no folder to put it in.
        OSError: the machine doesn't let it, as where the disk is full.
    """
    if os.path.lexists(folder):
        raise BadInput(f"{str(folder)!r} is there already, and stays as it is; choose another name or --into")
    if not folder.parent.is_dir():
        raise BadInput(f"--into {str(folder.parent)!r}: no such folder; make it first")
    unfinished = folder.parent / f".{folder.name}-{secrets.token_hex(4)}"
    try:
        for name, text in files.items():
            path = unfinished / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        # A folder with something in it, or a file, that came in between makes this fail.
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
