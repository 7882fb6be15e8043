"""The zoo before the judge: runs made as any run is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attnbench import __version__
from attnbench.plugins.registry import Registry, load_registry
from attnbench.plugins.sources import installed
from attnbench.runner.moment import Progress
from attnbench.runner.options import CHECKS, Options
from attnbench.runner.order import Order
from attnbench.runner.run import start_run
from attnbench.runner.run_file import read_run
from attnbench.selftest.caught_by import caught_by
from attnbench.selftest.judge_plan import Round
from attnbench.selftest.kills import Outcome
from attnbench.types.errors import BadInput
from attnbench.types.source import Source

ZOO = Source("zoo", "attnbench.selftest.zoo", "attnbench", __version__)
"""Loaded by the self-test alone, so that no list shows its backends."""

RENEWAL = "renewal"
WITHOUT = (*CHECKS, RENEWAL)
"""Checks that can be left out: those of a run, and inputs renewed while calls are timed."""

BASELINE = "right_plain"


def registry() -> Registry:
    """All that is installed, and the zoo."""
    return load_registry([*installed(), ZOO])


def options_without(without: Sequence[str], *, timed: bool) -> Options:
    """Options of a run of the zoo that leaves some checks out; times are of no interest."""
    unknown = sorted(set(without) - set(WITHOUT))
    if unknown:
        raise BadInput(f"no check {unknown[0]!r} to leave out; there are {', '.join(WITHOUT)}")
    changes: Mapping[str, Any] = {
        "without": tuple(check for check in CHECKS if check in without),
        "verified": RENEWAL not in without,
    }
    # As many sets as a run has at least: who is found by what half of all draws change may pass in two.
    return Options(timed=timed, baseline=BASELINE, **changes)


def outcomes_of(
    round_: Round,
    seed: int,
    found: Registry,
    folder: Path,
    without: Sequence[str] = (),
    progress: Progress | None = None,
) -> list[Outcome]:
    """Run a round; what became of every animal in every case that it was asked for.

    Raises:
        MeasuringFailed, Interrupted: as :func:`attnbench.runner.run.start_run`.
    """
    options = options_without(without, timed=round_.timed)
    asked = dict(round_.animals)
    if round_.timed:
        asked = {case: (BASELINE, *names) for case, names in asked.items()}
    names = tuple(dict.fromkeys(name for its in asked.values() for name in its))
    order = Order(round_.cases, names, command=("attnbench", "selftest", "judge"), asked=asked)
    stored = read_run(start_run(order, found, options, folder, progress))
    return [
        Outcome(
            r.backend,
            r.case,
            seed,
            round_.timed,
            r.status,
            caught_by(r),
            "" if r.status == "ok" else r.reason,
        )
        for r in stored.records
    ]
