"""Distributions as an installer leaves them, for tests of plugins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path


def write_distribution(
    site: Path,
    name: str,
    points: Mapping[str, Mapping[str, str]],
    files: Mapping[str, str],
    *,
    version: str = "1.0",
    summary: str = "A test",
    requires: Sequence[str] = (),
) -> Path:
    """Write files and metadata into a folder; return the folder of the metadata.

    points: by group the places of entry points, by their names. requires: other distributions, as in its
    metadata.
    """
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: {summary}\n"
    head += "".join(f"Requires-Dist: {line}\n" for line in requires)
    (info / "METADATA").write_text(f"{head}\nName: not this\n")
    lines = []
    for group, places in points.items():
        lines += [f"[{group}]", *(f"{word} = {place}" for word, place in places.items())]
    (info / "entry_points.txt").write_text("".join(f"{line}\n" for line in lines))
    for file, text in files.items():
        (site / file).write_text(text)
    return info
