"""The options of a run: each field says how the command line asks for it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from attnbench.stats.protocol import LAUNCHES, PROTOCOL
from attnbench.types.arithmetic import ARITHMETICS
from attnbench.types.errors import BadFile, BadInput
from attnbench.types.words import unknown_name

LEAST_MEMORY_BYTES = 64 * 1024 * 1024
CHECK_PARTS = (
    "variant_case", "guards", "trivial_answers", "weights", "near_duplicate", "one_hot", "large_logits",
    "unlikely_values", "even", "light_keys", "small_values", "strided", "sliced", "transposed",
    "graded", "two_graphs", "dropped", "refreshed",
)  # fmt: skip
"""Parts of a check that the self-test leaves out: the variant case, bands of NaN, trivial answers, weights,
stress inputs, and inputs that are refreshed while calls are timed."""

LONGEST_S = 1_000_000.0
"""A dozen days; the system cannot wait much longer."""
MOST_REPETITIONS = 10_000
"""More are a slip of the hand."""

_REPETITIONS = ((4.0, 40), (2.0, 30), (0.25, 22), (0.0, 9))
"""The number of repetitions from a budget (s) on. 9 is the least number at which a sign test can reach a
verdict; 30 and 40 have an exact interval at a little over 95 %, 22 at 98.3 %. More repetitions cost more
starts of processes, and use the same budget better, since processes of the same code differ: at L=512 by
1.1 % (standard deviation)."""

Kind = Literal["seconds", "gib", "count", "share", "backend", "arithmetic", "allocator", "text"]


@dataclass(frozen=True)
class UserField:
    """How a user sets a field: ``--word VALUE`` on the command line, and a keyword of :func:`attnbench.run`.

    kind: of the value. default: shown in the help where it is not the field's own. timing: whether only
    commands that time have the option. keyword: "" where it is the word.
    """

    word: str
    kind: Kind
    help: str
    default: str = ""
    timing: bool = True
    keyword: str = ""


def _asked(value: Any, word: str, kind: Kind, help: str, **more: Any) -> Any:
    """Return a field with this default that a user sets as :class:`UserField` says."""
    return field(default=value, metadata={"asked": UserField(word, kind, help, **more)})


@dataclass(frozen=True)
class Options:
    """How to check and measure.

    timed: False for checking alone. without: parts of the check to leave out, from ``CHECK_PARTS``; the
    self-test measures with it what each part detects.

    Raises:
        BadInput: a value is impossible.
    """

    timeout_s: float = _asked(
        120.0, "timeout", "seconds", "Longest wait for one answer of a backend.", timing=False
    )
    memory_limit_bytes: int | None = _asked(
        None, "memory-limit", "gib", "Most memory that a backend may allocate.",
        default="four fifths of what is free", timing=False,
    )  # fmt: skip
    budget_s: float = _asked(0.05, "budget", "seconds", "Measuring time of each backend on each case.")
    repetitions: int = _asked(
        9, "repetitions", "count", "Number of fresh processes for each backend; small differences need 9.",
        default="from the budget",
    )  # fmt: skip
    baseline: str = _asked(
        "", "baseline", "backend", "Backend that ratios refer to.", default="the suite's, or the storage's"
    )
    delta: float = _asked(
        0.02, "delta", "share", "Smallest difference that counts in a verdict, as 2% or 0.02.", default="2%"
    )
    accuracy: str = _asked(
        "", "accuracy", "arithmetic",
        f"Accept and rank results as coarse as this arithmetic: {', '.join(ARITHMETICS)}.",
        default="that of the dtype", timing=False,
    )  # fmt: skip
    allocator_pinned: bool = _asked(
        True, "allocator", "allocator",
        "While timing, keep leaves freed memory with the process; default returns large arrays.",
        keyword="allocator_pinned",
    )  # fmt: skip
    note: str = _asked(
        "", "note", "text", "A sentence that every record will have.", default="none", timing=False
    )
    timed: bool = True
    without: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, seconds in (("budget", self.budget_s), ("timeout", self.timeout_s)):
            if not isinstance(seconds, int | float):
                raise BadInput(f"a {name} of {seconds!r}: give a number of seconds")
            if not 0 < seconds <= LONGEST_S:
                allowed = f"give a positive number of seconds, {LONGEST_S:.0f} at most"
                raise BadInput(f"a {name} of {seconds:g} s: {allowed}")
        if not isinstance(self.delta, int | float) or not 0 < self.delta < 1:
            raise BadInput(f"a delta of {self.delta!r}: give a fraction between 0 and 1, as 0.02 for 2 %")
        if not isinstance(self.repetitions, int) or self.repetitions < 1:
            raise BadInput(
                f"{self.repetitions!r} repetitions: give a whole number, 1 or more; small differences need 9"
            )
        if self.repetitions > MOST_REPETITIONS:
            raise BadInput(f"{self.repetitions} repetitions: give at most {MOST_REPETITIONS}")
        limit = self.memory_limit_bytes
        if limit is not None and (not isinstance(limit, int | float) or limit < LEAST_MEMORY_BYTES):
            raise BadInput(
                f"a memory limit of {limit!r} bytes: a worker needs "
                f"{LEAST_MEMORY_BYTES} ({LEAST_MEMORY_BYTES / 2**30:g} GiB) at least"
            )
        for name, value in (("allocator_pinned", self.allocator_pinned), ("timed", self.timed)):
            if not isinstance(value, bool):
                raise BadInput(f"{name} = {value!r}: give True or False")
        if not isinstance(self.note, str):
            raise BadInput(f"a note of {self.note!r}: give a text")
        if self.accuracy and self.accuracy not in ARITHMETICS:
            raise BadInput(unknown_name("arithmetic", self.accuracy, ARITHMETICS))
        unknown = sorted(set(self.without) - set(CHECK_PARTS))
        if unknown:
            raise BadInput(f"no check {unknown[0]!r} to leave out; there are {', '.join(CHECK_PARTS)}")

    @property
    def launches(self) -> int:
        """The number of preloaded servers that workers come from; repetitions take turns with them."""
        return min(LAUNCHES, self.repetitions) if self.timed else 1

    @property
    def refreshing(self) -> bool:
        """True if inputs are refreshed while calls are timed."""
        return "refreshed" not in self.without

    def protocol(self) -> dict[str, Any]:
        """Return the options and the constants of the protocol, for the manifest."""
        options = asdict(self) | {"without": list(self.without)}
        if not self.note:
            # As in files that are older than the option.
            del options["note"]
        return options | PROTOCOL


def repetitions_for(budget_s: float) -> int:
    """Return the number of repetitions that a budget is divided into unless the user says otherwise."""
    return next(repetitions for least_s, repetitions in _REPETITIONS if budget_s >= least_s)


def make_options(**chosen: Any) -> Options:
    """Return options from fields by name; None stands for the default, which for ``repetitions`` follows the
    budget.

    Raises:
        BadInput: a value is impossible.
    """
    given = {name: value for name, value in chosen.items() if value is not None}
    options = Options(**given)
    return (
        options if "repetitions" in given else replace(options, repetitions=repetitions_for(options.budget_s))
    )


def keyword_options(keywords: dict[str, Any]) -> Options:
    """Return options from the keywords of :func:`attnbench.run`; see :func:`make_options`.

    Raises:
        BadInput: a keyword does not exist, or a value is impossible.
    """
    names = {"timed": "timed"}
    for one in fields(Options):
        if (asked := one.metadata.get("asked")) is not None:
            names[asked.keyword or asked.word.replace("-", "_")] = one.name
    for keyword in keywords:
        if keyword not in names:
            raise BadInput(unknown_name("option", keyword, names))
    return make_options(**{names[keyword]: value for keyword, value in keywords.items()})


def options_of(protocol: dict[str, Any]) -> Options:
    """Return the options that a manifest states.

    Raises:
        BadFile: the run follows another protocol, so continuing it would mix two.
    """
    import msgspec

    protocol = {"note": ""} | protocol
    names = {one.name for one in fields(Options)}
    odd = sorted(set(protocol) ^ (names | set(PROTOCOL)))
    odd += [
        f"{name} {protocol[name]}" for name, value in PROTOCOL.items() if protocol.get(name, value) != value
    ]
    if odd:
        raise BadFile(
            f"the run follows another protocol ({', '.join(odd)}), so this attnbench cannot go on with it: "
            "begin anew"
        )
    try:
        return msgspec.convert({name: protocol[name] for name in names}, Options)
    except (msgspec.ValidationError, BadInput) as failure:
        raise BadFile(f"the protocol in the manifest can't be used: {failure}") from failure
