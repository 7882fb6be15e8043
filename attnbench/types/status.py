"""The words of a record: its statuses, with what each implies, and the checks that a backend can fail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from attnbench.types.exit_status import UNJUDGED

Status = Literal[
    "ok", "inaccurate", "mismatch", "suspect", "unsupported", "unavailable",
    "out_of_memory", "timeout", "crashed", "error", "interrupted", "unjudged",
]  # fmt: skip
"""A word, as run files hold it."""

Kind = Literal["right", "inexact", "wrong", "doubtful", "declined", "failed", "unknown"]


@dataclass(frozen=True)
class Meaning:
    """The consequences of a status.

    kind: ``right`` and ``doubtful`` outputs passed the check, ``inexact`` ones within coarser limits,
    ``wrong`` ones did not; a ``declined`` case was not run, which is not a failure; a ``failed`` one could
    not be measured; of an ``unknown`` one nothing is known, since the judge failed and not the backend.
    short: one word for the cell of a chart. summary: for the docs. verb: what a sentence says of the backend.
    """

    kind: Kind
    short: str
    summary: str
    verb: str

    @property
    def timed(self) -> bool:
        """True if a record with this status may carry a timing."""
        return self.kind in ("right", "inexact", "doubtful")

    @property
    def declined(self) -> bool:
        """True if the backend does not run this case on this machine, which is not a failure."""
        return self.kind == "declined"

    @property
    def unknown(self) -> bool:
        """True if nothing is known of the backend: no sentence may blame it."""
        return self.kind == "unknown"

    @property
    def exit_code(self) -> int:
        """The exit status of a command in which this is the worst outcome."""
        return {"inexact": 1, "wrong": 1, "failed": 3, "unknown": UNJUDGED}.get(self.kind, 0)

    @property
    def style(self) -> str:
        """The colour of its lines in a terminal."""
        styles = {"right": "", "declined": "dim", "wrong": "red", "failed": "red"}
        return styles.get(self.kind, "yellow")


MEANING: Mapping[Status, Meaning] = {
    "ok": Meaning("right", "no ratio", "correct, and timed if the run times", "is right"),
    "inaccurate": Meaning(
        "inexact",
        "inexact",
        "attention, but less exact than its dtype allows; it keeps its time, and ranks nowhere unless "
        "`--accuracy` accepts it. The exit status is 0 if the backend declares it",
        "is less exact than its dtype allows",
    ),
    "mismatch": Meaning(
        "wrong", "wrong", "an output is wrong, or the backend changed what it must not change", "is wrong"
    ),
    "suspect": Meaning(
        "doubtful",
        "suspect",
        "correct, but the time is not credible; it keeps its samples and ranks nowhere",
        "has a time that is not credible",
    ),
    "unsupported": Meaning("declined", "–", "the backend declines the case", "declines"),
    "unavailable": Meaning("declined", "–", "this machine lacks what the backend needs", "can't run"),
    "out_of_memory": Meaning(
        "failed", "memory", "the worker needed too much memory", "needs too much memory"
    ),
    "timeout": Meaning("failed", "timeout", "the worker took too long", "takes too long"),
    "crashed": Meaning("failed", "crash", "the worker ended unexpectedly", "crashes"),
    "error": Meaning(
        "failed", "error", "the worker raised an exception, or its answer was not valid", "ends with an error"
    ),
    "interrupted": Meaning(
        "failed",
        "lost",
        "a process of attnbench was killed, twice; `--resume` measures the backend again",
        "was not measured, since attnbench was killed",
    ),
    "unjudged": Meaning(
        "unknown",
        "unjudged",
        "attnbench could not judge, twice: its own process failed, or the rule raised an exception. Nothing "
        "is known of the backend",
        "could not be judged",
    ),
}
"""The one definition of each status, in the order of tables: a new one needs its word in :data:`Status`, its
line here, and nothing else."""

STATUSES: tuple[Status, ...] = tuple(MEANING)


def status_words(status: Status) -> str:
    """Return a status for people: ``out of memory``; a mismatch is ``wrong``, as in every other place."""
    return "wrong" if status == "mismatch" else status.replace("_", " ")


Check = Literal[
    "",
    "values", "not_finite", "gradients", "dropout", "weights", "timed_values",
    "output_form", "aliasing", "inputs_changed", "bounds", "state", "activity", "leaks",
    "clock", "hidden_work", "kept_answers", "limit",
    "supports", "requires", "graph", "rule_forms", "reference", "trivial_answer",
]  # fmt: skip
"""The name of a check, or "" where none failed or a file does not say which."""

CHECKS: dict[Check, str] = {
    "values": "The output equals the exact answer within the tolerance of its dtype.",
    "not_finite": "NaN and infinity stand only where the exact answer has them.",
    "gradients": "Each gradient equals the exact gradient within the tolerance of its dtype.",
    "dropout": "Outputs of many calls have the mean and the spread that the dropout probability gives.",
    "weights": "The attention weights equal the exact weights, and are 0 where the mask drops a pair.",
    "timed_values": "The outputs of timed calls equal the exact answers.",
    "output_form": "The output is a dense torch.Tensor of the shape, dtype and device of the case.",
    "aliasing": "The output shares no memory with inputs, parameters or earlier outputs.",
    "inputs_changed": "A call leaves its inputs as they are.",
    "bounds": "A call writes nothing before or behind its inputs.",
    "state": "A call leaves the switches of torch and of the process as they are.",
    "activity": "A call ends its threads and processes, and uses no more threads than the case has.",
    "leaks": "The memory of the process does not grow with every call.",
    "clock": "Samples last at least as long as their CPU time, and slots lie in order by the parent's clock.",
    "hidden_work": "Other threads do no work for a call while it is timed.",
    "kept_answers": "A call takes as long on repeated inputs as on new inputs.",
    "limit": "A call is not faster than the machine allows.",
    "supports": "supports() and available() return None or a reason in words, and raise nothing.",
    "requires": "Every module that the backend imports is installed.",
    "graph": "In a case with gradients the output is connected to its inputs.",
    "rule_forms": "The torch form and the NumPy form of the rule agree.",
    "reference": "The rule computes the case, in NumPy for the oracle and in torch for the plain reference.",
    "trivial_answer": "The case refuses answers that need no attention, such as zeros.",
}
"""What a passed check proves, one sentence each."""

assert set(CHECKS) == set(get_args(Check)) - {""}
