"""``attnbench rules``: rules compared by behaviour."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from attnbench.cli.loudness import note
from attnbench.cli.names import NameOf
from attnbench.cli.options import format_option
from attnbench.cli.output import colourful, print_listing, print_text, width
from attnbench.cli.parameters import Positive, Whole
from attnbench.cli.plugins_here import load_plugins, plugin_option

if TYPE_CHECKING:
    from attnbench.types.formats import Format

_GAINS_AT = 64


@click.command("rules")
@click.argument("names", nargs=-1, type=NameOf("rules"), metavar="[RULE]...")
@click.option(
    "--width", "widths", type=Whole(1), multiple=True, metavar="D", show_default="4, 16, 64, 256",
    help="Features of queries and keys; repeatable.",
)  # fmt: skip
@click.option(
    "--gain", "gains", type=Positive("times"), multiple=True, metavar="TIMES", show_default="0.25, 1, 4, 16",
    help="What queries are multiplied by, for the effect of the logits' range; repeatable.",
)  # fmt: skip
@click.option("--keys", type=Whole(2), default=32, show_default=True, metavar="N", help="Keys of each query.")
@click.option("--seed", type=Whole(0), default=0, show_default=True, metavar="N", help="Of what is drawn.")
@click.option(
    "--plot", type=click.Path(path_type=Path), metavar="FILE.png", help="Draw it as well; .png or .svg."
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

    On queries and keys with independent standard normal features: an unscaled dot product saturates as D
    grows, a scaled one doesn't.

    \b
    attnbench rules
    attnbench rules dot scaled_dot --plot why-the-scale.png
    """
    from attnbench.worked.behaviour import GAINS, WIDTHS, behaviours
    from attnbench.worked.behaviour_text import behaviour_rows, behaviour_spec, behaviour_text
    from attnbench.worked.picture import check_picture, draw

    if plot is not None:
        check_picture(plot)
    registry = load_plugins()
    rules = [registry.rule(name) for name in dict.fromkeys(names or registry.rules)]
    widths = tuple(dict.fromkeys(widths)) or WIDTHS
    at = _GAINS_AT if _GAINS_AT in widths else widths[-1]
    by_width = list(behaviours(rules, widths, keys=keys, seed=seed))
    by_gain = list(behaviours(rules, (at,), tuple(dict.fromkeys(gains)) or GAINS, keys=keys, seed=seed))
    if format_ == "table":
        print_text(behaviour_text(by_width, by_gain, width=width(), colour=colourful()))
    else:
        rows = behaviour_rows([*by_width, *by_gain])
        print_listing(rows, list(rows[0]) if rows else (), format_)
    if plot is not None:
        draw(behaviour_spec(by_width, by_gain), plot)
        note(f"drawn in {plot}")
