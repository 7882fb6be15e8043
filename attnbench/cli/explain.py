"""``attnbench explain``: a rule step by step on small inputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from attnbench.cli.options import format_option
from attnbench.cli.output import colourful, note, print_listing, print_text, width
from attnbench.cli.parameters import EXAMPLE, RULE, MaskWord, Whole, load_plugins, plugin_option

if TYPE_CHECKING:
    from attnbench.explain.examples import Example
    from attnbench.types.formats import Format
    from attnbench.types.mask import Mask

_FEATURES = 8


@click.command("explain")
@click.argument("rule", type=RULE, metavar="RULE")
@click.option("--example", type=EXAMPLE, metavar="NAME", help="Use these inputs of the textbook; see --list.")
@click.option("--list", "list_", is_flag=True, is_eager=True, expose_value=False, help="List the examples.",
              callback=lambda ctx, _, value: _list(ctx) if value else None)  # fmt: skip
@click.option(
    "--tokens", type=click.Path(path_type=Path), metavar="FILE",
    help="Read tokens, one per row, from .csv, .json, .npy or .npz; .json and .npz may hold q, k and v.",
)  # fmt: skip
@click.option(
    "--sentence",
    metavar="TEXT",
    help="Label tokens with these words. Without --tokens they are random.",
)
@click.option("--heads", type=Whole(1), default=1, metavar="N", help="Cut the features into N heads.")
@click.option("--mask", type=MaskWord(), metavar="MASK", help="Apply a mask, as in attnbench run.")
@click.option(
    "--seed", type=Whole(0), default=0, show_default=True, metavar="N", help="Seed of random numbers."
)
@click.option(
    "--digits", type=Whole(1, 17), default=4, show_default=True, metavar="N", help="Decimals in the table."
)
@click.option(
    "--heatmap",
    type=click.Path(path_type=Path),
    metavar="FILE.png",
    help="Also draw the weights to this file, .png or .svg.",
)
@plugin_option
@format_option
def command(
    *,
    rule: str,
    example: str | None,
    tokens: Path | None,
    sentence: str | None,
    heads: int,
    mask: Mask | None,
    seed: int,
    digits: int,
    heatmap: Path | None,
    format_: Format,
) -> None:
    """Compute a rule step by step: q, k, v, scores, mask, weights and output, each with its shape.

    \b
    attnbench explain scaled_dot
    attnbench explain dot --example projections
    attnbench explain cosine --sentence "the cat sat down" --mask causal --heads 2
    attnbench explain general --tokens mine.csv --heatmap weights.png
    """
    from attnbench.explain.examples import EXAMPLES
    from attnbench.explain.picture import check_picture, draw, heatmap_spec
    from attnbench.explain.steps import explain, guarded
    from attnbench.explain.text import number_rows, steps_rows, steps_text
    from attnbench.types.words import clean

    if heatmap is not None:
        check_picture(heatmap)
    registry = load_plugins()
    if rule in EXAMPLES and rule not in registry.rules:
        raise click.UsageError(
            f"{rule!r} is an example, not a rule: attnbench explain {EXAMPLES[rule].rule} --example {rule}"
        )
    record = registry.rule(rule)
    chosen = _example(rule, example, tokens, sentence, heads, seed)
    if mask is not None:
        chosen = replace(chosen, mask=mask)
    steps = guarded(registry.rules[rule], explain, record, chosen)
    # Before printing, since a heatmap may be refused.
    picture = None if heatmap is None else heatmap_spec(steps, f"{rule}: {record.formula}")
    if format_ == "table":
        shown = steps_text(steps, width=width(), colour=colourful(), digits=digits)
        print_text(f"{clean(f'{rule} on {chosen.summary}')}\n\n{shown}")
    else:
        rows = steps_rows(steps) if format_ == "json" else list(number_rows(steps))
        print_listing(rows, ("step", "head", "row", "column", "value"), format_)
    if heatmap is not None and picture is not None:
        draw(picture, heatmap)
        note(f"drawn in {heatmap}")


def _example(
    rule: str, name: str | None, tokens: Path | None, sentence: str | None, heads: int, seed: int
) -> Example:
    """Return the inputs that the options choose."""
    from attnbench.explain.examples import example_for, example_named, example_of
    from attnbench.explain.token_files import read_example

    if name is not None and (tokens is not None or sentence is not None):
        raise click.UsageError("--example has its own inputs: leave out --tokens and --sentence")
    labels = tuple((sentence or "").split())
    if sentence is not None and not labels:
        raise click.UsageError("--sentence has no words: give at least one")
    if tokens is not None:
        return read_example(tokens, labels=labels, heads=heads, seed=seed)
    if labels:
        import numpy as np

        drawn = np.random.default_rng(seed).standard_normal((len(labels), _FEATURES * heads))
        summary = f"the words of --sentence, with random tokens (--seed {seed})"
        return example_of(drawn, labels=labels, heads=heads, seed=seed, summary=summary)
    chosen = example_for(rule) if name is None else example_named(name)
    summary = f"the example {chosen.name}: {chosen.summary}"
    if heads == 1:
        return replace(chosen, seed=seed, summary=summary)
    if chosen.tokens is None or chosen.matrices:
        raise click.UsageError(
            f"--heads can't cut the example {chosen.name}: give --tokens or --sentence, or another example"
        )
    return example_of(
        chosen.tokens, labels=chosen.queries, heads=heads, mask=chosen.mask, seed=seed, summary=summary
    )


def _list(ctx: click.Context) -> Any:
    from attnbench.explain.examples import EXAMPLES

    for example in EXAMPLES.values():
        click.echo(f"{example.name:<16}  {example.rule:<13}  {example.summary}")
    ctx.exit()
