"""``attnbench compare --ref``: two commits, or two environments, measured against each other now."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from attnbench.cli.options import decorated, running_options, selected, selection_filters
from attnbench.cli.output import note
from attnbench.cli.parameters import Positive, Whole

if TYPE_CHECKING:
    from attnbench.cli.options import Command
    from attnbench.types.compared import Compared

BUDGET_S = 0.3
"""Of each side of each backend on each case; more than a run gives, for what differs little."""

_SIDES = (
    click.option(
        "--ref", metavar="COMMIT", help="Measure live: the base side, any name that git knows for a commit."
    ),
    click.option(
        "--head", metavar="COMMIT", show_default="., your tree as it is",
        help="Measure live: the head side, against --ref.",
    ),
    click.option(
        "--ref-python", metavar="PYTHON",
        help="Measure live: the base side's interpreter, or the folder of its environment.",
    ),
    click.option("--head-python", metavar="PYTHON", help="Likewise of the head side."),
)  # fmt: skip

_MEASURING = (
    click.option(
        "--budget", "budget_s", type=Positive("seconds"), metavar="SECONDS",
        default=BUDGET_S, show_default=True,
        help="Live: measuring time of each side of each backend on each case.",
    ),
    click.option(
        "--sets", type=Whole(1), metavar="N", show_default="as a single difference needs",
        help="Live: fresh processes to measure each in.",
    ),
)  # fmt: skip

Live = dict[str, Any]


def live_options(command: Command) -> Command:
    """Give a command the options of a live comparison."""
    return decorated(
        selection_filters(running_options(decorated(command, _MEASURING), resumable=False)), _SIDES
    )


def is_live(chosen: Live) -> bool:
    """Whether a live comparison is asked for."""
    return any(chosen[name] is not None for name in ("ref", "head", "ref_python", "head_python"))


def refuse_live_options(ctx: click.Context, chosen: Live) -> None:
    """A usage error where stored sides are compared and something is said that is for live ones alone."""
    default = click.core.ParameterSource.DEFAULT
    said = [name for name in chosen if ctx.get_parameter_source(name) is not default]
    if said:
        option = next(p.opts[0] for p in ctx.command.params if p.name == said[0])
        raise click.UsageError(f"{option} is for sides that are measured now: give --ref with it", ctx)


def compared_now(words: tuple[str, ...], chosen: Live, delta_of: Callable[[str, str], float]) -> Compared:
    """Measure both sides, tell on stderr how it goes and where it's stored, and compare."""
    from attnbench.cli.finish import check_devices
    from attnbench.cli.options import options_of
    from attnbench.cli.plugins_here import load_plugins
    from attnbench.cli.progress import progress, warn_of_busy_cores
    from attnbench.compare.paired import compared_live
    from attnbench.live.measure import measure_live, measured_backends, sets_for
    from attnbench.live.sides import two_sides

    registry = load_plugins()
    selection = selected(registry, chosen | {"words": words}, timed=True)
    check_devices(selection)
    pythons = chosen["ref_python"], chosen["head_python"]
    ref, head = chosen["ref"], chosen["head"]
    if ref is not None and head is None and pythons[1] is None:
        head = "."
    with two_sides(ref, head, *pythons, registry, Path.cwd()) as sides:
        cells = len(measured_backends(sides, registry, chosen["backends"])) * len(selection.cases)
        options = options_of(chosen | {"sets": chosen["sets"] or sets_for(cells)}, timed=True)
        note(
            f"{sides.base.name} against {sides.head.name}: {cells} cells at most, {options.sets} sets of "
            f"{options.budget_s:g} s in all"
        )
        warn_of_busy_cores(selection.cases)
        with progress() as tell:
            run = measure_live(sides, selection, chosen["backends"], registry, options, chosen["out"], tell)
    note(f"stored in {run.path}")
    return compared_live(run, delta_of)
