"""``attnbench run``: plan, check and time; and what ``check`` shares with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, NoReturn

import click

from attnbench.cli.options import SHOWING, CommonFirst, given_options, measuring_options, options_of, selected
from attnbench.cli.output import (
    benchmark_text,
    note,
    own_format,
    print_listing,
    print_run,
    record_format,
    say,
    view_of,
)  # fmt: skip
from attnbench.cli.parameters import load_plugins, named_plugins
from attnbench.cli.progress import progress
from attnbench.types.device import CPU, DEVICES
from attnbench.types.errors import BadInput, Interrupted, PluginFailed, go_on_words
from attnbench.types.status import MEANING
from attnbench.types.words import count_of, span_words

if TYPE_CHECKING:
    from attnbench.cases.select import Selection
    from attnbench.plugins.registry import Entry, Registry
    from attnbench.reports.run import Run
    from attnbench.runner.forecast import CaseForecast, Forecast, RunPlan
    from attnbench.runner.options import Options
    from attnbench.runner.progress import Progress
    from attnbench.types.case import Case
    from attnbench.types.extensions import Reporter
    from attnbench.types.words import Format


@click.command("run", cls=CommonFirst)
@measuring_options(timing=True)
@click.pass_context
def command(ctx: click.Context, /, **chosen: Any) -> None:
    """Check and time backends on cases. Without cases, use the suite smoke.

    Each backend is checked against the oracle, then timed in processes of its own. A case is given by its id
    (attnbench list cases), a suite by its name (attnbench list suites) or by a TOML file.

    \b
    attnbench run
    attnbench run gpt2 --backend eager --backend sdpa_flash --budget 1
    attnbench run attention/scaled_dot/H8-L1024-D64/causal --dtype bfloat16
    attnbench run mine.toml --plan
    attnbench run mine.toml --shard 3/16 --out shards/3.jsonl
    attnbench run mine.toml --on ray --out all.jsonl
    attnbench run --resume results/mine.jsonl
    """
    if chosen["benchmark_json"] is not None:
        from attnbench.results.pytest_benchmark import BENCHMARKS
        from attnbench.results.targets import check_target

        check_target(chosen["benchmark_json"], BENCHMARKS, otherwise="")
    measure(ctx, chosen, timed=True)


def measure(ctx: click.Context, chosen: dict[str, Any], *, timed: bool) -> None:
    """Run what the options of a command ask for, print its records, and exit with their status."""
    registry = load_plugins()
    printed = record_format(chosen["format_"], registry)
    planned = ""
    cases: tuple[str, ...] = ()
    if chosen["resume"] is not None:
        start = _resumed(ctx, chosen["resume"], registry, force=chosen["force"])
    else:
        from attnbench import api
        from attnbench.cases.ids import case_id
        from attnbench.cases.select import shard_words
        from attnbench.plugins.registry import named_by
        from attnbench.reports.run import exit_code, without_success
        from attnbench.runner.forecast import plan_run
        from attnbench.runner.run import check_plan

        if chosen["force"]:
            raise click.UsageError("--force needs --resume", ctx)
        if not chosen.get("on") and (chosen.get("where") or chosen.get("each")):
            raise click.UsageError("--where and --each need --on", ctx)
        options = options_of(chosen, timed=timed)
        if options.baseline:
            registry.backend(options.baseline)
        selection = selected(registry, chosen, timed=timed)
        if not chosen.get("on"):
            check_devices(selection)
        brought = named_by(named_plugins(), registry.backends)
        plan = plan_run(selection, chosen["backends"], registry, options, brought)
        if words := shard_words(selection):
            note(words)
        if selection.shard is not None and not selection.cases:
            _tell(without_success((), plan.named))
            ctx.exit(exit_code((), plan.named))
        if chosen.get("on") and not chosen["plan"]:
            from attnbench.cli.fleet import measured_on

            fleet_run = measured_on(ctx, chosen, plan, registry)
            if fleet_run is None:
                ctx.exit(3)
            _end(ctx, chosen, fleet_run, printed)
        check_plan(plan, chosen["out"])
        if chosen["plan"]:
            print_plan(plan, options, own_format(chosen["format_"], "--plan prints no records"))
            return
        if timed:
            planned = plan_words(plan.forecast, options)
            warn_of_busy_cores(selection.cases)
        cases = tuple(map(case_id, plan.cases))
        start = partial(api.start, plan, chosen["out"])
    try:
        with progress(planned, cases) as tell:
            run = start(tell)
    except Interrupted as stop:
        from attnbench.api import loaded

        try:
            print_run(loaded(stop.path, registry), printed, view_of(chosen))
        except PluginFailed as failure:
            say(f"attnbench: {failure}", err=True)
        raise
    _end(ctx, chosen, run, printed, () if timed else _advice_on(run, registry))


def _advice_on(run: Run, registry: Registry) -> list[str]:
    """Return advice on the failures of the backends that a user named: the diagnosis of the kit's cases."""
    named = dict.fromkeys(name for manifest in run.manifests for name in manifest.named)
    if not any(MEANING[record.status].exit_code and record.backend in named for record in run.records):
        return []
    from attnbench.testing.judge import advice_on

    note("asking again, to find the cause")
    return [found.advice for found in advice_on(run.records, tuple(named), registry)]


