"""``attnbench compare``: what two sides say of each other, and whether that is fine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from attnbench.cli.compare_live import compared_now, is_live, live_options, refuse_live_options
from attnbench.cli.options import format_option
from attnbench.cli.output import print_compared
from attnbench.cli.parameters import Fraction, NameOf
from attnbench.cli.plugins_here import plugin_option
from attnbench.types.errors import BadInput

if TYPE_CHECKING:
    from attnbench.compare.gate import Gate, GateResult
    from attnbench.types.compared import Compared
    from attnbench.types.formats import Format


SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"


@click.command("compare")
@click.argument("words", nargs=-1, metavar="[BASE NEW | RUN | SUITE | CASE]...")
@click.option(
    "--baseline",
    type=NameOf("backends"),
    metavar="NAME",
    help="Compare the backends of one run with this one of them.",
)
@click.option("--force", is_flag=True, help="Compare sides that were not measured alike; all output says so.")
@click.option(
    "--fail-on", "fail_on", metavar="VERDICTS", show_default="slower,mismatch,missing",
    help="Verdicts that fail, joined by commas: slower, mismatch, missing, unclear; or nothing.",
)  # fmt: skip
@click.option(
    "--delta", type=Fraction(), metavar="SHARE", show_default="2%",
    help="The least effect that counts, as 2% or 0.02.",
)  # fmt: skip
@click.option(
    "--gate", "gate_file", type=click.Path(path_type=Path), metavar="FILE",
    help="TOML file of the gate: delta, fail-on, strict, and [[cells]] with exceptions.",
)  # fmt: skip
@click.option("--strict", is_flag=True, help="Fail on every warning too, and on what --force overrode.")
@click.option(
    "--summary", is_flag=True,
    help=f"Append the comparison as Markdown to the file that {SUMMARY_VARIABLE} names.",
)  # fmt: skip
@plugin_option
@format_option
@live_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    words: tuple[str, ...],
    baseline: str | None,
    force: bool,
    fail_on: str | None,
    delta: float | None,
    gate_file: Path | None,
    strict: bool,
    summary: bool,
    format_: Format,
    **chosen: Any,
) -> None:
    """Compare two sides: stored runs, of attnbench or pytest-benchmark, or commits that are measured now.

    \b
    attnbench compare --ref main --head HEAD       two commits, live, on smoke
    attnbench compare --ref main gpt2 --backend mine
    attnbench compare BASE NEW                     two files, or folders of them
    attnbench compare RUN --baseline sdpa_flash    ratios to another backend

    Exit status: 0 the gate holds; 1 it doesn't; 2 the sides can't be compared: missing, damaged, not measured
    alike; 3 nothing could be compared.
    """
    from attnbench.compare.gate import hold

    gate = _gate(fail_on, delta, gate_file, strict=strict, within=baseline is not None)
    target = _summary_file() if summary else None
    sides, said = tuple(map(Path, words)), delta is not None or gate_file is not None
    if is_live(chosen):
        if baseline is not None or force:
            raise click.UsageError("--baseline and --force are for stored runs, and --ref measures now")
        compared = compared_now(words, chosen, gate.delta_of)
    elif baseline is None:
        refuse_live_options(ctx, chosen)
        compared = _stored(sides, gate, force=force, said=said)
    else:
        refuse_live_options(ctx, chosen)
        compared = _within(sides, baseline, gate, said=said)
    result = hold(compared, gate)
    print_compared(compared, result, format_)
    if target is not None:
        _append(target, compared, result)
    ctx.exit(result.exit_code)


def _gate(fail_on: str | None, delta: float | None, file: Path | None, *, strict: bool, within: bool) -> Gate:
    """The gate of a file, where there is one, with what the command line says in its place."""
    from dataclasses import replace

    from attnbench.compare.gate import FAILS_ON_WITHIN, Gate, outcomes, read_gate

    gate = Gate(fail_on=FAILS_ON_WITHIN) if within else Gate()
    if file is not None:
        gate = read_gate(file, gate)
    if fail_on is not None:
        gate = replace(gate, fail_on=outcomes(fail_on))
    if delta is not None:
        gate = replace(gate, delta=delta)
    return replace(gate, strict=strict or gate.strict)


def _stored(sides: tuple[Path, ...], gate: Gate, *, force: bool, said: bool) -> Compared:
    from attnbench.compare.paired import compared_live
    from attnbench.compare.stored import compare_sides
    from attnbench.results.format import read_run
    from attnbench.results.read import read_side

    if len(sides) == 1 and (run := read_run(sides[0])).manifest.sides:
        return compared_live(run, gate.delta_of if said else None)
    if len(sides) != 2:
        raise click.UsageError(
            f"{len(sides)} paths: give two, BASE and NEW (several files of a side stand in a folder), "
            "or one RUN with --baseline"
        )
    base, new = (read_side([side]) for side in sides)
    return compare_sides(base, new, delta_of=gate.delta_of, force=force)


def _within(sides: tuple[Path, ...], baseline: str, gate: Gate, *, said: bool) -> Compared:
    from attnbench.compare.paired import compare_within

    if len(sides) != 1:
        raise click.UsageError(f"{len(sides)} paths: --baseline looks at one RUN")
    return compare_within(sides[0], baseline, gate.delta_of if said else None)


def _summary_file() -> Path:
    """Where a step's summary goes; known before anything is compared."""
    import os

    named = os.environ.get(SUMMARY_VARIABLE)
    if not named:
        raise BadInput(f"--summary: {SUMMARY_VARIABLE} is not set; GitHub sets it in the steps of a workflow")
    return Path(named)


def _append(target: Path, compared: Compared, result: GateResult) -> None:
    from attnbench.reports.compared import markdown

    try:
        with target.open("a", encoding="utf-8") as file:
            file.write(markdown(compared, result))
    except OSError as failure:
        raise BadInput(f"--summary: can't write {str(target)!r}: {failure.strerror}") from failure
