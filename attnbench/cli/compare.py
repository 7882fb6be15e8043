"""``attnbench compare``: two sides, stored or measured now, and the gate between them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from attnbench.cli.options import (
    RUNNING,
    SELECTION,
    CommonFirst,
    decorated,
    format_option,
    given_options,
    options_of,
    selected,
)  # fmt: skip
from attnbench.cli.output import colourful, note, print_text, say, width
from attnbench.cli.parameters import (
    BACKEND,
    SHARE,
    Positive,
    Whole,
    load_plugins,
    named_plugins,
    plugin_option,
)
from attnbench.types.errors import BadInput
from attnbench.types.words import clean, count_of

if TYPE_CHECKING:
    from attnbench.compare.gate import Gate
    from attnbench.live.sides import TwoSides
    from attnbench.plugins.registry import Registry
    from attnbench.results.format import StoredRun
    from attnbench.types.compared import Compared
    from attnbench.types.words import Format

SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
LIVE_BUDGET_S = 0.3
"""For each side of each backend on each case: more than a run takes, to tell small differences."""
LIVE_REPETITIONS = 25
"""Many short repetitions tell more than few long ones, because processes of the same code differ. Of 20
identical cells 14 were ``same`` with 16 repetitions of 0.25 s in all, 15 with 16 of 0.4 s, and 17 with 25 of
0.3 s, which took the least time."""

_OPTIONS = decorated(
    click.option(
        "--baseline", type=BACKEND, metavar="NAME",
        help="Compare the backends of one run with this backend.",
    ),
    click.option(
        "--force", is_flag=True,
        help="Compare sides that were measured under different conditions; all output says so.",
    ),
    click.option(
        "--fail-on", "fail_on", metavar="VERDICTS",
        show_default="slower,mismatch,missing; with --baseline mismatch,missing",
        help="Verdicts that fail the gate, separated by commas: slower, mismatch, missing, unclear; or "
        "the word nothing.",
    ),
    click.option(
        "--delta", type=SHARE, metavar="SHARE", show_default="2%",
        help="Smallest difference that counts, as 2% or 0.02.",
    ),
    click.option(
        "--gate", "gate_file", type=click.Path(path_type=Path), metavar="FILE",
        help="TOML file of the gate: delta, fail-on, strict, and [[cells]] with exceptions.",
    ),
    click.option("--strict", is_flag=True, help="Fail on every warning too, and on what --force allowed."),
    click.option(
        "--summary", is_flag=True,
        help=f"Append the comparison as Markdown to the file that {SUMMARY_VARIABLE} names.",
    ),
    plugin_option,
    click.option("--details", is_flag=True, help="Show every cell, by case, and not only what changed."),
    click.option("--legend", is_flag=True, help="Explain the columns and words of the table."),
    format_option,
    click.option("--ref", metavar="COMMIT", help="Measure two commits now: this one is the base side."),
    click.option(
        "--head", metavar="COMMIT", show_default="., your working tree",
        help="The commit of the head side.",
    ),
    click.option(
        "--ref-python", metavar="PYTHON",
        help="The interpreter of the base side, or the folder of its environment.",
    ),
    click.option("--head-python", metavar="PYTHON", help="The same for the head side."),
    *SELECTION,
    *RUNNING,
    click.option(
        "--all", "everything", is_flag=True,
        help="Also measure backends whose code is the same on both sides.",
    ),
    click.option(
        "--budget", "budget_s", type=Positive("seconds"), metavar="SECONDS",
        default=LIVE_BUDGET_S, show_default=True,
        help="Measuring time of each side of each backend on each case.",
    ),
    click.option(
        "--repetitions", type=Whole(1), metavar="N", default=LIVE_REPETITIONS, show_default=True,
        help="Number of fresh processes for each backend.",
    ),
)  # fmt: skip


_FIRST = (
    "baseline", "force", "fail_on", "delta", "gate_file", "strict", "summary", "plugin", "details", "legend",
    "format_", "ref",
)  # fmt: skip


@click.command("compare", cls=CommonFirst, first=_FIRST, rest="With --ref or --ref-python")
@click.argument("words", nargs=-1, metavar="[BASE NEW | RUN | SUITE | CASE]...")
@_OPTIONS
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
    details: bool,
    legend: bool,
    format_: Format,
    **live: Any,
) -> None:
    """Compare two sides: stored runs of attnbench or pytest-benchmark, or commits that are measured now.

    \b
    attnbench compare --ref main --head HEAD       two commits, live, on smoke
    attnbench compare --ref main gpt2 --backend mine
    attnbench compare BASE NEW                     two files, or folders of them
    attnbench compare RUN --baseline sdpa_flash    ratios to another backend

    \b
    Exit status:
      0  the gate holds
      1  the gate fails
      2  the sides can't be compared: missing, damaged, or measured
         under different conditions
      3  no cell, or none of a backend of --backend, is timed on both sides
      4  nothing is known of a cell: attnbench could not judge it, twice
    """
    from attnbench.compare.gate import hold, with_accepted
    from attnbench.reports.compared import render_compared
    from attnbench.reports.table import View

    summary_file = _summary_file() if summary else None
    with _failure_in(summary_file):
        gate = _gate(fail_on, delta, gate_file, strict=strict, within=baseline is not None)
        if any(live[name] is not None for name in ("ref", "head", "ref_python", "head_python")):
            for option, used in (("--baseline", baseline is not None), ("--force", force)):
                if used:
                    raise click.UsageError(f"{option} works on stored runs only: leave out {option} or --ref")
            told: tuple[str, ...] = ()
            if gate_file is not None and live["ref"] not in (None, "."):
                from attnbench.live.accepted import accepting_anew

                gate, told = accepting_anew(gate, gate_file, live["ref"], Path.cwd())
            advise = summary or format_ in ("table", "markdown")
            compared = _measured_now(words, live, gate, advise=advise)
            compared = replace(compared, warnings=(*compared.warnings, *told))
        else:
            if given := given_options(ctx, live):
                raise click.UsageError(f"{given[0]} is for sides that are measured now: give --ref too", ctx)
            own_delta = delta is not None or gate_file is not None
            compared = _stored(
                [Path(word) for word in words], baseline, gate, force=force, own_delta=own_delta
            )
    compared = with_accepted(compared, gate)
    result = hold(compared, gate, "" if gate_file is None else str(gate_file), named_plugins())
    view = View(width(), colourful(), details=details, legend=legend)
    print_text(render_compared(compared, result, format_, view))
    if format_ in ("csv", "json"):
        # A program that reads the cells looks at no warnings; who looks at its log sees them.
        for warning in result.warnings:
            say(f"attnbench: warning: {warning}", err=True)
    if summary_file is not None:
        from attnbench.reports.compared import markdown

        _append(summary_file, markdown(compared, result))
    ctx.exit(result.exit_code)


@contextmanager
def _failure_in(summary_file: Path | None) -> Iterator[None]:
    """Write into the summary why nothing is compared: the page of a red job would be empty."""
    try:
        yield
    except BadInput as failure:
        if summary_file is not None:
            from attnbench.reports.formats import as_text

            _append(summary_file, f"❌ attnbench compare: {as_text(clean(str(failure)))}\n")
        raise


def _append(summary_file: Path, text: str) -> None:
    try:
        with summary_file.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as failure:
        raise BadInput(f"--summary: can't write {str(summary_file)!r}: {failure.strerror}") from failure


def _summary_file() -> Path:
    named = os.environ.get(SUMMARY_VARIABLE)
    if not named:
        raise BadInput(
            f"--summary: {SUMMARY_VARIABLE} is not set. GitHub sets it in a workflow; elsewhere "
            f"name a file: {SUMMARY_VARIABLE}=summary.md attnbench compare …"
        )
    return Path(named)


def _gate(fail_on: str | None, delta: float | None, file: Path | None, *, strict: bool, within: bool) -> Gate:
    """Return the gate of a file, if there is one, changed by the options."""
    from msgspec import structs

    from attnbench.compare.gate import FAILS_ON_WITHIN, Gate, outcomes, overridden, read_gate

    gate = Gate(fail_on=FAILS_ON_WITHIN) if within else Gate()
    if file is not None:
        gate = read_gate(file, gate)
    gate = overridden(gate, None if fail_on is None else outcomes(fail_on), delta)
    return structs.replace(gate, strict=strict or gate.strict)


def _stored(paths: list[Path], baseline: str | None, gate: Gate, *, force: bool, own_delta: bool) -> Compared:
    """Compare two stored sides, or within one stored run. own_delta: not the delta of the run itself."""
    from attnbench.compare.paired import compare_within, compared_live
    from attnbench.compare.stored import compare_sides
    from attnbench.results.format import read_run
    from attnbench.results.read import read_side

    delta_of = gate.delta_of if own_delta else None
    for path in paths:
        if not path.exists():
            raise BadInput(f"no file {str(path)!r}; to measure a suite or a case, give --ref")
    if baseline is not None:
        if len(paths) != 1:
            raise click.UsageError(f"{count_of(len(paths), 'path')}: give one RUN with --baseline")
        return compare_within(paths[0], baseline, delta_of)
    if len(paths) == 1 and (run := read_run(paths[0])).manifest.sides:
        return compared_live(run, delta_of)
    if len(paths) != 2:
        raise click.UsageError(
            f"{count_of(len(paths), 'path')}: give two (BASE NEW; a folder may hold several files), one RUN "
            "with --baseline, or --ref for commits"
        )
    base, new = (read_side([path]) for path in paths)
    return compare_sides(base, new, delta_of=gate.delta_of, force=force)


def _measured_now(words: tuple[str, ...], chosen: dict[str, Any], gate: Gate, *, advise: bool) -> Compared:
    """Measure both sides, with progress on stderr, and compare them. advise: look at wrong outputs."""
    from attnbench.cli.progress import progress
    from attnbench.cli.run import check_devices, warn_of_busy_cores
    from attnbench.compare.paired import compared_live
    from attnbench.live.measure import choose_backends, measure_live, nothing_measured
    from attnbench.live.sides import two_sides
    from attnbench.stats.verdict import repetitions_before_look

    registry = load_plugins()
    selection = selected(registry, chosen | {"words": words}, timed=True)
    check_devices(selection)
    pythons = chosen["ref_python"], chosen["head_python"]
    ref, head = chosen["ref"], chosen["head"]
    if ref is not None and head is None and pythons[1] is None:
        head = "."
    with two_sides(ref, head, *pythons, registry, Path.cwd()) as sides:
        named = chosen["backends"]
        choice = choose_backends(sides, registry, selection.cases, named, everything=chosen["everything"])
        if not choice.measured:
            return nothing_measured(sides, choice)
        cells = len(choice.measured) * len(selection.cases)
        most = f"at most {count_of(cells, 'cell')}"
        options = options_of(chosen | {"delta": gate.least_delta}, timed=True)
        note(
            f"{sides.base.name} against {sides.head.name}: {most}, each side measured for "
            f"{options.budget_s:g} s in {options.repetitions} repetitions, longer where calls are slow; "
            f"decided cells stop after {repetitions_before_look(cells)}"
        )
        warn_of_busy_cores(selection.cases)
        with progress() as tell:
            run = measure_live(sides, selection, choice, named, registry, options, chosen["out"], tell)
        note(f"stored in {run.path}")
        compared = compared_live(run, gate.delta_of)
        # Now, while the files of the commit are there.
        advice = _advice_on(compared, run, sides, registry) if advise else ()
        return replace(compared, advice=advice)


def _advice_on(compared: Compared, run: StoredRun, sides: TwoSides, registry: Registry) -> tuple[str, ...]:
    """Return advice on the wrong outputs of head, as ``attnbench check`` there would give it.

    Where no known mistake is found it begins with what is wrong.
    """
    from msgspec import structs

    from attnbench.types.compared import HEAD, sided

    wrong = {cell.backend: sided(cell.backend, HEAD) for cell in compared.cells if cell.verdict == "mismatch"}
    if not wrong:
        return ()
    from attnbench.runner.processes import Interpreter
    from attnbench.testing.judge import advice_on

    note("asking again, to find the cause")
    there = sides.candidates()
    head = replace(registry, backends={name: there[name][HEAD] for name in wrong})
    # Without those that are right: a condition that tells them apart would fit so few cases by chance.
    records = [
        structs.replace(record, backend=name)
        for name, candidate in wrong.items()
        for record in run.records
        if record.backend == candidate and not record.passed
    ]
    where = Interpreter(sides.head.python, sides.head.environment())
    found = advice_on(records, tuple(wrong), head, where, quick=True)
    return tuple(
        one.advice if one.mistake else f"{one.backend}: {one.problem} {one.do}"
        for one in found
        if one.about == "answers"
    )
