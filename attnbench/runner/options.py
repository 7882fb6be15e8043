"""The options of a run, and what a run is asked to do."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from attnbench.plugins.registry import Registry
from attnbench.types.case import Case
from attnbench.types.errors import BadFile, BadInput

LEAST_MEMORY_BYTES = 64 * 1024 * 1024
CHECKS = (
    "near", "guards", "canaries", "weights", "deep_change", "one_key", "loud", "quiet", "strided", "graded",
)  # fmt: skip
"""What a check has besides ordinary inputs: the case beside a case, bands of NaN, canaries, weights and
families."""

LONGEST_TIMEOUT_S = 1_000_000.0
"""A dozen days; the system can't wait for much longer."""
LONGEST_BUDGET_S = LONGEST_TIMEOUT_S
MOST_SETS = 10_000
"""Far beyond what tells anything: a plan of more is a slip of the hand."""


@dataclass(frozen=True)
class Options:
    """How to measure.

    budget_s: measuring time of each backend on each case. sets: fresh processes each is measured in;
    fixed before measuring. launches: servers that sets take turns with. stretches: parts of a set between
    which inputs are renewed. baseline: the backend that ratios refer to. delta: the least effect that counts
    in a verdict, as a fraction. turn_s: what one
    sample should last, warm_s: untimed calls before it. timeout_s: the longest wait for any one answer of a
    worker. memory_limit_bytes: what a worker may allocate; None for four fifths of what is free.
    oracle_flops: what solving one draw in float64 may cost before query rows are sampled.
    timed: False for checking alone.
    Parts of the protocol that can be switched off, to see what they are worth: pinned, every contender on the
    same core; put_first, preferred there to other processes, where the system allows it; shuffled, started in
    random order; balanced, turns in balanced random order; lockstep, turns one after the other instead of a
    block of each; allocator_pinned, freed memory kept in the process; verified, inputs renewed within
    stretches and outputs around that compared. without: checks that are left out, for the same reason: words
    of ``CHECKS``.
    """

    budget_s: float = 0.05
    sets: int = 9
    launches: int = 3
    stretches: int = 2
    baseline: str = "eager"
    delta: float = 0.02
    turn_s: float = 0.0004
    warm_s: float = 0.0002
    timeout_s: float = 120.0
    memory_limit_bytes: int | None = None
    oracle_flops: float = 4e9
    timed_draws: int = 3
    timed: bool = True
    pinned: bool = True
    put_first: bool = True
    shuffled: bool = True
    balanced: bool = True
    lockstep: bool = True
    allocator_pinned: bool = True
    verified: bool = True
    without: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.budget_s < float("inf"):
            raise BadInput(f"a budget of {self.budget_s:g} s: give a positive number of seconds")
        if self.budget_s > LONGEST_BUDGET_S:
            raise BadInput(f"a budget of {self.budget_s:g} s: {LONGEST_BUDGET_S:.0f} at most")
        if self.sets < 1:
            raise BadInput(f"{self.sets} sets: at least 1 is needed, and 9 for a verdict")
        if self.sets > MOST_SETS:
            raise BadInput(f"{self.sets} sets: {MOST_SETS} at most")
        if self.launches < 1:
            raise BadInput(f"{self.launches} launches: at least 1 is needed")
        if not 0 < self.delta < 1:
            raise BadInput(f"a delta of {self.delta:g}: give a fraction between 0 and 1, as 0.02 for 2 %")
        if not 0 < self.timeout_s <= LONGEST_TIMEOUT_S:
            raise BadInput(
                f"a timeout of {self.timeout_s:g} s: give a positive number of seconds, "
                f"{LONGEST_TIMEOUT_S:.0f} at most"
            )
        if self.memory_limit_bytes is not None and self.memory_limit_bytes < LEAST_MEMORY_BYTES:
            raise BadInput(
                f"a memory limit of {self.memory_limit_bytes} bytes: a worker needs "
                f"{LEAST_MEMORY_BYTES} ({LEAST_MEMORY_BYTES / 2**30:g} GiB) at least"
            )
        if min(self.stretches, self.timed_draws) < 1 or not (
            0 < self.turn_s < float("inf") and self.oracle_flops > 0
        ):
            raise BadInput(
                "stretches, timed draws, seconds of a turn and operations of the oracle are above 0"
            )
        if not 0 <= self.warm_s < float("inf"):
            raise BadInput(f"{self.warm_s:g} s of warm calls: give 0 or more")

        unknown = sorted(set(self.without) - set(CHECKS))
        if unknown:
            raise BadInput(f"no check {unknown[0]!r} to leave out; there are {', '.join(CHECKS)}")

    def protocol(self) -> dict[str, Any]:
        """All dials by name, for the manifest."""
        return asdict(self)


def options_of(protocol: dict[str, Any]) -> Options:
    """The options that a manifest states, every dial of them.

    Raises:
        BadFile: a dial is missing, unknown, or of the wrong kind: other dials would mix two protocols.
    """
    import msgspec

    names = {field.name for field in fields(Options)}
    if set(protocol) != names:
        odd = ", ".join(sorted(set(protocol) ^ names))
        raise BadFile(f"the protocol in the manifest is not one of this attnbench: {odd}")
    try:
        return msgspec.convert(protocol, Options)
    except (msgspec.ValidationError, BadInput) as failure:
        raise BadFile(f"the protocol in the manifest can't be used: {failure}") from failure


def command_line() -> tuple[str, ...]:
    """The command that this process was started with, as people write it: its program has no folder."""
    program = Path(sys.argv[0]).name
    return ("attnbench" if program == "__main__.py" else program, *sys.argv[1:])


@dataclass(frozen=True)
class Order:
    """What a run is asked to do.

    backends: in this order. named: those asked for by name, whose refusal is an error to the user.
    compiled_on: ids of the cases on which compiling backends run unless named; None for all.
    command: argv, for the manifest. asked: by case (its id), the backends that are asked for it where that is
    not all of them; a run that is resumed asks all.
    """

    cases: tuple[Case, ...]
    backends: tuple[str, ...]
    named: tuple[str, ...] = ()
    compiled_on: frozenset[str] | None = None
    command: tuple[str, ...] = ()
    asked: Mapping[str, tuple[str, ...]] | None = None

    def names(self, case: str) -> tuple[str, ...]:
        """The backends that are asked for a case, by its id."""
        return self.backends if self.asked is None else self.asked.get(case, ())


def left_out(order: Order, registry: Registry, case: str) -> frozenset[str]:
    """Backends that are left out of a case (its id), though they'd run, because they compile for seconds."""
    if order.compiled_on is None or case in order.compiled_on:
        return frozenset()
    return frozenset(
        name for name in order.backends if registry.backends[name].record.compiles and name not in order.named
    )
