"""What refused a backend, in a word or two, from its record."""

from __future__ import annotations

import re

from attnbench.types.record import Record

NEAR = "near:"
"""Before what was found on the case beside a case."""

_NEARBY = re.compile(r"on a case beside it, \S+: ")

_SIGNS: tuple[tuple[str, str], ...] = (
    (r"in the output of a timed call", "timed calls"),
    (r"the call (changed|wrote to) its \w+ input", "inputs"),
    (r"the call wrote outside", "guards"),
    (r"the output (shares memory|has (shape|dtype|layout|no memory)|is (a|on) )", "output"),
    (r"several elements of the output|the gradient of \w+ has (shape|dtype)", "output"),
    (r"its output can't be compared", "output"),
    (r"the call replaced", "clocks and comparisons"),
    (r"the call (left|started) |the call computes on|it worked on", "threads and children"),
    (r"the call (changed|set|removed|drew) ", "global state"),
    (r"(the gradient of \S+: )?\(?.*(NaN|nan|inf).*expected", "not finite"),
    (r"the memory pass|of the memory", "memory"),
)
"""Of what has no family: beginnings of reasons, and what they are called."""


def caught_by(record: Record) -> tuple[str, ...]:
    """Families of inputs that refused, ``gradients`` for those; else what kind of check did; () for ok.

    What was found on the case beside it begins with ``near:``. A status that is no verdict of the judge's
    (``crashed``, ``error``, ``timeout``, ...) stands for itself.
    """
    if record.status == "ok":
        return ()
    if record.status not in ("mismatch", "suspect"):
        return (record.status,)
    nearby = _NEARBY.match(record.reason)
    reason = record.reason[nearby.end() :] if nearby else record.reason
    of_gradients = reason.startswith("the gradient of ")
    if record.failed_on:
        return tuple(_word(family, of_gradients) for family in record.failed_on)
    kind = next((name for sign, name in _SIGNS if re.match(sign, reason)), record.status)
    return (f"{NEAR}{kind}" if nearby else kind,)


def _word(family: str, of_gradients: bool) -> str:
    """Gradients are judged on ordinary inputs alone, and say so first where they are wrong."""
    return family.replace("normal", "gradients") if of_gradients else family
