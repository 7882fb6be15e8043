"""``attnbench choose``: a table of the backends that are proved to be faster than torch's own function."""

from __future__ import annotations

import shlex
from itertools import count
from os.path import expanduser
from pathlib import Path
from typing import TYPE_CHECKING

import click

from attnbench.cli.options import SHOWING, force_option
from attnbench.cli.output import note, say
from attnbench.cli.parameters import Whole
from attnbench.types.words import count_of, first_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnbench.choice.table import Decision, Recorded
    from attnbench.reports.run import Run
    from attnbench.types.record import Manifest

DEFAULT = "sdpa_flash"
LEAST_CALLS = 1000
"""A process of a few prompts makes so many calls of a case, and would be slower with what takes seconds to
compile.
"""
_MOST_NAMED = 3
_LEAST_PART = 0.01
"""For a smaller part of a program's time no longer run is advised."""
_NOT_AGAIN = (
    "backends", "budget_s", "repetitions", "out", "plan", "benchmark_json", *SHOWING,
)  # fmt: skip
"""The parameters of a run that a longer one, into a new file, does not share."""


@click.command("choose")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN...")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), default="choice.toml", show_default=True,
    help="The table to write.",
)  # fmt: skip
@click.option(
    "--default", "default", metavar="BACKEND", default=DEFAULT, show_default=True,
    help="The backend that is torch's function; it stays where none is proved faster.",
)  # fmt: skip
@click.option(
    "--on-device", "kind", metavar="NAME",
    help="Use only records of this kind of device. Needed if the runs have several.",
)  # fmt: skip
@click.option(
    "--calls", type=Whole(1), metavar="N", default=LEAST_CALLS, show_default=True,
    help="How many calls of a case a process makes at least: what compiles is chosen if they save what its "
    "first call takes.",
)  # fmt: skip
@force_option
def command(
    runs: tuple[Path, ...], out: Path, default: str, kind: str | None, calls: int, force: bool
) -> None:
    """For each case of runs, choose a backend that is proved faster than torch's own.

    If two measured lengths have the same choice, lengths between them get it too. Everything else keeps
    torch's function. The last lines say for which threads, layouts and lengths the table holds, and what to
    measure for more.

    \b
    attnbench run captured.toml --out results/mine.jsonl
    attnbench choose results/mine.jsonl --out choice.toml
    """
    from attnbench.api import loaded
    from attnbench.cases.ids import parse_case, short_id
    from attnbench.choice.held import held
    from attnbench.choice.table import (
        TABLE,
        alone,
        check_timed,
        decide,
        on_kind,
        recorded,
        saving,
        table_of,
        write_table,
    )
    from attnbench.plugins.registry import load_and_tell
    from attnbench.reports.answer import busy_text, most_saved_words, stage_words, threads_words, without
    from attnbench.reports.units import duration, duration_interval, reach
    from attnbench.results.targets import check_target, write_files

    check_target(out, TABLE, force=force)
    registry = load_and_tell()
    registry.backend(default)
    run = loaded([str(path) for path in runs], registry)
    for flaw in run.flaws:
        say(flaw, err=True)
    run = run if kind is None else on_kind(run, kind)
    decisions = decide(run, registry, default, calls)
    check_timed(run, default)
    table = table_of(run, decisions, default)
    _tell(decisions)
    parts = sorted(run.parts, key=lambda part: run.manifests[part.runs[-1]].started)
    answers = [part.answer for part in parts if part.answer is not None]
    program = recorded(run, default)
    if table.choices or any(one.may_be for one in decisions):
        for line in dict.fromkeys(filter(None, map(busy_text, answers))):
            say(line)
    lacks = without(list(dict.fromkeys(words for head in run.manifests for words in head.without)))
    for (stage, threads), (ms, interval) in saving(run, decisions, default).items():
        words = stage_words(stage, threads)
        of = f" of {words}{lacks}" if words else lacks
        bounds = "" if interval is None else f" {duration_interval(ms, interval.low, interval.high)}"
        far = None if interval is None else reach(ms, interval.low, interval.high)
        part = _part_words(None if program is None else program.part(ms, threads))
        say(f"all counted calls{of}: {duration(ms, far)}{bounds} less{part}, where calls are as the cases")
    if lone := alone(decisions):
        named = first_of([short_id(parse_case(case)) for case in lone], _MOST_NAMED, "; ")
        say(
            f"chosen for its own length alone, since a neighbouring one chose otherwise: {named}; lengths "
            "between keep torch's function, and no sum has these calls"
        )
    cases = [parse_case(one.case) for one in decisions]
    tried = {case.threads for case in cases if case.on_host}
    advice = _what_next(run, decisions, default, out, program)
    settled = not any(line.startswith("a longer run") for line in advice)
    for line in held(table.choices, lambda name: registry.backend(name).layout, tried, settled=settled):
        say(line)
    for line in advice:
        say(line)
    # Runs of one suite may say the same.
    for line in dict.fromkeys(line for answer in answers for line in threads_words(answer)):
        say(line)
    if words := most_saved_words(answers, default):
        beside = "; hold it against the time of your program, as attnbench capture -- python PROGRAM does"
        say(f"{words}{beside if program is None else _part_words(program.share)}")
    write_files({out: write_table(table).encode()})
    note(f"{count_of(len(table.choices), 'choice')} in {out}")


def _part_words(part: float | None) -> str:
    """Return in words which part of a program's time it is, behind a time; "" if nobody knows."""
    from attnbench.reports.units import percent

    if part is None:
        return ""
    words = percent(part) if part >= _LEAST_PART else f"less than {_LEAST_PART:.0%}"
    return f" ({words} of the program)"


