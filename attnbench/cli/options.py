"""Options that several commands share, and what they mean together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from attnbench.cli.parameters import (
    ALLOCATOR,
    BACKEND,
    CASES,
    ENCODING,
    FORMAT,
    PROBABILITY,
    RULE,
    SHARE,
    STORAGE,
    BatchOption,
    MaskOption,
    OneOf,
    Positive,
    Whole,
    plugin_option,
)  # fmt: skip
from attnbench.runner.options import Kind, Options, make_options
from attnbench.types.arithmetic import ARITHMETICS
from attnbench.types.case import CACHE_MODES, DTYPES, NICKNAMES, PASSES
from attnbench.types.device import DEVICES
from attnbench.types.words import FORMATS

if TYPE_CHECKING:
    from attnbench.cases.select import Overrides, Selection
    from attnbench.plugins.registry import Registry


Command = TypeVar("Command", bound=Callable[..., Any])
Option = Callable[[Any], Any]

GIVEN = "attnbench.given"
"""In the context of a command: its words as the user gave them."""

WORDS = click.argument("words", nargs=-1, type=CASES, metavar="[SUITE | CASE | FILE.toml]...")
SELECTION = (
    click.option(
        "--rule", "rules", multiple=True, type=RULE, metavar="NAME",
        help="Keep only the cases of this rule. Repeatable.",
    ),
    click.option(
        "--dtype", "dtypes", multiple=True, type=OneOf("dtype", DTYPES, NICKNAMES),
        help="Set the dtype of every case. Repeatable.",
    ),
    click.option("--device", type=OneOf("device", tuple(DEVICES)), help="Set the device of every case."),
    click.option(
        "--mask", "masks", multiple=True, type=MaskOption(), metavar="MASK",
        help="Set the mask of every case: none, causal, causal:lower_right, window:N, padding, padding:N,N, "
        "bool, float, bool:per_head, float:per_head, left_padding, document, chunked:N, reach:N,N, "
        "dilated:N, blocks:N, tree:N,N, prefix:N, first:N, global:N or image:N,N; join several with +. "
        "Repeatable.",
    ),
    click.option(
        "--batch", "batches", multiple=True, type=BatchOption(), metavar="BATCH",
        help="Set the sequences of every case: 2q2k_32q1s1k is 2 of 2048 queries and keys, and 32 of one "
        "query and 1024 keys. Repeatable.",
    ),
    click.option(
        "--storage", "storages", multiple=True, type=STORAGE, metavar="STORAGE",
        help="Set where the numbers of a batch lie in every case, as packed or paged:16. Repeatable.",
    ),
    click.option(
        "--kv", "encodings", multiple=True, type=ENCODING, metavar="ENCODING",
        help="Set how keys and values are held in every case, as int8:head; dtype for numbers of its dtype. "
        "Repeatable.",
    ),
    click.option(
        "--pass", "passes", multiple=True, type=OneOf("pass", PASSES),
        help="Set the pass of every case: forward, backward (gradients alone) or both. Repeatable.",
    ),
    click.option(
        "--cache", type=OneOf("cache mode", CACHE_MODES),
        help="Set the cache mode of every case: with hot, inputs stay in the caches; with rotating, each "
        "call reads them from memory.",
    ),
    click.option(
        "--dropout", type=PROBABILITY, metavar="P",
        help="Set the dropout probability of the weights in every case; 0 for none.",
    ),
    click.option(
        "--layout", metavar="LAYOUT",
        help="Set the axis order of q, k and v in every case: one for all three, as BLHD (also BHLD, LBHD, "
        "BL3HD; BHCD and BCHD, a cache with room for more keys); one for each, as BLHD_BHLD_BHLD; or own, "
        "the order that each backend prefers.",
    ),
    click.option("--seed", type=Whole(0), metavar="N", help="Set the seed of every case."),
    click.option("--threads", type=Whole(1), metavar="N", help="Set the number of threads of every case."),
)  # fmt: skip
COMMON = (
    "backends", "dtypes", "masks", "passes", "device", "threads", "budget_s", "baseline", "plan", "resume",
    "details", "format_",
)  # fmt: skip
"""The parameters whose options most people need."""

_RESUME = click.option(
    "--resume", type=click.Path(path_type=Path), metavar="FILE",
    help="Continue an interrupted run with its own options, then print all of it.",
)  # fmt: skip

_FORCE = click.option(
    "--force", is_flag=True,
    help="With --resume: continue on another machine or with other software, as a part of its own.",
)  # fmt: skip

_SHARD = click.option(
    "--shard", metavar="K/N",
    help="Keep only shard K of N, as 3/16, for one of several machines. The id of a case decides its shard.",
)  # fmt: skip

_CASE = click.option(
    "--case", "kept", multiple=True, metavar="CASE",
    help="Keep only this case of the selection, by its id. Repeatable.",
)  # fmt: skip
ON = (
    click.option(
        "--on", metavar="EXECUTOR[:ADDRESS]",
        help="Measure on the devices that an executor reaches: local, or one of attnbench list executors.",
    ),
    click.option(
        "--where", multiple=True, metavar="NAME=TEXT",
        help="With --on: use only places where this holds, as gpu=H100 or gpu=H100,A100. Repeatable.",
    ),
    click.option(
        "--each", type=click.Choice(("device",)),
        help="With --on: measure every case on each kind of device, not once.",
    ),
)  # fmt: skip

_TYPES: dict[Kind, tuple[click.ParamType[Any], str | None]] = {
    "seconds": (Positive("seconds"), "SECONDS"),
    "gib": (Positive("GiB", most=1e6), "GIB"),
    "count": (Whole(1), "N"),
    "share": (SHARE, "SHARE"),
    "backend": (BACKEND, "NAME"),
    "arithmetic": (OneOf("arithmetic", ARITHMETICS), "ARITHMETIC"),
    "allocator": (ALLOCATOR, None),
    "text": (click.STRING, "TEXT"),
}
"""By the kind of a field of :class:`Options`: the type of the option, and the word for its value."""


def _asked(*, timing: bool) -> tuple[Option, ...]:
    """Return the options for the fields of :class:`Options`, in their order."""
    found = []
    for one in fields(Options):
        asked = one.metadata.get("asked")
        if asked is not None and asked.timing == timing:
            type_, metavar = _TYPES[asked.kind]
            default = None if asked.default else one.default
            if asked.kind == "allocator":
                default = "keep" if one.default else "default"
            found.append(
                click.option(
                    f"--{asked.word}", one.name, type=type_, metavar=metavar, default=default,
                    show_default=asked.default or True, help=asked.help,
                )
            )  # fmt: skip
    return tuple(found)


BACKENDS = click.option(
    "--backend", "backends", multiple=True, type=BACKEND, metavar="NAME",
    help="Use only this backend. Repeatable.",
)  # fmt: skip
RUNNING = (
    BACKENDS,
    click.option(
        "--out", type=click.Path(path_type=Path), default=Path("results"), show_default=True,
        help="Folder for the file of the run, or a file that ends in .jsonl.",
    ),
    *_asked(timing=False),
)  # fmt: skip

format_option = click.option(
    "--format", "format_", type=OneOf("format", FORMATS), default="table", show_default=True,
    help="Format of the data on stdout.",
)  # fmt: skip
record_options = (
    plugin_option,
    click.option(
        "--trace", is_flag=True, help="Show the operations that each backend ran. JSON and CSV always do."
    ),
    click.option(
        "--details", is_flag=True,
        help="Show the table of every case, with notes, and intervals, means and reasons in the answer.",
    ),
    click.option("--legend", is_flag=True, help="Explain the columns and words of the table."),
    click.option(
        "--summary", is_flag=True,
        help="In JSON, CSV and Markdown: the fastest backend of each case and the means, not the records.",
    ),
    click.option(
        "--format", "format_", default="table", show_default=True, type=FORMAT, metavar="FORMAT",
        help="Format of the data on stdout: table, json, csv, markdown, or one of attnbench list reporters.",
    ),
)  # fmt: skip
"""Options of all commands that print records."""
SHOWING = ("trace", "details", "legend", "summary", "format_")
"""The parameters of these options that change only what is printed."""
benchmark_json_option = click.option(
    "--benchmark-json", type=click.Path(path_type=Path), metavar="FILE",
    help="Also write the run to this file in the format of pytest-benchmark.",
)  # fmt: skip

force_option = click.option(
    "--force", is_flag=True, help="Replace a file even if attnbench did not write one of that kind."
)


def decorated(*options: Option) -> Callable[[Command], Command]:
    """Return a decorator that gives a command options, which help lists in this order."""

    def give(command: Command) -> Command:
        # Decorators apply from the last to the first.
        for option in reversed(options):
            command = option(command)
        return command

    return give


class CommonFirst(click.Command):
    """A command with many options, whose help has the common ones first. It keeps its words as they were.

    first: the parameters of the options that come first; rest: the head of the others.
    """

    def __init__(
        self, *args: Any, first: Collection[str] = COMMON, rest: str = "More options", **attributes: Any
    ) -> None:
        super().__init__(*args, **attributes)
        self.first, self.rest = (*first, "help"), rest

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words."""
        ctx.meta[GIVEN] = tuple(args)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the common options, and the others under a head of their own."""
        lines: dict[str, list[tuple[str, str]]] = {"Options": [], self.rest: []}
        for param in self.get_params(ctx):
            if isinstance(param, click.Option) and (line := param.get_help_record(ctx)) is not None:
                lines["Options" if param.name in self.first else self.rest].append(line)
        for head, those in lines.items():
            if those:
                with formatter.section(head):
                    formatter.write_dl(those)


def measuring_options(*, timing: bool = False) -> Option:
    """Return a decorator for a command that checks cases and prints records. timing: it times them too."""
    plan = click.option("--plan", is_flag=True, help="Print how long each case would take, and run nothing.")
    own = (plan, *ON, benchmark_json_option) if timing else (plan,)
    of_timing = _asked(timing=True) if timing else ()
    return decorated(
        WORDS,
        *SELECTION,
        _CASE,
        _SHARD,
        *RUNNING[:2],
        _RESUME,
        _FORCE,
        *RUNNING[2:],
        *of_timing,
        *own,
        *record_options,
    )


def given_options(ctx: click.Context, names: Iterable[str]) -> list[str]:
    """Return the words of the parameters among these that the user gave: --repetitions, or cases for an
    argument."""
    words = {p.name: p.opts[0] if isinstance(p, click.Option) else "cases" for p in ctx.command.params}
    default = click.core.ParameterSource.DEFAULT
    return [words[name] for name in names if ctx.get_parameter_source(name) is not default]


def options_of(chosen: dict[str, Any], *, timed: bool) -> Options:
    """Return the options of a run that a command line states.

    Raises:
        BadInput: a value is impossible.
    """
    given = {one.name: chosen.get(one.name) for one in fields(Options) if one.metadata}
    gib, allocator = given["memory_limit_bytes"], given["allocator_pinned"]
    return make_options(
        **given
        | {
            "memory_limit_bytes": None if gib is None else int(gib * 2**30),
            "allocator_pinned": None if allocator is None else allocator == "keep",
            "timed": timed,
        }
    )


def selected(registry: Registry, chosen: dict[str, Any], *, timed: bool) -> Selection:
    """Return the cases that words and options choose; those of the suite smoke without words.

    Raises:
        BadInput: something is unknown or impossible.
    """
    from attnbench.cases.select import select
    from attnbench.cases.suites import DEFAULT_SUITE

    words = chosen["words"] or (DEFAULT_SUITE,)
    return part_asked(select(words, registry, overrides_of(chosen), timed=timed), chosen)


def overrides_of(chosen: dict[str, Any]) -> Overrides:
    """Return what the options of a command change in every case."""
    from attnbench.cases.select import Overrides

    return Overrides(**{one.name: chosen[one.name] for one in fields(Overrides)})


def part_asked(selection: Selection, chosen: dict[str, Any]) -> Selection:
    """Return the part of a selection that --case and --shard name.

    Raises:
        BadInput: a case is not selected, or the shard is not one.
    """
    from attnbench.cases.select import cut, only

    if chosen.get("kept"):
        selection = only(selection, chosen["kept"])
    return selection if chosen.get("shard") is None else cut(selection, chosen["shard"])
