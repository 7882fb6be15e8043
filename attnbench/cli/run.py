"""``attnbench run``: check and time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from attnbench.cli.finish import (
    benchmark_json_option,
    check_benchmark_json,
    check_devices,
    finish,
    gib,
    own_format,
    record_format,
    resumed,
)
from attnbench.cli.options import measuring_options, selected
from attnbench.cli.output import note
from attnbench.cli.parameters import Fraction, NameOf, OneOf, Positive, Whole
from attnbench.cli.plugins_here import load_plugins
from attnbench.cli.progress import plan_words, print_plan, warn_of_busy_cores
from attnbench.runner.options import Options

_TIMING = (
    click.option(
        "--budget", type=Positive("seconds"), metavar="SECONDS", default=Options.budget_s, show_default=True,
        help="Measuring time of each backend on each case.",
    ),
    click.option(
        "--sets", type=Whole(1), metavar="N", show_default="from the budget",
        help="Fresh processes to measure each backend in; faster and slower need 9.",
    ),
    click.option(
        "--baseline", default="eager", type=NameOf("backends"), show_default=True, metavar="NAME",
        help="The backend that ratios refer to.",
    ),
    click.option(
        "--delta", type=Fraction(), metavar="SHARE", default=Options.delta, show_default="2%",
        help="The least effect that counts in a verdict, as 2% or 0.02.",
    ),
    click.option(
        "--allocator", type=OneOf("allocator", ("pinned", "default")), default="pinned", show_default=True,
        help="While timing, keep freed memory in the process, or leave the C allocator as the system has it.",
    ),
)  # fmt: skip


@click.command("run")
@measuring_options(timing=_TIMING, files=(benchmark_json_option,))
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    backends: tuple[str, ...],
    out: Path,
    resume: Path | None,
    timeout: float,
    memory_limit: float | None,
    budget: float,
    sets: int | None,
    baseline: str,
    delta: float,
    allocator: str,
    plan: bool,
    benchmark_json: Path | None,
    trace: bool,
    format_: str,
    **chosen: Any,
) -> None:
    """Check and time backends on cases; without cases, on the suite smoke.

    Each backend is checked against the oracle, then timed in processes of its own. Words are names of suites
    (attnbench list suites), ids of cases (attnbench list cases), or TOML files of suites.

    \b
    attnbench run
    attnbench run gpt2 --backend eager --backend sdpa_flash --budget 1
    attnbench run attention/scaled_dot/H8-L1024-D64/causal --dtype bfloat16
    attnbench run mine.toml --plan
    attnbench run --resume results/mine.jsonl
    """
    check_benchmark_json(benchmark_json)
    registry = load_plugins()
    printed = record_format(ctx, format_, registry)
    if resume is not None:
        finish(
            ctx, resumed(ctx, resume, registry), printed, registry, trace=trace, benchmark_json=benchmark_json
        )
    from attnbench.api import foresee, make_options, start

    options = make_options(
        budget=budget,
        sets=sets,
        baseline=baseline,
        delta=delta,
        allocator_pinned=allocator == "pinned",
        timeout=timeout,
        memory_limit=gib(memory_limit),
    )
    registry.backend(baseline)
    selection = selected(registry, chosen, timed=True)
    check_devices(selection)
    foreseen = foresee(selection, backends or None, registry, options, out)
    if plan:
        print_plan(foreseen, options, own_format(format_, "--plan prints no records"))
        return
    note(plan_words(foreseen, options))
    warn_of_busy_cores(selection.cases)
    finish(
        ctx,
        lambda tell: start(selection, backends or None, registry, options, out, tell),
        printed,
        registry,
        trace=trace,
        benchmark_json=benchmark_json,
    )