def _what_next(
    run: Run, decisions: Sequence[Decision], default: str, out: Path, program: Recorded | None
) -> list[str]:
    """Return what to measure next: of several runs a command for each whose cases are still open.

    program: whose calls the runs counted; None if nobody knows how long it took.
    """
    from attnbench.cases.ids import parse_case
    from attnbench.choice.held import what_next

    left = {one.case: one for one in decisions}
    tried = {case.threads for one in decisions if (case := parse_case(one.case)).on_host}
    found: list[str] = []
    files: list[str] = []
    # Of a case that several runs have, the newest counts.
    for head in sorted(run.manifests, key=lambda one: one.started, reverse=True):
        own = [left.pop(case) for case in head.cases if case in left]
        if any(one.may_be for one in own) or len(run.manifests) == 1:
            file = _free_name([*run.paths, *map(Path, files)])
            budget_s = float(head.protocol.get("budget_s", 0))
            gain, part = _most_gained(own, head, program)
            if part is not None and 0 < part < _LEAST_PART:
                found.append(
                    "no longer run is worth it: what is not proved may save less than "
                    f"{_LEAST_PART:.0%} of the program as it was recorded"
                )
                continue
            found += what_next(own, default, _command(head), budget_s, file, gain, tried)
            files += [file] if any(one.may_be for one in own) else []
    if files:
        paths = [str(path) for path in run.paths]
        again = shlex.join(["attnbench", "choose", *paths, *files, "--out", str(out), "--force"])
        found.append(f"a longer run goes beside the others: {again}")
    return list(dict.fromkeys(found)) or what_next(decisions, default, [], 0.0)


def _free_name(taken: Sequence[Path]) -> str:
    """Return a name for the file of a longer run that no file here has."""
    names = (f"longer{number if number > 1 else ''}.jsonl" for number in count(1))
    return next(name for name in names if Path(name) not in taken and not Path(name).exists())


def _most_gained(
    decisions: Sequence[Decision], head: Manifest, program: Recorded | None
) -> tuple[str, float | None]:
    """Return what is not proved may gain at most, in words for each stage whose calls somebody counted.

    Behind it stands which part of the program's time that is; None if nobody knows.
    """
    from attnbench.reports.answer import is_of_step, stage_words
    from attnbench.reports.units import duration
    from attnbench.stats.answer import by_stage

    most_ms = {one.case: one.most_ms for one in decisions if one.may_be}
    found = []
    by_threads_ms: dict[int, float] = {}
    for (stage, threads), counts in by_stage(head.counts, head.stages).items():
        gained_ms = sum(count * most_ms.get(case, 0.0) for case, count in counts.items())
        by_threads_ms[threads] = by_threads_ms.get(threads, 0.0) + gained_ms
        part = None if program is None else program.part(gained_ms, threads)
        if gained_ms and (stage or part is not None):
            step = "a step of " if stage and is_of_step(stage) else ""
            of = f" of {step}{stage_words(stage, threads)}" if stage else ""
            found.append(f"{duration(gained_ms)}{of}{_part_words(part)}")
    parts = [program.part(ms, threads) for threads, ms in by_threads_ms.items()] if program else []
    words = f", at most {' and '.join(found)}" if found else ""
    if found and program is None:
        words += " (worth it if a step of your program is not much longer)"
    return words, max((part for part in parts if part is not None), default=None)


def _command(head: Manifest) -> list[str]:
    """Return the words of the command that made a run, without those of :data:`_NOT_AGAIN`.

    None for one that no command of this version made.
    """
    from attnbench.cli.run import command as run_command

    # Files have ~ for the home folder, which a shell does not expand in quotes.
    made = [expanduser(word) for word in head.command]  # noqa: PTH111  # most are no paths
    if made[:2] != ["attnbench", "run"]:
        return []
    try:
        given, _, _ = run_command.make_parser(click.Context(run_command)).parse_args(made[2:])
    except click.UsageError:
        return []
    if "resume" in given:
        return []
    words = [*made[:2], *(given["words"] or ())]
    for param in run_command.params:
        if isinstance(param, click.Option) and param.name in given and param.name not in _NOT_AGAIN:
            values = given[param.name] if param.multiple else [given[param.name]]
            words += [word for value in values for word in (param.opts[0], value)]
    return words


def _tell(decisions: Sequence[Decision]) -> None:
    """Print each decision with its gain or its reason."""
    from attnbench.cases.ids import parse_case, short_id
    from attnbench.choice.table import MUCH_COARSER
    from attnbench.reports.units import duration, number, ratio

    for one in decisions:
        if one.choice is None:
            words = f"torch's function stays: {one.why}"
        else:
            value, bounds = ratio(one.choice.gain, one.choice.low, one.choice.high)
            ties = [tie.choice.backend for tie in one.also if tie.choice is not None]
            rivals = f" (or {first_of(ties, _MOST_NAMED)})" if ties else ""
            words = f"{one.choice.backend}{rivals}: torch's function takes {value} {bounds} times as long"
            if one.errors is not None and one.errors >= MUCH_COARSER:
                words += f"; {one.choice.backend}'s RMS error is {number(one.errors)} times torch's"
            if one.first_ms:
                took, calls = duration(one.first_ms), one.first_ms / one.saved_ms
                words += f"; in each process its first call takes {took}, which {calls:,.0f} calls save"
        say(f"{short_id(parse_case(one.case))}: {words}")
