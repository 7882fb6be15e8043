"""``attnbench explain``: a rule worked step by step on small inputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from attnbench.cli.options import format_option
from attnbench.cli.output import colourful, note, print_listing, print_text, width
from attnbench.cli.parameters import ExampleName, MaskWord, NameOf, Whole
from attnbench.cli.plugins_here import load_plugins, plugin_option

if TYPE_CHECKING:
    from attnbench.types.formats import Format
    from attnbench.types.mask import Mask
    from attnbench.worked.steps import Question, Step

_FEATURES = 8


@click.command("explain")
@click.argument("rule", type=NameOf("rules"), metavar="RULE")
@click.option(
    "--example", type=ExampleName(), metavar="NAME", help="Use these inputs of the textbook; see --list."
)
@click.option("--list", "list_", is_flag=True, is_eager=True, expose_value=False, help="List the examples.",
              callback=lambda ctx, _, value: _list(ctx) if value else None)  # fmt: skip
@click.option(
    "--tokens", type=click.Path(path_type=Path), metavar="FILE",
    help="Read tokens, a row each: .csv, .json, .npy; .json and .npz may have q, k and v.",
)  # fmt: skip
@click.option(
    "--sentence", metavar="TEXT", help="Label tokens with these words; without --tokens they are random."
)
@click.option("--heads", type=Whole(1), metavar="N", help="Cut the features into N heads.")
@click.option("--mask", type=MaskWord(), metavar="MASK", help="As in attnbench run, e.g. causal.")
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
    help="Also draw the weights; .png, .svg.",
)
@plugin_option
@format_option
def command(
    *,
    rule: str,
    example: str | None,
    tokens: Path | None,
    sentence: str | None,
    heads: int | None,
    mask: Mask | None,
    seed: int,
    digits: int,
    heatmap: Path | None,
    format_: Format,
) -> None:
    """Work a rule step by step: q, k, v, scores, mask, weights, output, each with its shape.

    \b
    attnbench explain scaled_dot
    attnbench explain dot --example projections
    attnbench explain cosine --sentence "the cat sat down" --mask causal --heads 2
    attnbench explain general --tokens mine.csv --heatmap weights.png
    """
    from attnbench.worked.examples import EXAMPLES
    from attnbench.worked.picture import check_picture, draw, heatmap_spec
    from attnbench.worked.steps import guarded, worked

    if heatmap is not None:
        check_picture(heatmap)
    registry = load_plugins()
    if rule in EXAMPLES and rule not in registry.rules:
        raise click.UsageError(
            f"{rule!r} is an example, not a rule: attnbench explain {EXAMPLES[rule].rule} --example {rule}"
        )
    worked_rule = registry.rule(rule)
    question = _question(rule, example, tokens, sentence, heads or 1, seed)
    if mask is not None:
        question = replace(question, mask=mask)
    steps = guarded(registry.rules[rule], worked, worked_rule, question)
    # Before printing, since a heatmap may be refused.
    picture = None if heatmap is None else heatmap_spec(steps, f"{rule}: {worked_rule.formula}")
    _print(steps, f"{rule} on {question.what}", format_, digits)
    if heatmap is not None and picture is not None:
        draw(picture, heatmap)
        note(f"drawn in {heatmap}")


def _question(
    rule: str, example: str | None, tokens: Path | None, sentence: str | None, heads: int, seed: int
) -> Question:
    from attnbench.worked.examples import example as named
    from attnbench.worked.examples import example_for
    from attnbench.worked.tokens import question_of, random_tokens, read_question

    if example is not None and (tokens is not None or sentence is not None):
        raise click.UsageError(
            "--example can't be combined with --tokens or --sentence: it has its own inputs"
        )
    labels = tuple((sentence or "").split())
    if sentence is not None and not labels:
        raise click.UsageError("--sentence has no words")
    if tokens is not None:
        made = read_question(tokens, labels=labels, heads=heads, seed=seed)
        return replace(made, what=f"the file {str(tokens)!r}")
    if labels:
        drawn = random_tokens(len(labels), _FEATURES * heads, seed)
        made = question_of(drawn, labels=labels, heads=heads, seed=seed)
        return replace(made, what=f"the words of --sentence, with random tokens (--seed {seed})")
    chosen = example_for(rule) if example is None else named(example)
    made = chosen.make()
    if heads > 1:
        if made.tokens is None or made.matrices:
            raise click.UsageError("--heads cuts tokens: give --tokens or --sentence, or another example")
        made = replace(question_of(made.tokens, labels=made.queries, heads=heads), mask=made.mask)
    return replace(made, seed=seed, what=f"the example {chosen.name}: {chosen.summary}")


def _print(steps: tuple[Step, ...], title: str, format_: Format, digits: int) -> None:
    from attnbench.types.words import clean
    from attnbench.worked.text import csv_rows, steps_rows, steps_text

    if format_ == "table":
        shown = steps_text(steps, width=width(), colour=colourful(), digits=digits)
        print_text(f"{clean(title)}\n\n{shown}")
        return
    rows = steps_rows(steps) if format_ == "json" else list(csv_rows(steps))
    print_listing(rows, ("step", "head", "row", "column", "value"), format_)


def _list(ctx: click.Context) -> Any:
    from attnbench.worked.examples import EXAMPLES

    for example in EXAMPLES.values():
        click.echo(f"{example.name:<16}  {example.rule:<13}  {example.summary}")
    ctx.exit()
