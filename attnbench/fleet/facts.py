"""The facts of a machine that decide which device a place has, and whether its software is that of others."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from attnbench import __version__
from attnbench.ipc.process import end_with, stdout_for_answers
from attnbench.timing.cards import card_details, card_names
from attnbench.types.device import CUDA, DEVICES, kind_of_device
from attnbench.types.errors import BadInput
from attnbench.types.record import Manifest
from attnbench.types.words import first_of


class DeviceFacts(Struct, frozen=True):
    """The hardware and software that a task finds, by the names that run files have.

    cpu: the processor's name; cpu_details: its family, model, caches and instructions, "" where unknown.
    cpu_quota: the cores that a run may use. cuda_devices: the names of the visible cards; cuda_details: of
    each its multiprocessors, memory and power limit, in words. plugins: the version of each distribution
    that brings plugins, or of each plugin's file.
    """

    cpu: str
    cpu_quota: int
    memory_bytes: int
    cuda_devices: list[str]
    cuda_details: list[str]
    attnbench: str
    python: str
    torch: str
    plugins: dict[str, str]
    cpu_details: str = ""


def facts_here(plugins: Sequence[str]) -> DeviceFacts:
    """Read the facts of this machine. plugins: files and modules to load besides those that are installed.

    It loads torch and makes a CUDA context, so it is for a process that ends soon: ``python -m
    attnbench.fleet.facts PLUGIN...`` prints them as JSON.
    """
    import torch

    from attnbench.plugins.registry import load_wanted
    from attnbench.runner.machine import environment

    machine = environment()
    return DeviceFacts(
        cpu=machine["cpu"],
        cpu_quota=machine["cpu_quota"],
        memory_bytes=machine["memory_bytes"],
        cuda_devices=list(card_names(CUDA.name)),
        cuda_details=list(card_details(CUDA.name)),
        attnbench=__version__,
        python=machine["python"],
        torch=str(torch.__version__),
        plugins={source.distribution: source.version for source in load_wanted(plugins).plugins},
        cpu_details=machine["cpu_details"] or "",
    )


def print_facts(plugins: Sequence[str]) -> None:
    """Print the facts of this machine as JSON; what plugins print meanwhile goes to stderr."""
    end_with(os.environ)
    stdout_for_answers().write(msgspec.json.encode(facts_here(plugins)))


def kind_of(facts: DeviceFacts, device: str) -> str:
    """Return the kind of a device: ratios are only formed within one.

    Raises:
        BadInput: torch finds no such device.
    """
    known, stated = DEVICES[device], msgspec.structs.asdict(facts)
    if not known.on_host and not stated[known.names_fact]:
        raise BadInput(f"torch finds no {known.title} there")
    return kind_of_device(stated, device)


def check_given(asked: DeviceFacts, manifest: Manifest, place: str) -> None:
    """Raise :class:`BadInput` if a run did not get the device and the software that its place has."""
    plugins = {plugin.distribution: plugin.version for plugin in manifest.plugins}
    software = {"attnbench": manifest.attnbench, "python": asked.python, "plugins": plugins}
    given = {"cuda_details": [], "cpu_details": ""} | manifest.environment | software
    unlike = [
        f"{name} {given[name]} instead of {wanted}"
        for name, wanted in msgspec.structs.asdict(asked).items()
        if given[name] != wanted
    ]
    if unlike:
        raise BadInput(f"{place} ran on another device or other software than it stated: {', '.join(unlike)}")


def check_versions(here: DeviceFacts, there: Mapping[str, DeviceFacts]) -> None:
    """Raise :class:`BadInput` with a list if software is not the same everywhere.

    here: of the process that plans. Its torch computes nothing, so only places must share that. there: by
    the names of places.
    """
    ours = {"attnbench": here.attnbench} | here.plugins
    found = {
        name: {"attnbench": facts.attnbench, "torch": facts.torch, "Python": _minor(facts.python)}
        | facts.plugins
        for name, facts in there.items()
    }
    unlike = []
    for what in dict.fromkeys(name for versions in (ours, *found.values()) for name in versions):
        versions = {name: each.get(what, "none") for name, each in found.items()}
        if what in ours:
            versions = {"here": ours[what]} | versions
        if len(set(versions.values())) > 1:
            unlike.append(f"{what} is " + _by_version(versions))
    if unlike:
        raise BadInput(f"the places have different software: {'; '.join(unlike)}")


def _minor(python: str) -> str:
    return ".".join(python.split(".")[:2])


def _by_version(versions: Mapping[str, str]) -> str:
    places: dict[str, list[str]] = {}
    for place, version in versions.items():
        places.setdefault(version, []).append(place)
    return ", ".join(f"{version} ({first_of(where, 3)})" for version, where in places.items())


if __name__ == "__main__":
    print_facts(sys.argv[1:])
