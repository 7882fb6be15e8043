"""``attnbench selftest``: how often attnbench's verdicts are right on this machine, measured."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from attnbench.cli.group import NamingGroup
from attnbench.cli.options import force_option
from attnbench.cli.output import colourful, note, width
from attnbench.cli.parameters import OneOf, Positive, Whole
from attnbench.cli.progress import progress
from attnbench.cli.run import check_device
from attnbench.results.targets import FileKind, check_target, write_files
from attnbench.runner.options import CHECK_PARTS
from attnbench.types.device import DEVICES
from attnbench.types.errors import BadInput
from attnbench.types.words import unknown_name

if TYPE_CHECKING:
    from attnbench_selftest.rates import Scored

FULL_SEEDS = 3
FULL_LIVE_TRIALS = 14
"""Comparisons: 560 cells, of which 210 have a planted slowdown if any has."""

EPILOG = (
    "Exit status: 0 nothing refuted; 1 the data refute a target, a wrong backend passed, or a right one was "
    "refused; 2 wrong usage; 3 something could not be measured; 130 ended by Ctrl-C, after scoring what was "
    "measured until then."
)


_FINDINGS = FileKind("findings of selftest", b'{\n "selftest": "')
_TABLES = FileKind("tables of selftest", b"<!-- Written by attnbench selftest. -->")


def _path_option(name: str, target: str, words: str) -> Callable[[Any], Any]:
    kind = click.Path(path_type=Path, dir_okay=False)
    return click.option(name, target, type=kind, metavar="FILE", help=words)


_KEEP = click.option(
    "--keep", type=click.Path(path_type=Path), metavar="DIR", help="Keep the runs' files in this folder."
)
_JSON = _path_option("--json", "json_file", "Write everything found to this file.")

_DEVICE = click.option("--device", type=OneOf("device", tuple(DEVICES)), default="cpu", show_default=True)

_OPTIONS = (
    click.option("--full", is_flag=True, help="As many trials as show the targets."),
    click.option(
        "--length", "lengths", multiple=True, type=OneOf("length", ("16", "512", "2048")),
        help="Only cases of this length; repeatable. 2048 has slow calls and is measured only if named.",
    ),
    click.option(
        "--budget", type=Positive("seconds"), metavar="SECONDS",
        help="Measuring time of each candidate in a trial, instead of the target's.",
    ),
    click.option(
        "--repetitions", type=Whole(1), metavar="N",
        help="Repetitions of a trial, instead of those for the budget.",
    ),
    click.option("--trials", type=Whole(1), metavar="N", help="Trials of each kind."),
    _DEVICE,
    click.option("--stress", is_flag=True, help="Keep every core busy meanwhile, with spinning processes."),
    _KEEP,
    _JSON,
    force_option,
)  # fmt: skip


def _rate_options(function: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@click.group("selftest", cls=NamingGroup, epilog=EPILOG)
def command() -> None:
    """Measure how often attnbench's verdicts are right on this machine.

    Candidates with known answers are measured like any run and scored. The rules of other tools are scored on
    the same samples (attnbench list verdicts). A target is refuted by data that a build which meets it
    almost never gives.

    \b
    attnbench selftest aa                    identical code: never slower
    attnbench selftest power --length 16     planted slowdowns are found
    attnbench selftest aa --stress --json found.json
    attnbench selftest judge                 wrong backends are refused
    """


_LIVE = click.option(
    "--live", is_flag=True, help="Compare commits of a repository instead, as compare --ref does."
)


@command.command("aa", short_help="Identical code: called slower in no cell, proved the same in most.")
@_rate_options
@_LIVE
@click.pass_context
def aa(ctx: click.Context, /, live: bool, **chosen: Any) -> None:
    """Identical candidates are called slower in at most 0.2 % of cells and proved the same in 95 %.

    Several copies of one kernel, each against the first: at L=16 within 0.5 s, at L=512 within 2 s. At L=2048
    the only target is not to be called slower, in the nine repetitions that a run has by default.

    \b
    attnbench selftest aa --length 16 --trials 2
    attnbench selftest aa --live --trials 5

    With --live, eight backends of two identical commits are compared; --trials is the number of comparisons.
    """
    if live:
        _measure_live(ctx, _Rates(**chosen), planted=False)
    _measure(ctx, "aa", _Rates(**chosen))


@command.command("power", short_help="Planted slowdowns of 3 and 5 % are found.")
@_rate_options
@_LIVE
@click.pass_context
def power(ctx: click.Context, /, live: bool, **chosen: Any) -> None:
    """Planted slowdowns are found: 5 % in 99 % of cells and 3 % in 95 %, within small budgets; if calls are
    slow, 10 % in 95 %. Only one of 40 cells differs (with slow calls, one of the 8 of a case).

    They do real extra work. A run before calibrates how much, once for each length (on a GPU each is
    calibrated when it is prepared); the realised slowdown is printed beside.

    \b
    attnbench selftest power --length 512
    attnbench selftest power --live --trials 5

    With --live, three of eight backends of the second commit take 3, 5 and 10 % longer, to be found in
    80, 95 and 99 % of cells. --trials is the number of comparisons.
    """
    if live:
        _measure_live(ctx, _Rates(**chosen), planted=True)
    _measure(ctx, "power", _Rates(**chosen))


@dataclass(frozen=True)
class _Rates:
    """The options of ``aa`` and ``power``."""

    full: bool
    lengths: tuple[str, ...]
    budget: float | None
    repetitions: int | None
    trials: int | None
    device: str
    stress: bool
    keep: Path | None
    json_file: Path | None
    force: bool


def _measure(ctx: click.Context, name: str, options: _Rates) -> NoReturn:
    """Measure, score, print; exits."""
    from attnbench_selftest.cells import Peers
    from attnbench_selftest.measure import Session, busy_cores, registry
    from attnbench_selftest.plan import ORDINARY, Choices, aa_parts, power_parts
    from attnbench_selftest.rates import exit_code, last_line
    from attnbench_selftest.scores import score_aa, score_power
    from attnbench_selftest.tables import rate_text

    check_device(options.device)
    if options.json_file is not None:
        check_target(options.json_file, _FINDINGS, force=options.force)
    chosen = tuple(int(length) for length in dict.fromkeys(options.lengths)) or ORDINARY
    choices = Choices(
        options.full, chosen, options.device, options.budget, options.repetitions, options.trials
    )
    plan, score = {"aa": (aa_parts, score_aa), "power": (power_parts, score_power)}[name]
    parts = plan(choices)
    found = registry()
    for fault in found.faults:
        click.echo(f"attnbench: plugin {fault}", err=True)
    peers = Peers(entry.record for entry in found.verdict_rules.values())
    note(f"selftest {name}: about {_duration(sum(part.seconds for part in parts))}")
    with ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="attnbench-")))
        session = Session(folder, found, stack.enter_context(progress()))
        with busy_cores() if options.stress else nullcontext():
            measured = session.measure(parts)
        as_planned = options.budget is None and options.repetitions is None and not options.stress
        scored = score(measured, as_planned, peers)
        facts = session.facts()
    for peer, fault in peers.faults.items():
        click.echo(f"attnbench: verdict rule {peer} ({found.verdict_rules[peer].source}) {fault}", err=True)
    for failure in session.failures():
        click.echo(f"attnbench: {failure}", err=True)
    verdict = last_line(name, scored.findings)
    click.echo(rate_text(scored, facts, width=width(), colour=colourful()))
    click.echo(verdict)
    if options.json_file is not None:
        more = {
            "interrupted": session.interrupted,
            **facts,
            "candidates": list(session.failures()),
            "rules_left_out": peers.faults,
        }
        _write(ctx, options.json_file, name, scored, verdict, more)
    if session.interrupted:
        click.echo("attnbench: interrupted; what was measured until then is scored", err=True)
    ctx.exit(130 if session.interrupted else exit_code(scored.findings))


def _measure_live(ctx: click.Context, options: _Rates, *, planted: bool) -> NoReturn:
    """Compare commits, score the cells, print; exits."""
    from attnbench_selftest.live import CASES, QUICK_CASES, compare_commits, score_live
    from attnbench_selftest.measure import busy_cores
    from attnbench_selftest.rates import exit_code, last_line
    from attnbench_selftest.tables import live_text

    if options.lengths or options.device != "cpu":
        raise BadInput("--live takes neither --length nor --device: its cases are fixed, on the CPU")
    if options.json_file is not None:
        check_target(options.json_file, _FINDINGS, force=options.force)
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    words = [*(("--budget", str(options.budget)) if options.budget else ())]
    words += [*(("--repetitions", str(options.repetitions)) if options.repetitions else ())]
    count, cases = (FULL_LIVE_TRIALS, CASES) if options.full else (1, CASES[:QUICK_CASES])
    with busy_cores() if options.stress else nullcontext():
        comparisons = compare_commits(
            options.trials or count, cases, words, note, options.keep, planted=planted
        )
    scored, name = score_live(comparisons), "power --live" if planted else "aa --live"
    verdict = last_line(name, scored.findings)
    click.echo(live_text(scored, comparisons, width=width(), colour=colourful()))
    click.echo(verdict)
    if options.json_file is not None:
        more = {"comparisons": [asdict(one) for one in comparisons]}
        _write(ctx, options.json_file, name, scored, verdict, more)
    ctx.exit(exit_code(scored.findings))


def _write(
    ctx: click.Context, path: Path, name: str, scored: Scored, verdict: str, more: Mapping[str, Any]
) -> None:
    """Write the findings of a command, its options and more facts as JSON."""
    from attnbench import __version__
    from attnbench_selftest.rates import exit_code

    everything = {
        "selftest": name,
        "attnbench": __version__,
        "options": {key: str(v) if isinstance(v, Path) else v for key, v in ctx.params.items()},
        "verdict": verdict,
        "refuted": bool(exit_code(scored.findings)),
        **asdict(scored),
        **more,
    }
    write_files({path: (json.dumps(everything, indent=1, ensure_ascii=False) + "\n").encode()})


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


@command.command("judge", short_help="Wrong backends are refused, every one, and no right one is.")
@click.option("--full", is_flag=True, help="More cases of each, in three seeds: up to ten minutes.")
@click.option("--seeds", type=Whole(1), metavar="N", help="The number of selections of cases.")
@click.option(
    "--first", type=Whole(1), metavar="N", default=1, show_default=True, help="Number of the first seed."
)
@click.option(
    "--without",
    multiple=True,
    type=OneOf("check", CHECK_PARTS),
    metavar="CHECK",
    help=f"Leave a check out, to see its worth; repeatable: {', '.join(CHECK_PARTS)}.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="Judge only this backend, by its name without wrong_ or right_; repeatable.",
)
@_DEVICE
@_KEEP
@_JSON
@force_option
@_path_option("--markdown", "markdown_file", "Write the tables to this file.")
@click.pass_context
def judge(
    ctx: click.Context,
    /,
    full: bool,
    seeds: int | None,
    first: int,
    without: tuple[str, ...],
    only: tuple[str, ...],
    device: str,
    keep: Path | None,
    json_file: Path | None,
    force: bool,
    markdown_file: Path | None,
) -> None:
    """Every wrong backend is refused, and no right one.

    Some two hundred wrong backends and some dozens of right ones are checked as any backend is, on cases in
    which their mistakes can show. Every two rules, masks, dtypes, lengths, layers and passes meet in some
    case. The tables count which check refused which backend.

    Without --full: one seed, one case for each backend, about a minute.

    \b
    attnbench selftest judge
    attnbench selftest judge --full --json judged.json
    attnbench selftest judge --device cuda
    """
    from attnbench_selftest.judge import SECONDS, count, finding_text, judge_mutants
    from attnbench_selftest.judge_plan import BRIEF, FULL
    from attnbench_selftest.mutants import MUTANTS
    from attnbench_selftest.tables import judge_markdown, judge_text

    check_device(device)
    for path, kind in ((json_file, _FINDINGS), (markdown_file, _TABLES)):
        if path is not None:
            check_target(path, kind, force=force)
    names = {mutant.name for mutant in MUTANTS}
    if unknown := sorted(set(only) - names):
        raise BadInput(unknown_name("mutant", unknown[0], sorted(names)))
    # Some need a CPU: they read memory by its address.
    mutants = [one for one in MUTANTS if device in one.devices and (not only or one.name in only)]
    numbers = range(first, first + (seeds or (FULL_SEEDS if full else 1)))
    extent = FULL if full else BRIEF
    note(f"selftest judge: about {SECONDS[extent] * len(numbers):.0f} s on two quiet cores")
    with ExitStack() as stack:
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="attnbench-")))
        folder.mkdir(parents=True, exist_ok=True)
        tell = stack.enter_context(progress())
        finding = judge_mutants(extent, numbers, tuple(dict.fromkeys(without)), folder, tell, device, mutants)
    found = count(mutants, finding.outcomes)
    click.echo(judge_text(found, finding.facts, width=width(), colour=colourful()))
    click.echo(found.last_line)
    contents: dict[Path, bytes] = {}
    if json_file is not None:
        contents[json_file] = finding_text(finding, found).encode()
    if markdown_file is not None:
        contents[markdown_file] = _TABLES.mark + f"\n\n{judge_markdown(found, finding.facts)}".encode()
    write_files(contents)
    ctx.exit(0 if found.fine else 1)
