"""Use a plain copy of the tree as if it were installed: the metadata that an installation would write.

    export PYTHONPATH=$(python tests/gpu/tree.py FOLDER)

Rules, backends, suites and commands of plugins are found through entry points. They stand in the metadata of
an installed distribution, and a plain copy has none. Needs only the standard library.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:
    sys.exit(f"Python 3.11 or later is needed; this is {platform.python_version()}")

TREE = Path(__file__).resolve().parents[2]
PLUGINS = ("attnbench-selftest", "attnbench-triton", "attnbench-cuda")
"""The packages under ``plugins/`` that are made usable; one that is not there is left out."""


def use_tree(folder: Path) -> list[str]:
    """Write the metadata into a folder; return what to put on Python's path, that folder first."""
    paths = [str(folder)]
    for home in (TREE, *(TREE / "plugins" / name for name in PLUGINS)):
        if (home / "pyproject.toml").is_file():
            _write_metadata(tomllib.loads((home / "pyproject.toml").read_text("utf-8"))["project"], folder)
            paths.append(str(home))
    return paths


def _write_metadata(project: dict[str, object], folder: Path) -> None:
    name, version = project["name"], project["version"]
    place = folder / f"{str(name).replace('-', '_')}-{version}.dist-info"
    place.mkdir(parents=True, exist_ok=True)
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: {project['description']}\n"
    (place / "METADATA").write_text(head, "utf-8")
    groups = project.get("entry-points", {})
    assert isinstance(groups, dict)
    lines = [
        line
        for group, points in groups.items()
        for line in (f"[{group}]", *(f"{point} = {target}" for point, target in points.items()), "")
    ]
    (place / "entry_points.txt").write_text("\n".join(lines), "utf-8")


if __name__ == "__main__":
    print(os.pathsep.join(use_tree(Path(sys.argv[1]).resolve())))
