"""``attnbench compare-rules``: rules compared by behaviour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from attnbench.cli.options import force_option, format_option
from attnbench.cli.output import note, print_listing, print_text, width
from attnbench.cli.parameters import RULE, Positive, Whole, load_plugins, plugin_option, seed_option

if TYPE_CHECKING:
    from attnbench.explained.behaviour import Behaviour
    from attnbench.types.words import Format


_WIDTHS, _GAINS = (4, 16, 64, 256), (0.25, 1.0, 4.0, 16.0)
_MOST = 1024
"""The most keys and features: enough for a picture; a reference may hold rows x keys x features."""


@click.command("compare-rules")
@click.argument("names", nargs=-1, type=RULE, metavar="[RULE]...")
@click.option(
    "--width", "widths", type=Whole(1, _MOST), multiple=True, metavar="D", show_default="4, 16, 64, 256",
    help="Number of features of queries and keys. Repeatable.",
)  # fmt: skip
@click.option(
    "--gain", "gains", type=Positive(most=1e100), multiple=True, metavar="TIMES",
    show_default="0.25, 1, 4, 16",
    help="Factor on the queries, which widens the range of the logits. Repeatable.",
)  # fmt: skip
@click.option(
    "--keys", type=Whole(2, _MOST), default=32, show_default=True, metavar="N", help="Number of keys."
)
@seed_option
@click.option(
    "--plot", type=click.Path(path_type=Path), metavar="FILE.svg",
    help="Also draw charts to this .svg or .png.",
)  # fmt: skip
@force_option
@plugin_option
@format_option
def command(
    *, names: tuple[str, ...], widths: tuple[int, ...], gains: tuple[float, ...], keys: int, seed: int,
    plot: Path | None, force: bool, format_: Format,
) -> None:  # fmt: skip
    """Compare rules by their effect on weights: entropy, largest weight, gradient; and by their cost.

    Queries and keys have independent standard normal features. An unscaled dot product saturates as D grows;
    a scaled one does not. The tables show means (medians for gradient norms) over
    1024 rows: 8 queries for each of 128 draws of keys. Parameters are drawn 16 times. The entropy leaves out
    a sink's share.

    \b
    attnbench compare-rules
    attnbench compare-rules dot scaled_dot --plot why-the-scale.svg
    """
    from attnbench.explained.attention import guarded
    from attnbench.explained.behaviour import behaviour_steps, behaviours
    from attnbench.explained.picture import check_picture, draw
    from attnbench.explained.steps import steps_text
    from attnbench.plugins.calling import tell
    from attnbench.results.targets import write_files
    from attnbench.types.errors import BadInput, PluginFailed

    if plot is not None:
        check_picture(plot, force=force)
    registry = load_plugins()
    wanted = [registry.rule(name).name for name in dict.fromkeys(names or registry.scoring_rules)]

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

    by_width = of_rules(tuple(dict.fromkeys(widths)) or _WIDTHS, (1.0,))
    if not by_width:
        none = ", ".join(map(str, widths or _WIDTHS))
        raise BadInput(f"{' and '.join(wanted)} supports none of the widths {none} with {keys} keys")
    supported = {row.D for row in by_width}
    at = 64 if 64 in supported else max(supported)
    by_gain = of_rules((at,), tuple(dict.fromkeys(gains)) or _GAINS)
    steps = list(behaviour_steps(by_width, by_gain))
    # Before printing, since a picture may be refused.
    if plot is not None:
        lines = [step for step in steps if step.drawn == "lines"]
        write_files({plot: draw(lines, "rules by their effect on weights", plot)})
        note(f"drawn in {plot}")
    if format_ == "table":
        print_text(steps_text(steps, width=width(), digits=3, rows=len(wanted)))
    else:
        rows = [asdict(row) for row in dict.fromkeys([*by_width, *by_gain])]
        print_listing(rows, list(rows[0]), format_)
