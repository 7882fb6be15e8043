"""``attnbench explain``: rules, layers and lessons step by step on small inputs."""

from __future__ import annotations

import textwrap
from dataclasses import replace
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
from attnbench.types.errors import BadInput
from attnbench.types.words import clean, unknown_name

if TYPE_CHECKING:
    from attnbench.explained.examples import Example
    from attnbench.explained.steps import Step
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
    from attnbench.cases.ids import parse_rule, rule_word
    from attnbench.explained.attention import explain, guarded
    from attnbench.explained.lessons import LESSONS
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
    word, constants = parse_rule(topic or "")
    rule, title = "", ""
    steps: tuple[Step, ...]
    if word in LESSONS and word not in registry.scoring_rules:
        others = [f"--{name}" for name, value in chosen.items() if value]
        if constants:
            others.insert(0, "constants")
        if others:
            raise click.UsageError(f"{word} has its own numbers: leave out {' and '.join(others)}")
        summary, lesson = LESSONS[word]
        title, steps = f"{word}: {summary}", tuple(lesson(registry.rule, seed))
    else:
        rule, example = _chosen(registry, word, constants, seed, **chosen)
        record = registry.rule(rule)
        steps = guarded(registry.rules[rule], explain, record, example)
        title = f"{rule_word(rule, dict(example.constants))} on {example.summary}"
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
        about = {"topic": word or rule, "rule": rule, "seed": seed}
        made = [row | about for row in steps_rows(steps)]
        print_listing(made, list(made[0]), format_)


def _chosen(
    registry: Registry, word: str, constants: tuple[tuple[str, float], ...], seed: int, *,
    rule: str | None, example: str | None, tokens: Path | None, sentence: str | None, heads: int | None,
    mask: Any, dropout: float | None, weighted: bool,
) -> tuple[str, Example]:  # fmt: skip
    """Return the rule and the inputs that the options choose."""
    from attnbench.cases.ids import parse_rule
    from attnbench.explained.examples import EXAMPLES, example_for, with_layer
    from attnbench.explained.topics import unknown_topic

    own = tokens is not None or sentence is not None
    layer = word == "multihead" and word not in registry.scoring_rules
    if rule:
        rule, constants = parse_rule(rule)
    if word in registry.scoring_rules:
        if rule is not None:
            raise click.UsageError(f"--rule {rule}: {word} is a rule already; give one of them")
        rule = word
    elif word and word not in EXAMPLES:
        raise BadInput(unknown_topic(word, registry))
    elif word and not own and example is None:
        example = word
    elif word and not layer:
        raise click.UsageError(f"{word} is an example: it takes no --example, --tokens or --sentence")
    if example is not None and own:
        raise click.UsageError("--example has its own inputs: leave out --tokens and --sentence")
    if example is not None and example not in EXAMPLES:
        raise BadInput(unknown_name("example", example, EXAMPLES))
    if own:
        rule = rule or "scaled_dot"
        inputs = _own(tokens, sentence, heads or (2 if layer else 1), seed)
    else:
        example = example or example_for(rule or "")
        inputs = EXAMPLES[example]
        rule = rule or inputs.rule
        if heads and inputs.matrices and heads != inputs.heads:
            raise click.UsageError(
                f"--heads can't cut the example {example}: give --tokens or --sentence, or another example"
            )
        cut = heads or (2 if layer and not inputs.matrices else inputs.heads)
        inputs = replace(inputs, heads=cut, summary=f"the example {example}: {inputs.summary}")
    inputs = replace(
        inputs, seed=seed, mask=inputs.mask if mask is None else mask, weighted=weighted or inputs.weighted,
        dropout=inputs.dropout if dropout is None else dropout, constants=constants,
    )  # fmt: skip
    return rule, with_layer(inputs, registry.rule(rule)) if layer else inputs


def _own(tokens: Path | None, sentence: str | None, heads: int, seed: int) -> Example:
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
