"""``attnbench rules``: rules compared by behaviour."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from attnbench.cli.options import format_option
from attnbench.cli.output import colourful, note, print_listing, print_text, width
from attnbench.cli.parameters import NameOf, Positive, Whole
from attnbench.cli.plugins_here import load_plugins, plugin_option

if TYPE_CHECKING:
    from attnbench.types.formats import Format
    from attnbench.worked.behaviour import Behaviour


@click.command("rules")
@click.argument("names", nargs=-1, type=NameOf("rules"), metavar="[RULE]...")
@click.option(
    "--width", "widths", type=Whole(1), multiple=True, metavar="D", show_default="4, 16, 64, 256",
    help="Features of queries and keys; repeatable.",
)  # fmt: skip
@click.option(
    "--gain", "gains", type=Positive("times"), multiple=True, metavar="TIMES", show_default="0.25, 1, 4, 16",
    help="Factor on queries, to show the effect of the range of logits; repeatable.",
)  # fmt: skip
@click.option("--keys", type=Whole(2), default=32, show_default=True, metavar="N", help="Keys of each query.")
@click.option(
    "--seed", type=Whole(0), default=0, show_default=True, metavar="N", help="Seed of random numbers."
)
@click.option(
    "--plot", type=click.Path(path_type=Path), metavar="FILE.png", help="Also draw charts; .png or .svg."
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
    """Compare rules by what they do to weights: entropy, largest weight, gradient, cost.

    Queries and keys have independent standard normal features. An unscaled dot product saturates as D grows;
    a scaled one does not. The tables show means over 8 queries of each of 16 heads, and the median of the
    gradient's norm. Each head has its own keys and parameters. Entropy excludes the share of a sink.

    \b
    attnbench rules
    attnbench rules dot scaled_dot --plot why-the-scale.png
    """
    from attnbench.plugins.calling import tell
    from attnbench.types.errors import BadInput, PluginFailed
    from attnbench.worked.behaviour import (
        GAINS,
        WIDTHS,
        behaviour_rows,
        behaviour_spec,
        behaviour_text,
        behaviours,
        shown_width,
    )  # fmt: skip
    from attnbench.worked.picture import check_picture, draw
    from attnbench.worked.steps import guarded

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
        raise BadInput(f"{keys} keys at these widths: not supported by {' and '.join(wanted)}")
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
