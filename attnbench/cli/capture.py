"""``attnbench capture``: a suite of the attention calls that a program makes."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from attnbench.cli.options import force_option
from attnbench.cli.output import next_notes, note, say
from attnbench.cli.parameters import THREADS, Whole
from attnbench.types.words import count_of

_LITTLE = 0.05
"""Of a smaller share of a program's time even half is hardly seen."""

if TYPE_CHECKING:
    from attnbench.programs.suite import Captured
    from attnbench.runner.machine import OtherWork


@click.command("capture", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- PROGRAM [ARGS]...")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), default="captured.toml", show_default=True,
    help="The suite to write.",
)  # fmt: skip
@click.option(
    "--steps", type=Whole(1), metavar="N", help="Record N optimizer steps; write the counts per step."
)
@click.option(
    "--threads", type=THREADS, metavar="N,...", show_default="those of the program",
    help="Measure each case with so many threads; 1,2 shows which is faster.",
)  # fmt: skip
@force_option
def command(
    program: tuple[str, ...], out: Path, steps: int | None, threads: tuple[int, ...] | None, force: bool
) -> None:
    """Run a program, and write a suite of the attention calls that it makes.

    Calls of torch's attention functions are counted in all threads and Python child processes, forward and
    backward. Masks are read and told in attnbench's words; no tensor leaves the program. Compiled code runs
    uncompiled meanwhile. The program's output and exit status are its own.

    \b
    attnbench capture -- python train.py --epochs 1
    attnbench capture --steps 10 --out mine.toml -- python train.py
    attnbench run captured.toml
    """
    from attnbench.programs.capture import run_program
    from attnbench.programs.suite import SUITE
    from attnbench.results.targets import check_target, write_files

    if out.suffix != ".toml":
        raise click.BadParameter(f"{str(out)!r}: the name of a suite ends with .toml", param_hint="--out")
    check_target(out, SUITE, force=force)
    start, others = time.monotonic(), _watch()
    status, found = run_program(program, steps)
    took_s = time.monotonic() - start
    words = "" if found.share is None else _share(found, found.share)
    # One thread shares its core fairly with other work; of several, one that waits holds up all others.
    if words and others is not None and any(one.case.threads > 1 for one in found.cases):
        busy = others.share()
        if busy > others.MUCH:
            found, words = replace(found, between_s=0.0), _beside(busy)
    _tell(found, status, took_s, words, out, steps, threads)
    if found.cases:
        write_files({out: found.toml(threads or ()).encode()})
    sys.exit(status)


def _tell(
    found: Captured, status: int, took_s: float, share: str, out: Path, steps: int | None,
    threads: tuple[int, ...] | None,
) -> None:  # fmt: skip
    """Print on stderr what was captured. share: what is known of it, in words."""
    from attnbench.cases.ids import short_id
    from attnbench.cases.suites import parse_suite

    if status:
        note(f"the program ended with status {status}; this was captured until then:")
    if not found.cases:
        why = "" if found.notes else "; does the program's Python have attnbench?"
        note(f"no attention call was captured: nothing was written{why}")
    else:
        if steps and not found.steps:
            say("no optimizer made a step: the counts are of the whole program", err=True)
        note(f"captured {found.classified:,} of {count_of(found.calls, 'attention call')}")
        note(f"{'per step' if found.steps else 'calls':>10}  case")
        for one in found.cases:
            also = f" ({one.also})" if one.also else ""
            note(f"{one.count:>10,.6g}  {short_id(one.case)}{also}")
    for words in found.notes:
        say(words, err=True)
    if found.cases:
        note(f"recording took {found.recording_s:.2g} s of {took_s:.2g} s")
        if share:
            note(share)
        worth = found.share is None or found.share >= _LITTLE or found.has_backward
        next_notes(out, parse_suite(found.toml(threads or ()), ""), worth=worth)
        if words := _longest(found):
            note(words)
        several = sorted({one.case.threads for one in found.cases if one.case.on_host} - {1})
        most, cores = max(threads or several or [1]), _cores()
        if cores is not None and most > cores:
            note(
                f"a run of {most} threads needs as many cores, and there are {cores} here: "
                f"--threads {cores} writes cases for these"
            )
        elif several and not threads and worth:
            note(f"one thread may be faster: --threads 1,{several[0]} writes cases of both")


def _watch() -> OtherWork | None:
    """Begin to watch what other processes use; None where nobody measures: only Linux has what that needs."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    from attnbench.runner.machine import OtherWork

    return OtherWork()


def _cores() -> int | None:
    """Return the cores of this process; None where nobody measures."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    from attnbench.runner.machine import cpu_quota

    return cpu_quota()


def _beside(busy: float) -> str:
    """Say why nobody knows how much of the program's time its attention takes."""
    return (
        f"other processes used {busy:.0%} of the cores, and its threads may have waited for them: only a "
        "recording on an idle machine says how much of the time attention takes"
    )


def _share(found: Captured, share: float) -> str:
    """Say how much of the program's time its attention takes."""
    calls = "forward calls of attention" if found.has_backward else "calls of attention"
    more = ": no choice saves much more"
    if found.has_backward:
        more = ""
    elif share < _LITTLE:
        more += ", so you may stop here"
    return f"{calls} took {share:.0%} of the {found.between_s:.2g} s from the first to the last{more}"


def _longest(found: Captured) -> str:
    """Say at how many keys a choice from a recording ends; "" where no cache grew in it."""
    cases = [one.case for one in found.cases]
    keys = {case.Lk for case in cases if case.is_decode and not case.batch and case.pass_ == "forward"}
    if len(keys) < 2:
        return ""
    return f"a choice from it serves no decode of over {max(keys):,} keys: for more, capture a longer one"