def _end(
    ctx: click.Context,
    chosen: dict[str, Any],
    run: Run,
    printed: Format | Entry[Reporter],
    advice: Sequence[str] = (),
) -> NoReturn:
    """Print the records of a run and advice, and exit with their status."""
    from attnbench.reports.html.page import missing_packages
    from attnbench.results.targets import write_files

    try:
        print_run(run, printed, view_of(chosen))
        for sentence in advice:
            say(sentence, err=printed != "table")
    finally:
        # Last, where it is still seen: the table of a suite is longer than a terminal.
        timed = any(record.median_ms is not None for record in run.records)
        shared = printed == "table" and timed and not missing_packages()
        page = f"; to share it: attnbench report {quote(str(run.path))} --html page.html" if shared else ""
        note(f"stored in {run.path}{page}")
        if run.unfinished:
            say(f"some records are interrupted; {go_on_words(run.path, live=False)}", err=True)
        _tell(run.without_success)
        if chosen.get("benchmark_json") is not None:
            text, said = benchmark_text(run.paths, chosen["benchmark_json"])
            write_files({chosen["benchmark_json"]: text.encode()})
            for words in said:
                note(words)
    ctx.exit(run.exit_code)


def _tell(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        say(f"attnbench: {sentence}", err=True)


def _resumed(ctx: click.Context, path: Path, registry: Registry, *, force: bool) -> Callable[[Progress], Run]:
    """Return a function that goes on with the run in a file.

    Raises:
        UsageError: an option changes more than how records are printed.
    """
    from attnbench.api import go_on
    from attnbench.results.format import read_run
    from attnbench.results.read import lacks_digests

    kept = ("resume", "force", "benchmark_json", *SHOWING)
    if given := given_options(ctx, [name for name in ctx.params if name not in kept]):
        leave_out = ", ".join(given)
        raise click.UsageError(f"--resume uses the options of the stored run: leave out {leave_out}", ctx)
    stored = read_run(path)
    for flaw in lacks_digests(stored):
        say(flaw, err=True)
    if stored.torn:
        say(f"{path}: its last line was cut off and is dropped", err=True)
    return lambda tell: go_on(path, registry, tell, force=force)


def check_devices(selection: Selection) -> None:
    """Raise :class:`BadInput` where all cases need a kind of device that this machine lacks."""
    devices = {case.device for case in selection.cases}
    if len(devices) == 1:
        check_device(devices.pop())


def check_device(device: str) -> None:
    """Raise :class:`BadInput` for a kind of device that this machine lacks."""
    if not DEVICES[device].on_host and not _has(device):
        raise BadInput(
            f"device '{device}': torch finds no {DEVICES[device].title} on this machine; "
            f"use --device {CPU.name}"
        )


def _has(device: str) -> bool:
    """Ask torch in another process, since this one, which measures, never loads torch."""
    import subprocess
    import sys

    question = "import sys, torch; sys.exit(not torch.get_device_module(sys.argv[1]).is_available())"
    command = [sys.executable, "-P", "-c", question, device]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


MOST_NAMED = 4
"""Sequences that a line of a plan names."""


def print_plan(plan: RunPlan, options: Options, format_: Format) -> None:
    """Print the plan: data by case to stdout, its sum and what is dearest in it to stderr."""
    from attnbench.runner.machine import allowed_cpus, longer_words, watch_cores

    foreseen = plan.forecast
    columns = ("case", "cells", "about_s", "timing_s" if options.timed else "compiling_s")
    print_listing([_row(case) for case in foreseen.cases], columns, format_)
    for case in foreseen.cases:
        if not case.cells:
            note(f"{case.case}: no backend runs it: {case.declined}")
    for one in plan.cases:
        if words := keyless_words(one):
            note(words)
    note(plan_words(foreseen, options))
    if words := longer_words(allowed_cpus(), watch_cores()):
        note(words)
    if words := dearest_words(plan):
        note(words)


def keyless_words(case: Case) -> str:
    """Count the rows of a batch without keys, by sequence; "" if there are none, or a mask is drawn."""
    from attnbench.cases.ids import case_id
    from attnbench.masks import kept_rows
    from attnbench.types.operation import operation_of
    from attnbench.types.problem import problems_of

    if not case.batch or not case.mask.is_range or len(operation_of(case).lengths) < 2:
        return ""
    found = {number: one.Lq - kept_rows(one)[0] for number, one in enumerate(problems_of(case))}
    found = {number: rows for number, rows in found.items() if rows}
    named = [f"{rows} in sequence {number}" for number, rows in found.items()]
    if len(named) > MOST_NAMED:
        named[MOST_NAMED:] = [f"others in {count_of(len(named) - MOST_NAMED, 'sequence')}"]
    rows = count_of(sum(found.values()), "row")
    return f"{case_id(case)}: {rows} without a key, right as 0: {', '.join(named)}" if found else ""


def dearest_words(plan: RunPlan) -> str:
    """Say how long a run takes without its dearest backends, case and threads; "" where that saves little."""
    from attnbench.cases.ids import parse_case, short_id
    from attnbench.runner.forecast import dearest_backend, dearest_case, one_thread_saves_s

    # Without its only backend a run measures nothing.
    backend = dearest_backend(plan) if len(plan.backends) > 1 else None
    case = dearest_case(plan.forecast)
    found = [(backend.name, backend.saves_s)] if backend else []
    found += [(f"case {short_id(parse_case(case.name))}", case.saves_s)] if case else []
    told = [(f"without {name}", saves_s) for name, saves_s in found]
    if saves_s := one_thread_saves_s(plan):
        told.append(("with --threads 1", saves_s))
    total_s = plan.forecast.total_s
    words = [f"{change} {span_words(total_s - saves_s)}" for change, saves_s in told]
    return f"instead of {span_words(total_s)}: {', '.join(words)}" if words else ""


def warn_of_busy_cores(cases: Iterable[Case]) -> None:
    """Warn on stderr if several threads will share cores with other work."""
    from attnbench.runner.machine import allowed_cpus, busy_warning, watch_cores

    threads = max((case.threads for case in cases if case.on_host), default=1)
    warning = busy_warning(threads, allowed_cpus(), watch_cores()) if threads > 1 else ""
    if warning:
        say(f"attnbench: {warning}", err=True)


def plan_words(foreseen: Forecast, options: Options) -> str:
    """Return the plan in one line: the number of cells, the time they take, the options that change it."""
    cases = foreseen.cases
    each_s = options.budget_s / options.repetitions
    each = span_words(each_s) if each_s >= 1 else f"{1000 * each_s:.{1 if each_s < 0.01 else 0}f} ms"
    parts = [
        (foreseen.start_s, "starting up"),
        (
            sum(case.timing_s for case in cases),
            f"timing ({count_of(options.repetitions, 'repetition')} of {each} a cell)",
        ),
        (sum(case.processes_s for case in cases), "starting processes"),
        (sum(case.checking_s for case in cases), "checking"),
        (sum(case.compiling_s for case in cases), "compiling"),
    ]
    words = f"{count_of(len(cases), 'case')}, {count_of(foreseen.cells, 'cell')}: "
    words += f"about {span_words(foreseen.total_s)}"
    if foreseen.cells:
        words += ": " + ", ".join(
            f"{span_words(seconds)} {what}" for seconds, what in parts if seconds >= 0.5
        )
        words += "; change it by --budget and --repetitions" if options.timed else ""
    slow = sum(case.cells for case in cases if case.over_budget)
    if slow:
        more = count_of(slow, "measurement")
        words += f"; {more} need more than the budget, as their calls are slow, and get it"
    return words


def _row(case: CaseForecast) -> dict[str, object]:
    names = ("timing_s", "processes_s", "checking_s", "compiling_s")
    seconds = {"about_s": case.total_s} | {name: getattr(case, name) for name in names}
    return {"case": case.case, "cells": case.cells} | {name: round(s, 1) for name, s in seconds.items()}
