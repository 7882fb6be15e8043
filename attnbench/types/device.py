"""The kind of device that a case was measured on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from attnbench.types.words import count_of

UNKNOWN = "unknown device"


def device_of(case: str) -> str:
    """Return ``cuda`` or ``cpu`` for the id of a case; for another tool's benchmark, ``cpu``."""
    return "cuda" if "/cuda/" in case else "cpu"


def kind_of_device(environment: Mapping[str, Any], device: str) -> str:
    """Return the kind of device of a run: ratios, means and orders stay within one.

    For ``cuda`` it is the name of the card. For ``cpu`` it is the name of the processor with its details in
    brackets, if the run states them, and the number of cores that the run could use. environment: facts of
    the run, as in its manifest.
    """
    if device == "cuda":
        cards = environment.get("cuda_devices")
        return str(cards[0]) if isinstance(cards, list) and cards else UNKNOWN
    cpu, cores = environment.get("cpu"), environment.get("cpu_quota")
    if not cpu or cpu == "unknown":
        return UNKNOWN
    if details := environment.get("cpu_details"):
        cpu = f"{cpu} [{details}]"
    return f"{cpu}, {count_of(cores, 'core')}" if isinstance(cores, int) else str(cpu)


def device_kind(environment: Mapping[str, Any], case: str) -> str:
    """Return the kind of device on which a run measured a case."""
    return kind_of_device(environment, device_of(case))


def without_details(kind: str) -> str:
    """Return a kind as files have it that do not state the details of their processor."""
    return re.sub(r" \[[^\]]*\]", "", kind)


def may_be_one(kind: str, other: str) -> bool:
    """Return whether two kinds may be one: they are equal, or would be if one of them stated its details."""
    return kind == other or without_details(kind) == other or kind == without_details(other)


def told_kinds(kinds: Iterable[str]) -> dict[str, str]:
    """Return for each kind the one that it counts as among all.

    One without details counts as the only one that has the same name and cores, and details.
    """
    every = dict.fromkeys(kinds)
    counted = {}
    for kind in every:
        alike = [other for other in every if other != kind and without_details(other) == kind]
        counted[kind] = alike[0] if len(alike) == 1 else kind
    return counted


def shown_kinds(kinds: Iterable[str]) -> dict[str, str]:
    """Return for each kind its name in reports: without details where that tells it from all others."""
    every = dict.fromkeys(kinds)
    plain = Counter(map(without_details, every))
    return {kind: kind if plain[without_details(kind)] > 1 else without_details(kind) for kind in every}
