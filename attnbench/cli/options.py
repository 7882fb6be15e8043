"""Options that several commands share, and what they mean together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from attnbench.cli.parameters import Fraction, MaskWord, NameOf, OneOf, Positive, Probability, Whole, Word
from attnbench.cli.plugins_here import plugin_option
from attnbench.cli.progress import plan_option
from attnbench.runner.options import Kind, Options, make_options
from attnbench.types.case import CACHE_MODES, DEVICES, DTYPES, PASSES
from attnbench.types.errors import BadInput
from attnbench.types.formats import FORMATS

if TYPE_CHECKING:
    from attnbench.cases.select import Selection
    from attnbench.plugins.registry import Registry


Command = TypeVar("Command", bound=Callable[..., Any])
Option = Callable[[Any], Any]

MOST_GIB = 2**30

_MASK_HELP = (
    "Mask of every case, repeatable: none, causal, causal:lower_right, window:N, padding, padding:N,N, bool, "
    "float; joined by +."
)

_SELECTION = (
    click.argument(
        "words", nargs=-1, type=NameOf("suites", cases=True), metavar="[SUITE | CASE | FILE.toml]..."
    ),
    click.option(
        "--rule", "rules", multiple=True, type=NameOf("rules"), metavar="NAME",
        help="Only the cases of this rule; repeatable.",
    ),
    click.option(
        "--dtype", "dtypes", multiple=True, type=OneOf("dtype", DTYPES),
        help="Dtype of every case; repeatable.",
    ),
    click.option("--device", type=OneOf("device", DEVICES), help="Device of every case."),
    click.option("--mask", "masks", multiple=True, type=MaskWord(), metavar="MASK", help=_MASK_HELP),
    click.option(
        "--pass", "passes", multiple=True, type=OneOf("pass", PASSES),
        help="Pass of every case, repeatable: forward, backward (gradients alone), both.",
    ),
    click.option(
        "--cache", type=OneOf("cache mode", CACHE_MODES),
        help="Cache mode of every case: hot, inputs in the caches; rotating, each call finds them in memory.",
    ),
    click.option(
        "--dropout", type=Probability(), metavar="P", help="Dropout on the weights of every case, 0 for none."
    ),
    click.option("--seed", type=Whole(0), metavar="N", help="Seed of every case."),
    click.option("--threads", type=Whole(1), metavar="N", help="Threads in every case; 1 if none are said."),
)  # fmt: skip

_RESUME = click.option(
    "--resume", type=click.Path(path_type=Path), metavar="FILE",
    help="Go on with a run that was cut off, as it was begun; prints all of it at the end.",
)  # fmt: skip

_TYPES: dict[Kind, tuple[click.ParamType[Any], str | None]] = {
    "seconds": (Positive("seconds"), "SECONDS"),
    "gib": (Positive("GiB"), "GIB"),
    "count": (Whole(1), "N"),
    "share": (Fraction(), "SHARE"),
    "backend": (NameOf("backends"), "NAME"),
    "allocator": (OneOf("allocator", ("pinned", "default")), None),
}
"""By the kind of a field of :class:`Options`: the type of the option, and the word for its value."""


def _asked(*, timing: bool) -> tuple[Option, ...]:
    """The options that the fields of :class:`Options` ask for, in their order."""
    found = []
    for one in fields(Options):
        asked = one.metadata.get("asked")
        if asked is not None and asked.timing == timing:
            type_, metavar = _TYPES[asked.kind]
            default = None if asked.default else one.default
            if asked.kind == "allocator":
                default = "pinned" if one.default else "default"
            found.append(
                click.option(
                    f"--{asked.word}", one.name, type=type_, metavar=metavar, default=default,
                    show_default=asked.default or True, help=asked.help,
                )
            )  # fmt: skip
    return tuple(found)


def options_of(chosen: dict[str, Any], *, timed: bool) -> Options:
    """The options of a run that a command line states.

    Raises:
        BadInput: a value is impossible.
    """
    said = {one.name: chosen.get(one.name) for one in fields(Options) if one.metadata}
    gib, allocator = said["memory_limit_bytes"], said["allocator_pinned"]
    if gib is not None and gib > MOST_GIB:
        raise BadInput(f"{gib:g} GiB: more than {MOST_GIB} GiB is more than any machine has")
    return make_options(
        **said
        | {
            "memory_limit_bytes": None if gib is None else int(gib * 2**30),
            "allocator_pinned": None if allocator is None else allocator == "pinned",
            "timed": timed,
        }
    )


_RUNNING = (
    click.option(
        "--backend", "backends", multiple=True, type=NameOf("backends"), metavar="NAME",
        help="Only this backend; repeatable.",
    ),
    click.option(
        "--out", type=click.Path(path_type=Path), default=Path("results"), show_default=True,
        help="Folder for the run's file, or the file itself where it ends in .jsonl.",
    ),
    _RESUME,
    *_asked(timing=False),
)  # fmt: skip

format_option = click.option(
    "--format", "format_", type=OneOf("format", FORMATS), default="table", show_default=True,
    help="How to print; data go to stdout, all else to stderr.",
)  # fmt: skip

record_format_option = click.option(
    "--format", "format_", default="table", show_default=True, type=Word(FORMATS), metavar="FORMAT",
    help="How to print: table, json, csv, markdown, or one of attnbench list reporters; data go to stdout.",
)  # fmt: skip
"""Of commands that print records; :mod:`attnbench.cli.finish` says what the word means."""

trace_option = click.option(
    "--trace", is_flag=True,
    help="Show what a call of each backend ran, as JSON and CSV always do.",
)  # fmt: skip


def selection_options(command: Command) -> Command:
    """Give a command the words and options that choose cases."""
    return decorated(command, _SELECTION)


def selection_filters(command: Command) -> Command:
    """Give a command the options that choose cases, where its words are something else too."""
    return decorated(command, _SELECTION[1:])


def running_options(command: Command, *, resumable: bool = True) -> Command:
    """Give a command the options that say which backends run, and within which limits."""
    return decorated(command, tuple(o for o in _RUNNING if resumable or o is not _RESUME))


def decorated(command: Command, options: tuple[Callable[[Command], Command], ...]) -> Command:
    """Give a command options, which help lists in this order."""
    # Decorators apply from the last to the first, and help lists options in the opposite order.
    for option in reversed(options):
        command = option(command)
    return command


SELECTING = ("words", "rules", "dtypes", "device", "masks", "passes", "cache", "dropout", "seed", "threads")
"""The parameters of :func:`selection_options`."""


def selected(registry: Registry, chosen: dict[str, Any], *, timed: bool) -> Selection:
    """The cases that the words and options of :func:`selection_options` choose; without words, smoke's.

    Raises:
        BadInput: for what isn't known or can't be.
    """
    from attnbench.cases.select import Overrides, select

    overrides = Overrides(
        rules=chosen["rules"],
        dtypes=chosen["dtypes"],
        masks=chosen["masks"],
        passes=chosen["passes"],
        device=chosen["device"],
        threads=chosen["threads"],
        seed=chosen["seed"],
        cache=chosen["cache"],
        dropout=chosen["dropout"],
    )
    return select(chosen["words"] or ("smoke",), registry, overrides, timed=timed)


def measuring_options(*, timing: bool = False, files: tuple[Option, ...] = ()) -> Option:
    """Give a command the options of one that checks what is chosen and prints records.

    timing: whether it times too. files: options of files to write beside the run's.
    """

    def give(command: Command) -> Command:
        own = (*files, plugin_option, trace_option, record_format_option)
        of_timing = _asked(timing=True) if timing else ()
        return selection_options(running_options(decorated(command, (*of_timing, plan_option, *own))))

    return give
