"""``attnbench suite``: the suite of a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from attnbench.cli.group import NamingGroup
from attnbench.cli.output import note, print_text, say
from attnbench.cli.parameters import Whole
from attnbench.types.words import count_of


class _List(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on
    """Values with commas between them, or none. read: raises ValueError. example: of such values."""

    name = "list"

    def __init__(self, read: Callable[[str], Any], example: str, none: str = ", or none") -> None:
        self.read = read
        self.example = example
        self.none = none

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the values."""
        if value == "none" and self.none:
            return ()
        try:
            return tuple(self.read(word.strip()) for word in value.split(","))
        except ValueError:
            self.fail(f"{value!r}: give numbers as in {self.example}{self.none}", param, ctx)


def _length(word: str) -> int:
    digits = word.lower().removesuffix("k")
    number = int(digits) * (1024 if digits != word.lower() else 1)
    if number < 1:
        raise ValueError
    return number


def _chunk(word: str) -> tuple[int, int]:
    queries, keys = map(_length, word.split("x"))
    if queries >= keys:
        raise ValueError
    return queries, keys


@click.group("suite", cls=NamingGroup)
def command() -> None:
    """Make a suite from the config.json of a model.

    \b
    attnbench suite from-config config.json > mine.toml
    """


@command.command("from-config")
@click.argument("config", type=click.Path(path_type=Path), metavar="CONFIG.json")
@click.option(
    "--prefill",
    type=_List(_length, "512,8k"),
    metavar="L,...",
    default="512,2k,8k",
    show_default=True,
    help="Lengths of prompts; 2k is 2048.",
)
@click.option(
    "--chunked",
    type=_List(_chunk, "512x4k,4x8k (Lq below Lk)"),
    metavar="LqxLk,...",
    default="512x4k,4x8k",
    show_default=True,
    help="The last Lq tokens of Lk at once: chunked prefill, speculative decoding.",
)
@click.option(
    "--decode",
    type=_List(_length, "1k,8k"),
    metavar="L,...",
    default="1k,8k,32k",
    show_default=True,
    help="Numbers of keys for one new token.",
)
@click.option(
    "--batch",
    type=_List(_length, "1,16", none=""),
    metavar="B,...",
    default="1,16,64",
    show_default=True,
    help="How many sequences decode together, or are encoded together.",
)
@click.option(
    "--tp", type=Whole(1), metavar="N", default=1, show_default=True,
    help="The number of devices that share the heads (tensor parallelism).",
)  # fmt: skip
def from_config(config: Path, tp: int, **lengths: Any) -> None:
    """Print a suite of the attention of a model, from its config.json.

    Layers that compute the same are one kind; a comment says how often a pass of the model runs it. Layers
    that no case can describe yet are left out and named on stderr.

    \b
    attnbench suite from-config config.json > mine.toml
    attnbench suite from-config config.json --tp 4 --prefill 4k --decode none
    attnbench run mine.toml --plan
    """
    from attnbench.models.config import read_model
    from attnbench.models.suite import Lengths, model_suite

    made = model_suite(read_model(config), Lengths(**lengths), tp)
    print_text(made.text)
    for words in made.notes:
        say(words, err=True)
    note(count_of(made.cases, "case"))
    note("next: attnbench run FILE --plan says how long it takes")
