"""``attnbench check``: right or wrong, without timing; with ``--plugin`` alone, the cases of the kit."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from random import randrange
from typing import TYPE_CHECKING, Any, NoReturn

import click

from attnbench.cli.options import (
    CommonFirst,
    given_options,
    measuring_options,
    options_of,
    overrides_of,
    part_asked,
)  # fmt: skip
from attnbench.cli.output import note, own_format, print_run, record_format, say, view_of
from attnbench.cli.parameters import Whole, load_plugins, named_plugins
from attnbench.cli.progress import progress
from attnbench.cli.run import measure, plan_words, print_plan
from attnbench.types.errors import Interrupted, go_on_words
from attnbench.types.exit_status import UNJUDGED
from attnbench.types.words import span_words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from attnbench.cases.select import Overrides
    from attnbench.plugins.registry import Registry
    from attnbench.runner.progress import Moment, Progress
    from attnbench.testing.findings import Finding, Report
    from attnbench.testing.judge import Found, Plan
    from attnbench.types.record import Record


_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


class SearchTime(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on
    """The time of a search in seconds, 0 for none: ``90``, ``90s``, ``10m``, ``1h``, ``off``."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds."""
        if isinstance(value, float) or value == "off":
            return 0.0 if value == "off" else value
        found = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)([smh]?)", value)
        if found is None or float(found[1]) == 0:
            self.fail(f"{value!r}: give a time, as 90s, 10m or 1h, or off", param, ctx)
        return float(found[1]) * _UNITS[found[2]]


_search = click.option(
    "--search", type=SearchTime(), default=60.0, metavar="TIME|off",
    help="With --plugin alone: search so long for further cases on which a backend is wrong. Default: 1m.",
)  # fmt: skip
_search_seed = click.option(
    "--search-seed", type=Whole(0, 10**9), metavar="N", help="Search the same cases again. Default: new ones."
)
_replay = click.option(
    "--replay", metavar="CASE",
    help="With --plugin or one --backend: ask one case of a search again, and nothing else.",
)  # fmt: skip


@click.command("check", cls=CommonFirst)
@measuring_options()
@_search
@_search_seed
@_replay
@click.pass_context
def command(ctx: click.Context, /, **chosen: Any) -> None:
    """Check backends against the oracle without timing them. Without cases, use the suite smoke.

    With --plugin but neither cases nor --backend, attnbench chooses cases from what the plugin declares, and
    options such as --mask narrow them. If all are right, it searches for a minute for others on which the
    backend is wrong. The report then gives advice.

    \b
    attnbench check edges --backend flex
    attnbench check edges --plan
    attnbench check textbook --pass both
    attnbench check --plugin my_kernel.py
    attnbench check --plugin my_kernel.py --plan
    attnbench check --plugin my_kernel.py --dtype bfloat16 --pass both
    attnbench check --plugin my_kernel.py --search 10m
    """
    alone = named_plugins() and not any(chosen[name] for name in ("words", "backends", "resume"))
    search, seed, point = (chosen.pop(name) for name in ("search", "search_seed", "replay"))
    given = given_options(ctx, ("search", "search_seed"))
    if given and not alone:
        raise click.UsageError(f"{given[0]} is for --plugin without cases and --backend", ctx)
    held = given_options(ctx, ("batches", "storages", "encodings"))
    if held and alone:
        raise click.UsageError(f"{held[0]} needs cases, or a --backend, beside --plugin", ctx)
    if point is not None:
        if chosen["words"] or chosen["resume"] or len(chosen["backends"]) > 1:
            raise click.UsageError("--replay asks one case of one backend: give no others", ctx)
        _replay_point(ctx, point, chosen["backends"])
    if alone:
        _check_plugins(ctx, chosen, search, seed)
    else:
        measure(ctx, chosen, timed=False)


def _replay_point(ctx: click.Context, text: str, backends: Sequence[str]) -> NoReturn:
    """Ask one case of a search again; print the outcome, and exit by it.

    backends: the one that is named, or none where the plugin brings only one.
    """
    from attnbench.search.run import replayed
    from attnbench.testing.judge import brought_by
    from attnbench.trial.point import parse_point

    registry = load_plugins()
    if not backends and not named_plugins():
        raise click.UsageError("--replay needs the --plugin or the --backend to ask", ctx)
    for name in backends:
        registry.backend(name)
    name = backends[0] if backends else brought_by(named_plugins(), registry).only()
    outcome = replayed(parse_point(text), name, registry)
    say(": ".join(filter(None, (name, outcome.status, outcome.problem))))
    ctx.exit({"right": 0, "wrong": 1, "unjudged": UNJUDGED}.get(outcome.status, 3))


