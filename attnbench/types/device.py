"""Kinds of device: what cases run on, and how reports name what a run had of one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from attnbench.types.words import count_of

UNKNOWN = "unknown device"


@dataclass(frozen=True)
class Device:
    """A kind of device. What torch does on one, ``torch.get_device_module(name)`` has."""

    name: str
    """As in ids and as torch calls it."""

    title: str
    """For people, as in "this machine has no CUDA device"."""

    on_host: bool
    """Whether calls run in threads of the process that makes them, on memory of the machine."""

    flops_per_s: float
    """What plans assume of a backend; on the host for each thread."""

    names_fact: str = ""
    """The fact of a run that lists the names of such devices; "" for the host."""

    details_fact: str = ""
    """The fact of a run that tells devices of one name apart."""


CPU = Device("cpu", "processor", on_host=True, flops_per_s=3.5e10)
CUDA = Device(
    "cuda", "CUDA device", on_host=False, flops_per_s=2e13,
    names_fact="cuda_devices", details_fact="cuda_details",
)  # fmt: skip
DEVICES = {device.name: device for device in (CPU, CUDA)}
"""All kinds, the host first."""
ATTACHED = tuple(device for device in DEVICES.values() if not device.on_host)
"""Kinds that a machine may have beside its processor."""


def device_of(case: str) -> str:
    """Return the name of the kind of device in the id of a case; for another tool's benchmark, ``cpu``."""
    return next((device.name for device in ATTACHED if f"/{device.name}/" in case), CPU.name)


def kind_of_device(environment: Mapping[str, Any], device: str) -> str:
    """Return the kind of device of a run: ratios, means and orders stay within one.

    It is the name of the card; on the host that of the processor with its details in brackets, if the run
    states them, and the number of cores that the run could use. environment: facts of the run, as in its
    manifest.
    """
    if not DEVICES[device].on_host:
        cards = environment.get(DEVICES[device].names_fact)
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
    """Return for each kind its name in reports: with as many details as tell it from all others."""
    every = dict.fromkeys(kinds)
    plain, by_model = Counter(map(without_details, every)), Counter(map(_with_model, every))
    names = {}
    for kind in every:
        if plain[without_details(kind)] == 1:
            names[kind] = without_details(kind)
        elif by_model[_with_model(kind)] == 1:
            names[kind] = _with_model(kind)
        else:
            names[kind] = kind
    return names


def _with_model(kind: str) -> str:
    """Return a kind with the first of its details, which say the family and model."""
    if "[" not in kind:
        return f"{kind}, no details recorded"
    return re.sub(r" \[([^,\]]*)[^\]]*\]", r" [\1]", kind)
