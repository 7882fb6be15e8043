"""``attnbench rules``: rules compared by behaviour."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from attnbench.cli.options import format_option
from attnbench.cli.output import colourful, note, print_listing, print_text, width
from attnbench.cli.parameters import RULE, Positive, Whole, load_plugins, plugin_option

if TYPE_CHECKING:
    from attnbench.explain.behaviour import Behaviour
    from attnbench.types.formats import Format


@click.command("rules")
@click.argument("names", nargs=-1, type=RULE, metavar="[RULE]...")
@click.option(
    "--width", "widths", type=Whole(1), multiple=True, metavar="D", show_default="4, 16, 64, 256",
    help="Number of features of queries and keys. Repeatable.",
)  # fmt: skip
@click.option(
    "--gain", "gains", type=Positive(), multiple=True, metavar="TIMES", show_default="0.25, 1, 4, 16",
    help="Factor on the queries, which widens the range of the logits. Repeatable.",
)  # fmt: skip
@click.option("--keys", type=Whole(2), default=32, show_default=True, metavar="N", help="Number of keys.")
@click.option(
    "--seed", type=Whole(0), default=0, show_default=True, metavar="N", help="Seed of random numbers."
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE.png",
    help="Also draw charts to this .png or .svg.",
)
@plugin_option
@format_option
def command(
    *,
    names: tuple[str, ...],
    widths: tuple[int, ...],
    gains: tuple[float, ...],
    keys: int,
    seed: int,
    plot: Path | None,
    format_: Format,
) -> None:
    """Compare rules by their effect on weights: entropy, largest weight, gradient; and by their cost.

    Queries and keys have independent standard normal features. An unscaled dot product saturates as D grows;
    a scaled one does not. The tables show means over 8 queries in each of 16 heads, and the median norm of
    the gradient. Each head has its own keys and parameters. The entropy leaves out the share of a sink.

    \b
    attnbench rules
    attnbench rules dot scaled_dot --plot why-the-scale.png
    """
    from attnbench.explain.behaviour import (
        GAINS,
        WIDTHS,
        behaviour_rows,
        behaviour_spec,
        behaviour_text,
        behaviours,
        shown_width,
    )  # fmt: skip
    from attnbench.explain.picture import check_picture, draw
    from attnbench.explain.steps import guarded
    from attnbench.plugins.calling import tell
    from attnbench.types.errors import BadInput, PluginFailed

    if plot is not None:
        check_picture(plot)
    registry = load_plugins()
    wanted = [registry.rule(name).name for name in dict.fromkeys(names or registry.rules)]

    def of_rules(widths: Sequence[int], gains: Sequence[float]) -> list[Behaviour]:
        found: list[Behaviour] = []
        for name in list(wanted):
            entry = registry.rules[name]
            each = behaviours([entry.record], widths, gains, keys=keys, seed=seed)
            try:
                found += guarded(entry, list, each)
            except PluginFailed as failure:
                if names:
                    raise
                tell(str(failure).removeprefix("plugin "))
                wanted.remove(name)
        return found

    by_width = of_rules(tuple(dict.fromkeys(widths)) or WIDTHS, (1.0,))
    if not by_width:
        asked = ", ".join(map(str, widths or WIDTHS))
        raise BadInput(f"{' and '.join(wanted)} supports none of the widths {asked} with {keys} keys")
    at = shown_width(row.D for row in by_width)
    by_gain = of_rules((at,), tuple(dict.fromkeys(gains)) or GAINS)
    if format_ == "table":
        print_text(behaviour_text(by_width, by_gain, width=width(), colour=colourful()))
    else:
        rows = behaviour_rows([*by_width, *by_gain])
        print_listing(rows, list(rows[0]), format_)
    if plot is not None:
        draw(behaviour_spec(by_width, by_gain), plot)
        note(f"drawn in {plot}")