def _check_plugins(ctx: click.Context, chosen: dict[str, Any], seconds: float, seed: int | None) -> NoReturn:
    """Check all backends and rules that named plugins bring; print the report, and exit by it.

    seconds: of the search of each backend that is right on all cases; 0 for none.

    The report goes to stdout; in other formats than ``table`` the records do, and the report to stderr.

    Raises:
        BadInput: they bring neither.
    """
    from attnbench.api import loaded, start
    from attnbench.cases.ids import case_id, parse_case
    from attnbench.cases.select import Selection, shard_words
    from attnbench.plugins.calling import tell as tell_of_plugin
    from attnbench.testing.judge import brought_by, judging_plan, part_of, plan, reported

    registry = load_plugins()
    format_ = record_format(chosen["format_"], registry)
    found = brought_by(named_plugins(), registry)
    options = overrides_of(chosen)
    for rule in options.rules:
        registry.rule(rule)
    planned = plan(registry, found.backends, found.rules, options)
    selection = part_asked(Selection(tuple(map(parse_case, planned.cases(large=True)))), chosen)
    if words := shard_words(selection):
        note(words)
    if selection.shard is not None:
        planned = part_of(planned, {case_id(case) for case in selection.cases}, f"shard {selection.shard}")
    asked = planned.cases(large=True)
    if chosen["plan"]:
        _print_plan(chosen, planned, registry, seconds)
        ctx.exit(0 if asked else 3)
    run, interrupted = None, False
    if asked:
        running = judging_plan(asked, registry, options_of(chosen, timed=False), selection.shard)
        try:
            with progress(cases=tuple(asked), wrong_only=True) as tell:
                run = start(running, chosen["out"], telling_early(tell, partial(_mistake, registry)))
        except Interrupted as stop:
            run, interrupted = loaded(stop.path, registry), True
            if not run.records:
                raise
            left = len(asked) - len({record.case for record in run.records})
            note(
                f"interrupted: the report is of the cases checked so far, {left} are left; "
                f"{go_on_words(stop.path, live=False)}"
            )
    report = reported(planned, () if run is None else run.records, registry)
    # Dropout is judged by statistics of many calls, which a search has no time for.
    if seconds and not options.dropout and not interrupted:
        report, interrupted = _searched(report, found, seconds, seed, options)
    if run is not None:
        note(f"stored in {run.path}")
        if format_ != "table":
            print_run(run, format_, view_of(chosen))
    say(str(report), err=format_ != "table")
    for sentence in registry.notes:
        tell_of_plugin(sentence)
    ctx.exit(130 if interrupted else report.exit_code)


MOST_ASKED_EARLY = 5
"""Failures that are diagnosed while a check goes on, which waits meanwhile."""


def telling_early(tell: Progress, mistake: Callable[[Record], Finding | None]) -> Progress:
    """Return a function that shows a run, its first problem, and each further known mistake when it is found.

    A failure is diagnosed early if its case lacks a property of each case before: else it shows the same
    fault, most likely.

    mistake: the finding of a failure that is a known mistake, None for none.
    """
    from attnbench.testing.problems import problem_of

    asked: list[frozenset[str]] = []
    told: set[str] = set()

    def early(record: Record) -> list[str]:
        """Return lines on a failure, none where they are not new."""
        properties = _properties(record)
        if len(asked) == MOST_ASKED_EARLY or any(others <= properties for others in asked):
            return []
        asked.append(properties)
        found = mistake(record)
        new = found is not None and found.mistake not in told
        lines = [problem_of(record)]
        if found is not None:
            told.add(found.mistake)
            lines.append(found.do)
        if len(asked) == 1:
            return [*lines, "(checking goes on; Ctrl-C ends it with the diagnosis so far)"]
        return lines if new else []

    def shown(moment: Moment) -> None:
        wrong = next((record for record in moment.records if problem_of(record)), None)
        if wrong is not None and moment.cases > 1:
            moment = replace(moment, problem="\n  ".join(early(wrong)))
        tell(moment)

    return shown


def _properties(record: Record) -> frozenset[str]:
    """Return the backend and the properties of its case that many faults need."""
    from attnbench.cases.ids import parse_case

    case = parse_case(record.case)
    group = ["group"] if case.group > 1 else []
    backward = [case.pass_] if case.pass_ != "forward" else []
    return frozenset([record.backend, *(word.word for word in case.mask.words), *group, *backward])


def _mistake(registry: Registry, record: Record) -> Finding | None:
    from attnbench.testing.judge import advice_on

    found = advice_on([record], [record.backend], registry, quick=True)
    return next((one for one in found if one.mistake), None)


def _print_plan(chosen: dict[str, Any], planned: Plan, registry: Registry, seconds: float) -> None:
    """Print how long the cases and the search take; the cases with --details or as data."""
    from attnbench.testing.judge import judging_plan

    asked, running = planned.cases(large=True), options_of(chosen, timed=False)
    for name, why in planned.unavailable.items():
        note(f"{name}: nothing can be checked: {why}")
    if not asked:
        return
    format_ = own_format(chosen["format_"], "--plan prints no records")
    judged = judging_plan(asked, registry, running)
    if format_ != "table" or chosen["details"]:
        print_plan(judged, running, format_)
    else:
        say(f"{plan_words(judged.forecast, running)}; --details lists the cases")
    if seconds:
        total_s = judged.forecast.total_s + seconds * len(planned.choices)
        say(
            f"then a search of {span_words(seconds)} for each right backend, {span_words(total_s)} in all; "
            "--search off leaves it out",
            err=format_ != "table",
        )


def _searched(
    report: Report, found: Found, seconds: float, seed: int | None, options: Overrides
) -> tuple[Report, bool]:
    """Search for cases on which backends are wrong that are right so far.

    Return the report of all, and whether Ctrl-C ended the search.
    """
    from attnbench.search.report import with_searches
    from attnbench.search.run import search

    done, interrupted = [], False
    wrong = {finding.backend for finding in report.findings} | {one.backend for one in report.unavailable}
    for name in found.backends:
        if name not in wrong:
            chosen = randrange(10**9) if seed is None else seed
            note(f"searching {name} for {seconds:.0f} s (seed {chosen}); --search off leaves it out")
            try:
                done.append(search(name, found.registry, seconds, chosen, options))
            except KeyboardInterrupt:
                note("the search was interrupted: the report is of what was checked before")
                interrupted = True
                break
    return with_searches(report, done, named_plugins(), several=len(found.backends) > 1), interrupted
