"""``attnbench fleet``: the places of an executor; and how ``attnbench run --on`` uses them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from attnbench.cli.options import GIVEN, SHOWING, format_option
from attnbench.cli.output import loudness, print_listing, say
from attnbench.cli.parameters import load_plugins, named_plugins, plugin_option
from attnbench.types.device import DEVICES

if TYPE_CHECKING:
    from attnbench.fleet.sites import Site
    from attnbench.plugins.registry import Registry
    from attnbench.reports.run import Run
    from attnbench.results.format import StoredRun
    from attnbench.runner.forecast import RunPlan
    from attnbench.types.fleet import Fleet
    from attnbench.types.words import Format

_AT_HOME = ("out", "resume", "force", "plan", "benchmark_json", "on", "where", "each", "kept", *SHOWING)
"""The parameters of ``run`` that are for the driver alone: units have cases of their own (``kept``)."""

_DOCTOR_ANSWERS, _FAILED = (0, 1), "failed: "
"""The exit statuses of a doctor that has looked; the beginning of the cell of one that has not."""


@click.command("fleet")
@click.option(
    "--on", required=True, metavar="EXECUTOR[:ADDRESS]", help="Where to look: local, or what plugins bring."
)
@click.option(
    "--where",
    multiple=True,
    metavar="NAME=TEXT",
    help="Keep places where this holds, as gpu=H100. Repeatable.",
)
@plugin_option
@format_option
def command(on: str, where: tuple[str, ...], format_: Format) -> None:
    """List the devices that an executor reaches: versions, and what the doctor finds on each.

    The exit status is 3 if the doctor can't run on one of them.

    \b
    attnbench fleet --on local
    attnbench fleet --on ray --where gpu=H100,A100
    """
    from attnbench.fleet.sites import sites_of
    from attnbench.fleet.units import packed

    words = packed((), (), named_plugins())
    with connected(load_plugins(), on) as fleet:
        sites = sites_of(fleet, words.facts(), where, lambda text: say(text, err=True))
        with ThreadPoolExecutor(len(sites)) as threads:
            rows = list(threads.map(lambda site: _row(fleet, site), sites))
    print_listing(rows, ("place", "device", "memory_gib", "torch", "attnbench", "doctor"), format_)
    if any(row["doctor"].startswith(_FAILED) for row in rows):
        click.get_current_context().exit(3)


def _row(fleet: Fleet, site: Site) -> dict[str, Any]:
    from attnbench.fleet.sites import ask, last_line
    from attnbench.types.fleet import PlaceLost, Task

    facts = site.facts
    try:
        ended = ask(fleet, site.place, Task(("attnbench", "--quiet", "doctor", "--format", "json")))
        if ended.status in _DOCTOR_ANSWERS:
            bad = [one["name"] for one in json.loads(ended.stdout) if one["level"] == "bad"]
            doctor = ", ".join(bad) or "fine"
        else:
            doctor = f"{_FAILED}{last_line(ended)}"
    except PlaceLost as failure:
        doctor = f"{_FAILED}{failure}"
    details = "" if DEVICES[site.place.device].on_host else facts.cuda_details[0]
    return {
        "place": site.place.name,
        "device": " ".join(filter(None, (site.kind, f"({details})" if details else ""))),
        "memory_gib": round(facts.memory_bytes / 2**30, 1),
        "attnbench": facts.attnbench,
        "torch": facts.torch,
        "python": facts.python,
        "plugins": facts.plugins,
        "facts": dict(site.place.facts),
        "doctor": doctor,
    }


@contextmanager
def connected(registry: Registry, on: str) -> Iterator[Fleet]:
    """Yield the fleet that ``--on`` names; raises :class:`BadInput` for an unknown one, and outside Linux."""
    from attnbench.runner.machine import check_linux

    check_linux()
    name, _, address = on.partition(":")
    with registry.executor(name).connect(address) as fleet:
        yield fleet


def measured_on(
    ctx: click.Context, chosen: Mapping[str, Any], plan: RunPlan, registry: Registry
) -> Run | None:
    """Run a plan on the fleet that the options name; None if cases could not be measured, which it tells.

    Raises:
        BadInput: ``--out`` is a folder, ``--shard`` is given, or as :func:`attnbench.fleet.run.run_on`.
    """
    from attnbench.api import loaded
    from attnbench.fleet.run import run_on, units_folder
    from attnbench.fleet.units import packed
    from attnbench.types.errors import BadInput

    out: Path = chosen["out"]
    registry.executor(chosen["on"].partition(":")[0])
    if out.suffix != ".jsonl":
        raise BadInput("--on needs --out FILE.jsonl; the same command then continues it")
    if chosen["shard"] is not None:
        raise BadInput("--on divides the cases itself: leave out --shard")
    arguments, options = _words(ctx)
    words = packed(arguments, options, named_plugins())
    folder, total = units_folder(out), len(plan.cases)
    finished: list[str] = []

    # Asked here, since the driver's threads have no context of click.
    quiet = loudness() == "quiet"

    def done(site: Site, run: StoredRun) -> None:
        for case in () if quiet else run.manifest.cases:
            finished.append(case)
            say(f"{len(finished)}/{total} {case}: {site.place.name}", err=True)

    try:
        with connected(registry, chosen["on"]) as fleet:
            failed = run_on(
                fleet, plan, words, out,
                where=chosen["where"], each=chosen["each"] is not None,
                tell=lambda text: say(text, err=True), done=done,
            )  # fmt: skip
    except KeyboardInterrupt:
        _tell_what_is_in(folder)
        raise
    if failed:
        _tell_what_is_in(folder)
        return None
    return loaded(out, registry)


def _tell_what_is_in(folder: Path) -> None:
    if any(path.stat().st_size for path in folder.glob("*.jsonl")):
        say(f"what was measured is in {folder}; the same command goes on with it", err=True)


def _words(ctx: click.Context) -> tuple[list[str], list[str]]:
    """Return the arguments and the options of a command line that its units need, as the user gave them."""
    values, _, _ = ctx.command.make_parser(ctx).parse_args(list(ctx.meta[GIVEN]))
    arguments: list[str] = []
    options: list[str] = []
    for param in ctx.command.params:
        given = values.get(param.name or "")
        if given is None or param.name in (*_AT_HOME, "plugin"):
            continue
        if isinstance(param, click.Option):
            option = max(param.opts, key=len)
            if param.is_flag:
                options.append(option)
            else:
                values_of = given if param.multiple else [given]
                options += [word for value in values_of for word in (option, str(value))]
        else:
            arguments += map(str, given)
    return arguments, options
