"""``attnbench explain``: rules, layers and lessons step by step on small inputs."""

from __future__ import annotations

import textwrap
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from attnbench.cli.options import force_option, given_options
from attnbench.cli.output import note, print_listing, print_text, say, width
from attnbench.cli.parameters import (
    EXAMPLE,
    PROBABILITY,
    RULE,
    TOPIC,
    MaskOption,
    OneOf,
    Whole,
    load_plugins,
    plugin_option,
    seed_option,
)
from attnbench.types.words import clean

if TYPE_CHECKING:
    from attnbench.explained.examples import Example
    from attnbench.explained.shown import Explained
    from attnbench.plugins.registry import Registry
    from attnbench.types.words import Format

_FEATURES = 8


@click.command("explain")
@click.argument("topic", type=TOPIC, metavar="[TOPIC]", required=False)
@click.option("--rule", type=RULE, metavar="NAME", help="Compute an example by this rule.")
@click.option("--example", type=EXAMPLE, metavar="NAME", help="Use the inputs of this example.")
@click.option(
    "--tokens", type=click.Path(path_type=Path), metavar="FILE.csv",
    help="Read tokens from this file, one per row; words in the first column are labels.",
)  # fmt: skip
@click.option(
    "--sentence", metavar="TEXT", help="Label tokens with these words. Without --tokens they are random."
)
@click.option("--heads", type=Whole(1), metavar="N", help="Cut the features into N heads; multihead has 2.")
@click.option(
    "--mask", type=MaskOption(), metavar="MASK",
    help="Apply a mask of case ids: causal, window:2, padding:3 (keep 3 keys), document:2,3, prefix:2, …; + "
    "joins them.",
)  # fmt: skip
@click.option("--dropout", type=PROBABILITY, metavar="P", help="Set weights to 0 with probability P.")
@click.option("--weighted", is_flag=True, help="Show each key's weighted value before the sum.")
@seed_option
@click.option(
    "--digits", type=Whole(1, 17), default=4, show_default=True, metavar="N", help="Decimals in the table."
)
@click.option(
    "--rows", type=Whole(3), default=12, show_default=True, metavar="N", help="Rows shown of each array."
)
@click.option(
    "--heatmap", type=click.Path(path_type=Path), metavar="FILE.svg",
    help="Also draw the weights to this file, .svg or .png.",
)  # fmt: skip
@click.option(
    "--picture", type=click.Path(path_type=Path), metavar="FILE.svg",
    help="Draw every step to this file, .svg or .png; print steps only with --format.",
)  # fmt: skip
@force_option
@plugin_option
@click.option(
    "--format", "format_", type=OneOf("format", ("table", "json", "markdown")), default="table",
    show_default=True, help="Format of the steps on stdout.",
)  # fmt: skip
@click.pass_context
def command(
    ctx: click.Context, /, *, topic: str | None, seed: int, digits: int, rows: int,
    heatmap: Path | None, picture: Path | None, force: bool, format_: Format, **chosen: Any,
) -> None:  # fmt: skip
    """Compute attention step by step. TOPIC is a rule, an example or a lesson; without it, all are listed.

    With options and without TOPIC, the rule is scaled_dot.

    \b
    attnbench explain scaled_dot
    attnbench explain multihead --rule dot
    attnbench explain five-tokens --heatmap weights.svg
    attnbench explain cosine --sentence "the cat sat down" --mask causal --heads 2
    attnbench explain general --tokens mine.csv
    """
    from attnbench.cases.ids import parse_rule
    from attnbench.explained.picture import check_picture, draw
    from attnbench.explained.steps import steps_markdown, steps_rows, steps_text
    from attnbench.reports.formats import as_text
    from attnbench.results.targets import write_files

    registry = load_plugins()
    if not given_options(ctx, [name for name in ctx.params if name != "format_"]):
        _list(registry, format_)
        return
    for asked in (heatmap, picture):
        if asked is not None:
            check_picture(asked, force=force)
    if picture is not None and picture == heatmap:
        raise click.UsageError(f"--heatmap and --picture both write {str(picture)!r}: give two files")
    found = _explained(registry, topic or "", seed, **chosen)
    title, steps = found.title, found.steps
    # Before printing, since a picture may be refused.
    drawn: dict[Path, bytes] = {}
    for path, shown in ((heatmap, [step for step in steps if step.drawn != "numbers"]), (picture, steps)):
        if path is not None:
            drawn[path] = draw(shown, title, path)
    write_files(drawn)
    for path in drawn:
        note(f"drawn in {path}")
    if picture is not None and not given_options(ctx, ["format_"]):
        return
    if format_ == "table":
        heading = textwrap.fill(clean(title), width(), subsequent_indent="  ")
        print_text(f"{heading}\n\n{steps_text(steps, width=width(), digits=digits, rows=rows)}")
    elif format_ == "markdown":
        print_text(f"## {as_text(clean(title))}\n\n{steps_markdown(steps, digits=digits, rows=rows)}")
    else:
        about = {"topic": parse_rule(topic or "")[0] or found.rule, "rule": found.rule, "seed": seed}
        made = [row | about for row in steps_rows(steps)]
        print_listing(made, list(made[0]), format_)


def _explained(
    registry: Registry, topic: str, seed: int, *, tokens: Path | None, sentence: str | None, **options: Any
) -> Explained:
    """Compute the steps of a topic on its own inputs, a file or a sentence."""
    from attnbench.explained.topics import explained

    given = tokens is not None or sentence is not None
    own = partial(_own, tokens, sentence, seed=seed) if given else None
    typed = {name: f"--{name}" for name in options}
    inputs = {"--tokens": tokens, "--sentence": sentence}
    typed["tokens"] = " and ".join(name for name, value in inputs.items() if value is not None)
    return explained(registry, topic, own, seed=seed, typed=typed, **options)


def _own(tokens: Path | None, sentence: str | None, heads: int, *, seed: int) -> Example:
    """Return inputs from a user's file, or random ones labelled by the words of a sentence."""
    from attnbench.explained.examples import example_of, read_example, stream

    labels = tuple((sentence or "").split())
    if sentence is not None and not labels:
        raise click.UsageError("--sentence has no words: give at least one")
    if tokens is not None:
        return read_example(tokens, labels=labels, heads=heads)
    drawn = stream(seed, "tokens").standard_normal((len(labels), _FEATURES * heads))
    summary = f"the words of --sentence, with random tokens (--seed {seed})"
    return example_of({"X": drawn}, labels=labels, heads=heads, summary=summary)


def _list(registry: Registry, format_: Format) -> None:
    from attnbench.explained.topics import topics

    rows = [(kind, name, summary) for name, (kind, summary) in topics(registry).items()]
    if format_ != "table":
        keys = ("kind", "topic", "summary")
        print_listing([dict(zip(keys, row, strict=True)) for row in rows], keys, format_)
        return
    say("attnbench explain TOPIC computes one of these step by step:")
    for kind in dict.fromkeys(row[0] for row in rows):
        say(f"\n{kind}:")
        for _, name, summary in (row for row in rows if row[0] == kind):
            say(f"  {name:<16}  {summary}")
