"""A complete package for a new plugin: names, files, and how they are written."""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path, PurePath
from string import Template
from urllib.parse import unquote, urlsplit

from attnbench import __version__
from attnbench.types.errors import BadInput

PREFIX = "attnbench-"
LONGEST = 60
_WORD = re.compile(r"[a-z0-9]+(?:[-_.]+[a-z0-9]+)*", re.IGNORECASE | re.ASCII)
"""Names of distributions, as in the packaging specification.

ASCII only, since IGNORECASE matches the Kelvin sign with k, and the long s with s.
"""


@dataclass(frozen=True)
class Names:
    """The names of a plugin.

    distribution: what pip installs, and the folder. module: what Python imports. backend: used on command
    lines.
    """

    distribution: str
    module: str
    backend: str


def names_of(word: str) -> Names:
    """Make the names of a plugin: ``My.Kernel`` gives attnbench-my-kernel, attnbench_my_kernel and my_kernel.

    Capitals and runs of ``-``, ``_`` and ``.`` are normalised as pip does. The prefix is added where it is
    missing.

    Raises:
        BadInput: no distribution can have this name, or nothing remains besides the prefix.
    """
    if "/" in word:
        path = PurePath(word)
        raise BadInput(
            f"name {word!r}: give a name, not a path; choose the folder with --into, as in "
            f"attnbench new {path.name or 'my-kernel'} --into {path.parent}"
        )
    if not _WORD.fullmatch(word):
        raise BadInput(
            f"name {word!r}: use letters a to z, digits, '-', '_' and '.', and begin and end with a letter "
            "or digit, as in my-kernel"
        )
    if len(word) > LONGEST:
        raise BadInput(f"name {word!r}: {len(word)} characters; {LONGEST} are the most")
    short = re.sub(r"[-_.]+", "-", word).lower().removeprefix(PREFIX)
    if short == PREFIX.rstrip("-"):
        raise BadInput(f"name {word!r}: this is attnbench itself; choose another name, as in my-kernel")
    backend = short.replace("-", "_")
    return Names(f"{PREFIX}{short}", f"attnbench_{backend}", backend)


TEMPLATES = Path(__file__).parent / "templates"

FILES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    ".gitignore": "gitignore",
    ".github/workflows/ci.yml": "ci.yml",
    "gate.toml": "gate.toml",
    "src/$module/__init__.py": "module.py",
    "src/$module/py.typed": "py.typed",
    "tests/test_$backend.py": "test_backend.py",
}
"""The template of each file, by its path in the package. Both may contain names to substitute."""

TRIED = "attention/scaled_dot/H8-L1024-D64"
"""The case on which a new backend is first measured."""

CPU_TORCH = "pip install torch --index-url https://download.pytorch.org/whl/cpu # a runner without a GPU"
"""The step of each job that installs torch, which is mostly a build with CUDA otherwise."""

COMPARED = (TRIED, f"{TRIED}/causal", "attention/scaled_dot/B4-H8-Hkv2-Lq1-Lk1024-D64")
"""The cases of the comparison in CI, all of which the written kernel takes: a prefill, and a decode."""


def package(names: Names) -> dict[str, str]:
    """Return the text of every file by path; the same for the same names and version."""
    words = {
        "distribution": names.distribution,
        "module": names.module,
        "backend": names.backend,
        "class_name": "Test" + "".join(part.capitalize() for part in names.backend.split("_")),
        "release": ".".join(__version__.split(".")[:2]),
        "run": run_line(names),
        "compared": " ".join(COMPARED),
        "cpu_torch": CPU_TORCH,
    }
    return {
        Template(path).substitute(words): Template(_text(template)).substitute(words)
        for path, template in FILES.items()
    }


def run_line(names: Names) -> str:
    """Return the command that measures the new backend beside two others."""
    beside = " ".join(f"--backend {name}" for name in ("eager", "sdpa_flash", names.backend))
    return f"attnbench run {TRIED} {beside}"


def next_lines(names: Names, folder: str, attnbench: str = "", *, kept: bool = False) -> tuple[str, ...]:
    """Return the next steps for a package in ``folder``, as lines for a shell.

    attnbench: where pip finds it, if in no package index, so that CI needs its wheel; as
    :func:`attnbench_source` says. kept: whether the folder lies in a git repository, as
    :func:`in_repository` says.
    """
    wheel = f"pip wheel --no-deps --wheel-dir wheels {shlex.quote(attnbench)}"
    steps = ("pip install -e '.[test]'", "pytest", run_line(names))
    commit = f"git add --all && git commit --message 'Start {names.backend}'"
    return (
        f"cd {folder}",
        *([wheel] if attnbench else []),
        *steps,
        *([] if kept else ["git init --initial-branch main", commit]),
    )


def in_repository(folder: Path) -> bool:
    """Return whether a folder lies in a git repository; git itself need not be there."""
    return any((each / ".git").exists() for each in folder.absolute().resolve().parents)


def attnbench_source() -> str:
    """Return the folder or the URL that attnbench was installed from; "" for a package index."""
    try:
        facts = json.loads(distribution("attnbench").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return ""
    url = str(facts.get("url", "")) if isinstance(facts, dict) else ""
    if url.startswith("file:"):
        return unquote(urlsplit(url).path)
    vcs = facts.get("vcs_info") if url else None
    if isinstance(vcs, dict):
        return f"{vcs.get('vcs')}+{url}@{vcs.get('commit_id')}"
    return url


def _text(template: str) -> str:
    return (TEMPLATES / f"{template}.txt").read_text(encoding="utf-8")


def write_folder(folder: Path, files: Mapping[str, str]) -> None:
    """Write files, by path, as a new folder: completely or not at all.

    The files are written into a hidden folder beside it, which is then renamed in one step.

    Raises:
        BadInput: the name exists already, or its parent folder is missing.
        OSError: the system refused, for example because the disk is full.
    """
    if os.path.lexists(folder):
        raise BadInput(f"{str(folder)!r} exists already and is not changed; choose another name or --into")
    if not folder.parent.is_dir():
        raise BadInput(f"--into {str(folder.parent)!r}: no such folder; create it first")
    unfinished = folder.parent / f".{folder.name}-{secrets.token_hex(4)}"
    try:
        for name, text in files.items():
            path = unfinished / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        # This fails if a file or a folder with content appeared meanwhile.
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
