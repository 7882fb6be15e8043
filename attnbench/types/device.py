"""The kind of device that a case was measured on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attnbench.types.words import count_of

UNKNOWN = "unknown device"


def device_of(case: str) -> str:
    """Return ``cuda`` or ``cpu`` for the id of a case; for another tool's benchmark, ``cpu``."""
    return "cuda" if "/cuda/" in case else "cpu"


def kind_of_device(environment: Mapping[str, Any], device: str) -> str:
    """Return the kind of device of a run: ratios, means and orders stay within one.

    For ``cuda`` it is the name of the card. For ``cpu`` it is the name of the processor with the number of
    cores that the run could use. environment: facts of the run, as in its manifest.
    """
    if device == "cuda":
        cards = environment.get("cuda_devices")
        return str(cards[0]) if isinstance(cards, list) and cards else UNKNOWN
    cpu, cores = environment.get("cpu"), environment.get("cpu_quota")
    if not cpu or cpu == "unknown":
        return UNKNOWN
    return f"{cpu}, {count_of(cores, 'core')}" if isinstance(cores, int) else str(cpu)


def device_kind(environment: Mapping[str, Any], case: str) -> str:
    """Return the kind of device on which a run measured a case."""
    return kind_of_device(environment, device_of(case))
