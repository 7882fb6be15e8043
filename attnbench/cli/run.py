"""``attnbench run``: check and time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from attnbench.cli.finish import benchmark_json_option, check_benchmark_json, measure
from attnbench.cli.options import measuring_options


@click.command("run")
@measuring_options(timing=True, files=(benchmark_json_option,))
@click.pass_context
def command(ctx: click.Context, /, *, benchmark_json: Path | None, **chosen: Any) -> None:
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
    measure(ctx, chosen, timed=True, benchmark_json=benchmark_json)
