"""The environment and the protocol of a run, as pairs of words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from attnbench.cases.sizes import human_bytes
from attnbench.reports.formats import plain
from attnbench.reports.html.shown import Shown


def run_facts(run: Shown) -> list[tuple[str, str]]:
    """What the run is: when, where from, by which command, with which plugins."""
    manifest, ended = run.manifest, run.ended
    lasted = "cut off" if ended is None else f"{ended.finished}, after {ended.wall_s:.0f} s"
    found = [
        ("file", str(run.path)),
        ("run", manifest.run_id),
        ("started", manifest.started),
        ("finished", lasted),
        ("attnbench", manifest.attnbench),
        ("command", " ".join(manifest.command)),
        *((f"side {name}", plain_words(side)) for name, side in manifest.sides.items()),
        ("plugins", ", ".join(_plugin(p.name, p.distribution, p.version) for p in manifest.plugins)),
    ]
    if ended is not None and ended.load_average:
        found.append(("load at the end", plain_words(ended.load_average)))
    return [(name, words) for name, words in found if words]


def environment_facts(run: Shown) -> list[tuple[str, str]]:
    """The machine and its software, as the run found them."""
    return list(_flat(run.manifest.environment))


def protocol_facts(run: Shown) -> list[tuple[str, str]]:
    """Every dial of the measurement."""
    dials = run.manifest.protocol
    if run.manifest.sides:
        # There each backend has a baseline of its own, itself.
        dials = {name: value for name, value in dials.items() if name != "baseline"}
    return list(_flat(dials))


def _plugin(name: str, distribution: str, version: str) -> str:
    return f"{distribution} {version} ({name})"


def _flat(facts: Mapping[str, Any], before: str = "") -> Iterable[tuple[str, str]]:
    for name, value in facts.items():
        words = f"{before}{str(name).replace('_', ' ')}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{words}: ")
        elif value is not None and value != "":
            of_bytes = str(name).endswith("bytes") and isinstance(value, int | float)
            yield words, human_bytes(value) if of_bytes else plain_words(value)


def plain_words(value: Any) -> str:
    """A value of a file in words."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {plain_words(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(plain_words(one) for one in value) or "none"
    return plain(value)
