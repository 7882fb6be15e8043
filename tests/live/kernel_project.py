"""A plugin project in a git repository of its own, installed as an editable install would have it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from distributions import write_distribution

from attnbench.ipc.messages import protocol_fingerprint
from attnbench.live.facts import Declared, SideFacts
from attnbench.plugins.registry import Registry, load_registry
from attnbench.plugins.sources import installed
from attnbench.types.extensions import Source

PLUGIN = """
from attnbench import Backend, hookimpl

{above}

def prepare(setup):
    return lambda q, k, v: v

@hookimpl
def attnbench_backends():
    for name in {names!r}:
        yield Backend(name=name, summary="of {which}", prepare=prepare)
"""


def plugin(*names: str, which: str = "a test", above: str = "") -> str:
    """The source of a plugin with backends of these names."""
    return PLUGIN.format(names=names, which=which, above=above)


def run_git(folder: Path, *words: str) -> str:
    """git without the configuration of whoever runs the tests."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    names = ("user.name=Nobody", "user.email=nobody@example.org", "init.defaultBranch=main")
    settings = [word for name in names for word in ("-c", name)]
    done = subprocess.run(
        ["git", *settings, *words],
        cwd=folder,
        env=clean | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@dataclass(frozen=True)
class Project:
    """A repository, and the folder in which the metadata of its distribution are installed."""

    repo: Path
    site: Path

    def write(self, **files: str) -> None:
        """Write files of the repository; ``src__mini_x____init__`` is ``src/mini_x/__init__.py``."""
        for name, text in files.items():
            parts = name.replace("__init__", "\0").split("__")
            path = self.repo / ("/".join(parts).replace("\0", "__init__") + ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def commit(self, **files: str) -> str:
        """Commit everything that is there, these files too; gives the hash."""
        self.write(**files)
        run_git(self.repo, "add", "--all")
        run_git(self.repo, "commit", "--quiet", "--allow-empty", "--message", "a change")
        return run_git(self.repo, "rev-parse", "HEAD")

    def registry(self) -> Registry:
        """What is loaded here, without plugins of others."""
        return load_registry(source for source in installed() if source.distribution == "mini-live")


def declared(name: str, module: str, **values: Any) -> Declared:
    """A backend of a module as a side tells it."""
    return Declared(
        Source(name, module, module, "1.0"), {"name": name, "summary": "", **values}, weighs=False
    )


def facts_of(**said: Any) -> SideFacts:
    """What a side tells of itself: this attnbench, no plugins, unless said otherwise."""
    versions = {"python": "3.12.1", "torch": "2.6.0"}
    plain: dict[str, Any] = {
        "protocol": protocol_fingerprint(), "attnbench": "/site/attnbench/__init__.py", "versions": versions,
        "files": {}, "backends": {}, "elsewhere": {}, "strays": (), "faults": (),
    }  # fmt: skip
    return SideFacts(**(plain | said))


Install = Callable[..., Project]


def installed_project(
    folder: Path, modules: Sequence[str], roots: Sequence[str], patch: pytest.MonkeyPatch
) -> Iterator[Project]:
    """Make a repository and install it; forget what was imported from it when the iterator ends.

    modules: those that its entry points name. roots: its folders on the import path.
    """
    before = set(sys.modules)
    repo, site = folder / "kernels", folder / "site"
    points = {module.replace(".", "_"): module for module in modules}
    write_distribution(site, "mini-live", {"attnbench": points}, {})
    repo.mkdir()
    run_git(repo, "init", "--quiet")
    paths = [str(site), *(str(repo / root) for root in roots)]
    for path in reversed(paths):
        patch.syspath_prepend(path)
    there = os.environ.get("PYTHONPATH")
    patch.setenv("PYTHONPATH", os.pathsep.join([*paths, *([there] if there else [])]))
    yield Project(repo.resolve(), site)
    for name in set(sys.modules) - before:
        if name.startswith("mini_"):
            del sys.modules[name]
