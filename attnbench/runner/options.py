"""The options of a run: each field says how the command line asks for it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from attnbench.stats.protocol import LAUNCHES, PROTOCOL
from attnbench.types.errors import BadFile, BadInput

LEAST_MEMORY_BYTES = 64 * 1024 * 1024
CHECKS = (
    "near", "guards", "canaries", "weights", "deep_change", "one_key", "loud", "quiet", "strided", "graded",
    "renewal",
)  # fmt: skip
"""Parts of a check that can be left out: the case beside a case, bands of NaN, canaries, weights, kinds of
inputs, and inputs that are renewed while calls are timed."""

LONGEST_TIMEOUT_S = 1_000_000.0
"""A dozen days; the system can't wait for much longer."""
LONGEST_BUDGET_S = LONGEST_TIMEOUT_S
MOST_SETS = 10_000
"""Far beyond what tells anything: a plan of more is a slip of the hand."""

_SETS = ((4.0, 40), (2.0, 30), (0.25, 22), (0.0, 9))
"""From which budget (s) on how many sets. 9 is the least at which a sign test can be sure enough for a
verdict; 30 and 40 have an exact interval at a little over 95 %, 22 at 98.3 %. More sets cost more starting of
processes and make more of the same budget, since processes of the same code differ: at L=512 by 1.1 %,
standard deviation."""

Kind = Literal["seconds", "gib", "count", "share", "backend", "allocator"]


@dataclass(frozen=True)
class Asked:
    """How the command line asks for a field: ``--word VALUE``.

    kind: what the value is. default: what the help shows as the default, where that is not the field's own.
    timing: whether only commands that time have the option.
    """

    word: str
    kind: Kind
    help: str
    default: str = ""
    timing: bool = True


def _asked(value: Any, asked: Asked) -> Any:
    return field(default=value, metadata={"asked": asked})


@dataclass(frozen=True)
class Options:
    """How to check and measure.

    timed: False for checking alone. without: parts of the check to leave out, words of ``CHECKS``; the
    self-test shows by it what each is worth.

    Raises:
        BadInput: a value is impossible.
    """

    timeout_s: float = _asked(
        120.0, Asked("timeout", "seconds", "Longest wait for one answer of a backend.", timing=False)
    )
    memory_limit_bytes: int | None = _asked(
        None,
        Asked(
            "memory-limit", "gib", "Most memory that a backend may allocate.",
            default="four fifths of what is free", timing=False,
        ),
    )  # fmt: skip
    budget_s: float = _asked(0.05, Asked("budget", "seconds", "Measuring time of each backend on each case."))
    sets: int = _asked(
        9,
        Asked(
            "sets", "count", "Fresh processes to measure each backend in; faster and slower need 9.",
            default="from the budget",
        ),
    )  # fmt: skip
    baseline: str = _asked("eager", Asked("baseline", "backend", "The backend that ratios refer to."))
    delta: float = _asked(
        0.02,
        Asked("delta", "share", "The least effect that counts in a verdict, as 2% or 0.02.", default="2%"),
    )
    allocator_pinned: bool = _asked(
        True,
        Asked(
            "allocator", "allocator",
            "While timing, keep freed memory in the process, or leave the C allocator as the system has it.",
        ),
    )  # fmt: skip
    timed: bool = True
    without: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, number in (("budget", self.budget_s), ("timeout", self.timeout_s)):
            if not isinstance(number, int | float):
                raise BadInput(f"a {name} of {number!r}: give a number of seconds")
        if not isinstance(self.delta, int | float):
            raise BadInput(f"a delta of {self.delta!r}: give a fraction between 0 and 1, as 0.02 for 2 %")
        if not 0 < self.budget_s < float("inf"):
            raise BadInput(f"a budget of {self.budget_s:g} s: give a positive number of seconds")
        if self.budget_s > LONGEST_BUDGET_S:
            raise BadInput(f"a budget of {self.budget_s:g} s: {LONGEST_BUDGET_S:.0f} at most")
        if self.sets < 1:
            raise BadInput(f"{self.sets} sets: at least 1 is needed, and 9 for a verdict")
        if self.sets > MOST_SETS:
            raise BadInput(f"{self.sets} sets: {MOST_SETS} at most")
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
        unknown = sorted(set(self.without) - set(CHECKS))
        if unknown:
            raise BadInput(f"no check {unknown[0]!r} to leave out; there are {', '.join(CHECKS)}")

    @property
    def launches(self) -> int:
        """The number of preloaded servers that prepared workers come from; sets take turns with them."""
        return min(LAUNCHES, self.sets) if self.timed else 1

    @property
    def refreshing(self) -> bool:
        """Whether inputs are renewed while calls are timed, and outputs around that compared."""
        return "renewal" not in self.without

    def protocol(self) -> dict[str, Any]:
        """Return what the manifest states: all options, and the constants of the protocol."""
        return asdict(self) | {"without": list(self.without)} | PROTOCOL


def sets_for(budget_s: float) -> int:
    """How many sets to divide a budget into, where the user doesn't say."""
    return next(sets for least_s, sets in _SETS if budget_s >= least_s)


def make_options(**chosen: Any) -> Options:
    """Return options from fields by name; None stands for the default, and for ``sets`` is by the budget.

    Raises:
        BadInput: a value is impossible.
    """
    said = {name: value for name, value in chosen.items() if value is not None}
    options = Options(**said)
    return options if "sets" in said else replace(options, sets=sets_for(options.budget_s))


def options_of(protocol: dict[str, Any]) -> Options:
    """Return the options that a manifest states.

    Raises:
        BadFile: the run follows another protocol than this attnbench, so going on would mix two.
    """
    import msgspec

    names = {one.name for one in fields(Options)}
    if set(protocol) != names | set(PROTOCOL):
        odd = ", ".join(sorted(set(protocol) ^ (names | set(PROTOCOL))))
        raise BadFile(f"the protocol in the manifest is not one of this attnbench: {odd}")
    changed = [f"{name} {protocol[name]}" for name, value in PROTOCOL.items() if protocol[name] != value]
    if changed:
        raise BadFile(
            f"the run was begun by another protocol, with {', '.join(changed)}; this attnbench can't go on "
            "with it: begin anew"
        )
    try:
        return msgspec.convert({name: protocol[name] for name in names}, Options)
    except (msgspec.ValidationError, BadInput) as failure:
        raise BadFile(f"the protocol in the manifest can't be used: {failure}") from failure
