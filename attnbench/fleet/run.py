"""A run on a fleet, from the plan to one file."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from attnbench.cases.ids import case_id, parse_case
from attnbench.fleet.drive import Driver, Queue, set_aside, settled
from attnbench.fleet.facts import DeviceFacts, check_given, check_versions
from attnbench.fleet.node import run_here
from attnbench.fleet.sites import Site, last_line, sites_of
from attnbench.fleet.units import CommandWords, divided
from attnbench.results.disk import lock, open_lock
from attnbench.results.format import StoredRun, check_new
from attnbench.results.merge import merge
from attnbench.runner.forecast import RunPlan
from attnbench.types.device import DEVICES, device_kind
from attnbench.types.errors import BadFile, BadInput, MeasuringFailed
from attnbench.types.fleet import Ended, Fleet
from attnbench.types.words import count_of

LOCK = "lock"


def run_on(
    fleet: Fleet,
    plan: RunPlan,
    words: CommandWords,
    out: Path,
    *,
    where: Sequence[str] = (),
    each: bool = False,
    tell: Callable[[str], None],
    done: Callable[[Site, StoredRun], None],
) -> list[str]:
    """Measure the cases of a plan on the places of a fleet, and write all runs into the file ``out``.

    Until all is measured, the files of units stand in a folder beside it, and the same call goes on with
    them. each: measure every case on each kind of device, not once. tell: is told in words of what was lost.
    done: is told of cases that are done on a site, with their run. Returns what could not be measured, in
    words; ``out`` is then not written.

    Raises:
        BadInput: there are no places for the cases, their software differs, or the files are of another run.
        MeasuringFailed: no place can be used.
    """
    check_new(out)
    sites = sites_of(fleet, words.facts(), where, tell)
    chosen = {device: _sites_for(plan, device, sites, each) for device in DEVICES}
    check_versions(_facts_of_driver(words), {site.place.name: site.facts for site in sites})
    folder = units_folder(out)
    folder.mkdir(parents=True, exist_ok=True)
    with _held(folder):
        check_new(out)  # again: another driver may have ended meanwhile
        before = _measured_before(folder, plan, [site for those in chosen.values() for site in those], tell)
        driver = Driver(fleet, words, folder, tell, done)
        for device, those in chosen.items():
            cases = [each for each in plan.forecast.cases if parse_case(each.case).device == device]
            queues = {}
            for kind in dict.fromkeys(site.kind for site in those):
                left = [case for case in cases if (kind, case.case) not in before]
                places = sum(site.kind == kind for site in those)
                queues[kind] = Queue(deque(divided(left, places)))
            driver.measure(queues, those)
        if not driver.failed:
            files = sorted(folder.glob("*.jsonl"))
            merge(files, out)
            for file in (*files, folder / LOCK):
                file.unlink()
            with suppress(OSError):
                folder.rmdir()  # unless it holds what is not ours
    return driver.failed


def units_folder(out: Path) -> Path:
    """Return the folder in which the units of a run stand until all of them are there."""
    return out.with_suffix(".units")


def _facts_of_driver(words: CommandWords) -> DeviceFacts:
    ended = next(piece for piece in run_here(words.facts()) if isinstance(piece, Ended))
    if ended.status:
        raise MeasuringFailed(f"can't read the facts of this machine: {last_line(ended)}")
    return msgspec.json.decode(ended.stdout, type=DeviceFacts)


def _sites_for(plan: RunPlan, device: str, sites: Sequence[Site], each: bool) -> list[Site]:
    """Return the sites for the cases on a device; none if there are no such cases."""
    cases = sum(case.device == device for case in plan.cases)
    if not cases:
        return []
    found = [site for site in sites if site.place.device == device]
    if not found:
        raise BadInput(f"{count_of(cases, 'case')} on {device}, but no place has such a device")
    kinds = dict.fromkeys(site.kind for site in found)
    if len(kinds) > 1 and not each:
        raise BadInput(
            f"the places have {len(kinds)} kinds of devices ({', '.join(kinds)}), whose times never mix: "
            "choose one by --where, or measure every case on each with --each device"
        )
    return found


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Hold the folder of a run, which two drivers must not fill at once."""
    path = folder / LOCK
    try:
        file = open_lock(path)
    except OSError as failure:
        raise BadInput(f"can't write {str(path)!r}: {failure.strerror}") from failure
    with file:
        if not lock(file.fileno(), path):
            raise BadInput(f"{str(folder)!r} is being written by another run")
        yield


def _measured_before(
    folder: Path, plan: RunPlan, sites: Sequence[Site], tell: Callable[[str], None]
) -> set[tuple[str, str]]:
    """Return kinds of devices and cases that an earlier call has measured, and drop what it left incomplete.

    A damaged file is set aside, and its cases are measured again.

    Raises:
        BadInput: the files are of another run, or of other devices or software.
    """
    ours = {case_id(case) for case in plan.cases}
    wanted = plan.options.protocol() | {"note": ""}
    by_kind = {site.kind: site for site in sites}
    found = set()
    for path in sorted(folder.glob("*.jsonl")):
        try:
            run = settled(path)
        except BadFile as damage:
            tell(f"a unit is measured again: {set_aside(path, damage)}")
            continue
        if run is None:
            continue
        manifest = run.manifest
        if (
            not set(manifest.cases) <= ours
            or manifest.backends != list(plan.backends)
            or manifest.protocol | {"note": ""} != wanted
        ):
            raise BadInput(
                f"{str(path)!r} has other cases, backends or options than this run: name another --out, or "
                "remove the folder"
            )
        kind = device_kind(manifest.environment, manifest.cases[0])
        if kind not in by_kind:
            raise BadInput(
                f"{str(path)!r} was measured on {kind}, which is not there now: name another --out"
            )
        check_given(by_kind[kind].facts, manifest, f"{str(path)!r}")
        found |= {(kind, case) for case in manifest.cases}
    return found
