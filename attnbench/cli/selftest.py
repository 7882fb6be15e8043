"""``attnbench selftest``: how often attnbench's verdicts are right on this machine, measured."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from attnbench.cli.finish import check_device
from attnbench.cli.group import NamingGroup
from attnbench.cli.loudness import note
from attnbench.cli.output import colourful, width
from attnbench.cli.parameters import OneOf, Positive, Whole
from attnbench.cli.progress import progress
from attnbench.cli.selftest_judge import judge
from attnbench.types.case import DEVICES
from attnbench.types.errors import BadInput

if TYPE_CHECKING:
    from attnbench.selftest.findings import Scored
    from attnbench.selftest.session import Session

SWITCHES = ("pinning", "put-first", "fork-order", "balance", "preemption", "allocator", "lockstep")

_OPTIONS = (
    click.option("--full", is_flag=True, help="As many trials as show the targets; says how long it takes."),
    click.option(
        "--length", "lengths", multiple=True, type=OneOf("length", ("16", "512")),
        help="Only cases of this length; repeatable.",
    ),
    click.option(
        "--budget", type=Positive("seconds"), metavar="SECONDS",
        help="Measuring time of each contender in a trial, instead of the target's.",
    ),
    click.option(
        "--sets", type=Whole(1), metavar="N", help="Sets of a trial, instead of those for the budget."
    ),
    click.option(
        "--trials", type=Whole(1), metavar="N", help="Trials (of coverage: launches) of each kind."
    ),
    click.option("--device", type=OneOf("device", DEVICES), default="cpu", show_default=True),
    click.option("--stress", is_flag=True, help="Keep every core busy meanwhile, with spinning processes."),
    click.option(
        "--without", multiple=True, type=OneOf("part of the protocol", SWITCHES), metavar="PART",
        help=f"Leave a part of the protocol out, to see what it is worth; repeatable: {', '.join(SWITCHES)}.",
    ),
    click.option(
        "--keep", type=click.Path(path_type=Path), metavar="DIR", help="Keep the runs' files in this folder."
    ),
    click.option(
        "--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
        help="Write everything found to this file.",
    ),
)  # fmt: skip

EPILOG = (
    "Exit status: 0 nothing refuted; 1 the data refute a target; 2 wrong usage; 3 something could not be "
    "measured; 130 ended by Ctrl-C, after what was measured until then has been scored."
)


@click.group("selftest", cls=NamingGroup, epilog=EPILOG)
def command() -> None:
    """Measure how often attnbench's verdicts are right on this machine.

    Contenders whose answer is known are measured as any run is, and scored; the rules of other tools are
    scored beside, on the same samples (attnbench list verdicts). A target is refuted where the data are next
    to impossible for a build that meets it; how often that happens to one that does is computed and printed.

    \b
    attnbench selftest aa                    identical code: never slower
    attnbench selftest power --length 16     planted slowdowns are found
    attnbench selftest aa --stress --json found.json
    attnbench selftest judge                 wrong backends are refused
    """


command.add_command(judge)


def _selftest(name: str, summary: str) -> Callable[[Callable[..., None]], click.Command]:
    """Make a command of a function whose docstring is its help."""

    def make(function: Callable[..., None]) -> click.Command:
        for option in reversed(_OPTIONS):
            function = option(function)
        return command.command(name, short_help=summary)(function)

    return make


@_selftest("aa", "Identical code: called slower in no cell, proved the same in most.")
@click.pass_context
def aa(ctx: click.Context, /, **chosen: Any) -> None:
    """Identical contenders are called slower in at most 0.2 % of cells and proved the same in 95 %.

    Several copies of one kernel, each against the first: at L=16 within 0.5 s, at L=512 within 2 s, and at
    half and a quarter of that from the same samples.

    \b
    attnbench selftest aa --length 16 --trials 2
    """
    _go(ctx, "aa", **chosen)


@_selftest("exact", "The sign test fires as often as it must, no more and no less.")
@click.pass_context
def exact(ctx: click.Context, /, **chosen: Any) -> None:
    """Between identical contenders the sign test fires at its exact discrete rate: 3.91 % of 9 sets at 5 %.

    All pairs of 14 copies in tiny sets are trials; cases, which share no contender, count as independent.

    \b
    attnbench selftest exact --full
    """
    _go(ctx, "exact", **chosen)


@_selftest("power", "Planted slowdowns of 3 and 5 % are found.")
@click.pass_context
def power(ctx: click.Context, /, **chosen: Any) -> None:
    """Planted slowdowns are found: 5 % in 99 % of cells and 3 % in 95 %, within small budgets.

    They run real extra work. How much is worked out from a run made before, once for each length (on a
    GPU when they are prepared); what it came to is printed beside. Scored at the whole budget and, from the
    same samples, at a quarter.

    \b
    attnbench selftest power --length 512
    """
    _go(ctx, "power", **chosen)


@_selftest("coverage", "Printed intervals hold what other launches find.")
@click.pass_context
def coverage(ctx: click.Context, /, **chosen: Any) -> None:
    """The printed interval of a ratio holds the pooled value of other launches in 93 % or more.

    Printed, of the nine sets that attnbench run has by default, is their whole range. That it holds more
    than 97 % is scored too, and fails nothing.

    A few backends that differ are measured in several launches, each from the start.

    \b
    attnbench selftest coverage --trials 12
    """
    _go(ctx, "coverage", **chosen)


@_selftest("overhead", "A reported time is an inline loop's, to 20 ns a call.")
@click.pass_context
def overhead(ctx: click.Context, /, **chosen: Any) -> None:
    """What is reported of a call is above an inline loop's time by 20 ns at most.

    A call that does nothing, right since attention over one key is its value, takes turns with a contender
    that makes 1000 of them in an inline loop; the same with a call of tens of microseconds.

    \b
    attnbench selftest overhead
    """
    _go(ctx, "overhead", **chosen)


def _go(
    ctx: click.Context,
    name: str,
    *,
    full: bool,
    lengths: tuple[str, ...],
    budget: float | None,
    sets: int | None,
    trials: int | None,
    device: str,
    stress: bool,
    without: tuple[str, ...],
    keep: Path | None,
    json_file: Path | None,
) -> NoReturn:
    """Measure, score, print; exits."""
    from attnbench.selftest.commands import conduct, estimated_s, terms_of
    from attnbench.selftest.experiments import LENGTHS, Choices
    from attnbench.selftest.findings import exit_code, last_line
    from attnbench.selftest.peers import Peers
    from attnbench.selftest.session import Session, registry
    from attnbench.selftest.stress import busy_cores
    from attnbench.selftest.table import tables

    check_device(device)
    if json_file is not None and not json_file.absolute().parent.is_dir():
        raise BadInput(f"can't write {str(json_file)!r}: there is no folder {str(json_file.parent)!r}")
    chosen_lengths = tuple(int(length) for length in dict.fromkeys(lengths)) or LENGTHS
    choices = Choices(full, chosen_lengths, device, budget, sets, trials)
    found = registry()
    for fault in found.faults:
        click.echo(f"attnbench: plugin {fault}", err=True)
    peers = Peers(entry.record for entry in found.verdict_rules.values())
    note(f"selftest {name}: about {_duration(estimated_s(name, choices))}")
    terms = terms_of(choices, without, stress)
    with ExitStack() as stack:
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="attnbench-")))
        tell = stack.enter_context(progress())
        session = Session(folder, found, without, tell)
        with busy_cores() if stress else ExitStack():
            scored = conduct(name, choices, session, terms, peers)
        facts = session.facts()
    for peer, fault in peers.faults.items():
        click.echo(f"attnbench: verdict rule {peer} ({found.verdict_rules[peer].source}) {fault}", err=True)
    for told in session.notes():
        click.echo(f"attnbench: {told}", err=True)
    click.echo(tables(scored, facts, width=width(), colour=colourful()))
    click.echo(last_line(name, scored.findings))
    if json_file is not None:
        _write(json_file, name, ctx.params, scored, session, facts, peers.faults)
    if session.interrupted:
        click.echo("attnbench: interrupted; what was measured until then is scored", err=True)
    ctx.exit(130 if session.interrupted else exit_code(scored.findings))


def _write(
    path: Path,
    name: str,
    options: dict[str, Any],
    scored: Scored,
    session: Session,
    facts: dict[str, Any],
    faults: dict[str, str],
) -> None:
    from dataclasses import asdict

    from attnbench import __version__
    from attnbench.selftest.findings import exit_code, last_line

    everything = {
        "selftest": name,
        "attnbench": __version__,
        "options": {key: str(value) if isinstance(value, Path) else value for key, value in options.items()},
        "verdict": last_line(name, scored.findings),
        "refuted": bool(exit_code(scored.findings)),
        "interrupted": session.interrupted,
        **asdict(scored),
        **facts,
        "contenders": list(session.notes()),
        "rules_left_out": faults,
    }
    path.write_text(json.dumps(everything, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
