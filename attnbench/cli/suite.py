"""``attnbench suite``: the suite of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from attnbench.cli.group import NamingGroup
from attnbench.cli.options import given_options
from attnbench.cli.output import next_notes, note, print_text, say
from attnbench.cli.parameters import ENCODING, STORAGE, THREADS, BatchOption, Several, Whole
from attnbench.types.batch import begins_batch
from attnbench.types.words import count_of

if TYPE_CHECKING:
    from attnbench.models.suite import Lengths


class _Batch(Several):
    """How many equal sequences, or sequences of unlike lengths as ids write them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return numbers, or the canonical word."""
        if begins_batch(value):
            return BatchOption().convert(value, param, ctx)
        return super().convert(value, param, ctx)


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
    type=Several(_length, "512,8k"),
    metavar="L,...",
    show_default="512,2k,8k",
    help="Lengths of prompts; 2k is 2048.",
)
@click.option(
    "--chunked",
    type=Several(_chunk, "512x4k,4x8k (Lq below Lk)"),
    metavar="LqxLk,...",
    show_default="512x4k,4x8k",
    help="The last Lq tokens of Lk at once: chunked prefill, speculative decoding.",
)
@click.option(
    "--decode",
    type=Several(_length, "1k,8k"),
    metavar="L,...",
    show_default="1k,8k,32k",
    help="Numbers of keys for one new token; half as many are measured too.",
)
@click.option(
    "--batch",
    type=_Batch(_length, "1,16, or sequences as in 2q2k_32q1s1k", none=""),
    metavar="B,...|BATCH",
    default="1",
    show_default=True,
    help="How many sequences decode together, or are encoded together; or one step with sequences of unlike "
    "lengths: 2q2k_32q1s1k is 2 of 2048 tokens, and 32 that decode with 1024 keys.",
)
@click.option(
    "--storage",
    type=STORAGE,
    metavar="STORAGE",
    show_default="packed",
    help="With unlike lengths: where their numbers lie, as packed or paged:16.",
)
@click.option(
    "--kv",
    "encodings",
    multiple=True,
    type=ENCODING,
    metavar="ENCODING",
    help="Hold the cache of a decode, or of one step with unlike lengths, in this way too, as int8:head or "
    "q8_0; the cache in the dtype comes first. Repeatable.",
)
@click.option(
    "--tp", type=Whole(1), metavar="N", default=1, show_default=True,
    help="The number of devices that share the heads (tensor parallelism).",
)  # fmt: skip
@click.option(
    "--threads", type=THREADS, metavar="N,...", show_default="what torch uses here",
    help="Threads of the cases; with 1,2 each case is measured with one and with two.",
)  # fmt: skip
@click.pass_context
def from_config(
    ctx: click.Context,
    /,
    config: Path,
    tp: int,
    threads: tuple[int, ...] | None,
    batch: tuple[int, ...] | str,
    storage: str | None,
    encodings: tuple[str, ...],
    **stages: Any,
) -> None:
    """Print a suite of the attention of a model, from its config.json.

    Of --prefill, --chunked and --decode only those that are given have cases; without any, all have their
    defaults. Layers that compute the same are one kind; a count says how often a step of its stage runs a
    case, as a mean over the lengths and batches. Layers that no case can describe yet are left out and named
    on stderr.

    \b
    attnbench suite from-config config.json > mine.toml
    attnbench suite from-config config.json --tp 4 --prefill 4k
    attnbench suite from-config config.json --batch 32q1s1k --storage paged:16
    attnbench suite from-config config.json --decode 8k --kv q8_0 --kv int8:token
    attnbench run mine.toml --plan
    """
    from attnbench.cases.suites import parse_suite
    from attnbench.models.config import read_model
    from attnbench.models.suite import little_words, model_suite, with_octaves

    model = read_model(config)
    wrote = ""
    if threads is None:
        import torch

        own = torch.get_num_threads()
        threads = (own,)
        wrote = f"threads = {own}, as torch uses here"
        if own > 1:
            wrote += f"; one may be faster: --threads 1,{own} measures both"
    lengths = replace(_lengths(ctx, batch, storage, stages), caches=_caches(encodings))
    if encodings and not (lengths.decode or lengths.sequences):
        raise click.UsageError(
            "--kv says how a decode holds its cache: give lengths of it, as --decode 8k", ctx
        )
    made = model_suite(model, with_octaves(lengths, model.limit), tp, threads)
    print_text(made.text)
    for words in made.notes:
        say(words, err=True)
    if model.dtype not in (None, "float32"):
        words = "on a CPU a program in float32 may be much faster: --dtype float32 measures that one"
        say(f"cases are in {model.dtype}, as the config says; {words}", err=True)
    note(count_of(made.cases, "case"))
    if wrote:
        note(wrote)
    suite = parse_suite(made.text, "")
    if words := little_words(model, suite, tp):
        note(words)
    next_notes(Path("mine.toml"), suite)
    if any(case.operation == "attention" and case.on_host for case in suite.cases):
        note(
            "a config doesn't say how inputs lie in memory (attnbench capture finds it in a program): "
            "--layout BLHD is for a prompt of views, BHCD for a decode from a cache with room for more keys, "
            "BLHD_BHCD_BHCD for a prompt that is read from one"
        )


def _caches(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the ways to hold a cache in full, each once, first that in the dtype.

    Raises:
        BadInput: there is no such way.
    """
    from attnbench.models.suite import Lengths
    from attnbench.types.encoding import parse_encoding

    return tuple(dict.fromkeys((*Lengths.caches, *map(parse_encoding, words))))


def _lengths(
    ctx: click.Context, batch: tuple[int, ...] | str, storage: str | None, stages: Mapping[str, Any]
) -> Lengths:
    """Return the lengths that options state.

    Raises:
        UsageError: some contradict each other.
    """
    from attnbench.models.suite import Lengths

    given = given_options(ctx, stages)
    if isinstance(batch, str):
        if given:
            raise click.UsageError(f"the batch {batch} has all lengths: leave out {', '.join(given)}", ctx)
        return Lengths(sequences=batch, storage=storage or Lengths.storage)
    if storage is not None:
        raise click.UsageError("--storage needs sequences of unlike lengths, as --batch 2q2k_32q1s1k", ctx)
    asked: Mapping[str, Any] = {stage: lengths or () for stage, lengths in stages.items()}
    return Lengths(batch=batch, **asked) if given else Lengths(batch=batch)
