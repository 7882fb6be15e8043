"""Points of a search: a case, the values of its inputs, and the way in which the backend is called."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from attnbench.cases.ids import case_id, parse_case
from attnbench.inputs.kinds import NORMAL, SEARCHED, STRESS_INPUTS
from attnbench.types.case import AUTOCAST, Case
from attnbench.types.errors import BadInput
from attnbench.types.words import unknown_name

MEMORY = ("offset", "slice", "features_outside", "same_in_batch", "same_in_heads")
CHOICES = {
    "grad": ("no_grad", "enabled", "q", "k", "v"),
    "q": MEMORY,
    "k": MEMORY,
    "v": MEMORY,
    "upstream": ("expanded", "transposed"),
    "before": ("larger", "smaller", "other_mask"),
    "autocast": ("on",),
    "at_once": ("two_threads",),
}
"""The words of each field of a :class:`Way`."""

MEANING: dict[str, str] = {
    "grad:no_grad": "a call under torch.no_grad()",
    "grad:enabled": "a call with gradients enabled",
    "grad:q": "a gradient wanted of q alone",
    "grad:k": "a gradient wanted of k alone",
    "grad:v": "a gradient wanted of v alone",
    "offset": "{} one element into its storage",
    "slice": "{} a slice of longer memory",
    "features_outside": "{} with its features further apart than its positions",
    "same_in_batch": "{} expanded over the batch (stride 0)",
    "same_in_heads": "{} expanded over heads (stride 0)",
    "upstream:expanded": "an expanded gradient of the output (stride 0)",
    "upstream:transposed": "a transposed gradient of the output",
    "before:larger": "a call on a larger case before each",
    "before:smaller": "a call on a smaller case before each",
    "before:other_mask": "a call with another mask before each",
    "autocast:on": "float32 inputs under torch.autocast, in the dtype of the case",
    "at_once:two_threads": "calls of two threads at once",
}
"""Words of a way, as people read them; those of memory are about one input."""


@dataclass(frozen=True)
class Way:
    """How a backend is called. The default is how a run calls it; each field names one difference."""

    grad: str = ""
    """The mode of a forward call in place of inference mode; in a case with gradients the one input that
    wants one."""
    q: str = ""
    k: str = ""
    v: str = ""
    """Where an input lies. ``same_in_batch`` and ``same_in_heads`` have stride 0, and so the same numbers."""
    upstream: str = ""
    """How the gradient of the output lies."""
    before: str = ""
    """A computation of the same backend before each call."""
    autocast: str = ""
    """``on``: it gets float32 tensors of the numbers of the case, under autocast in the dtype of the case."""
    at_once: str = ""
    """The thread that calls the prepared function meanwhile."""

    @property
    def named(self) -> tuple[str, ...]:
        """The names of the differences."""
        return tuple(field.name for field in fields(self) if getattr(self, field.name))

    def words(self) -> tuple[str, ...]:
        """Return the differences as words, as ``k:slice``."""
        return tuple(f"{name}:{getattr(self, name)}" for name in self.named)

    @property
    def memory(self) -> dict[str, str]:
        """The inputs that do not lie as a run lays them, by name."""
        return {name: word for name, word in (("q", self.q), ("k", self.k), ("v", self.v)) if word}


_VALUES = "values"
PLAINLY = Way()


@dataclass(frozen=True)
class Point:
    """One thing that the search asks: the same text gives the same inputs and calls everywhere."""

    case: Case
    values: str = NORMAL
    """The kind of inputs beside ordinary ones; ``normal`` for none."""
    way: Way = PLAINLY

    def __str__(self) -> str:
        values = () if self.values == NORMAL else (f"{_VALUES}:{self.values}",)
        return " ".join([case_id(self.case), *values, *self.way.words()])


def called_case(case: Case, autocast: str) -> Case:
    """Return the case that a backend is prepared for; under autocast its tensors are in float32."""
    return replace(case, dtype="float32") if autocast else case


def described(word: str) -> str:
    """Return a word of a way as people read it."""
    name, _, value = word.partition(":")
    return MEANING[value].format(name) if value in MEANING else MEANING[word]


def parse_point(text: str) -> Point:
    """Parse the text of a point.

    Raises:
        BadInput: a word is unknown. BadCase: there is no such case.
    """
    case, *words = text.split() or [""]
    values, found = NORMAL, {}
    for word in words:
        name, _, value = word.partition(":")
        allowed = (
            tuple(one.name for one in (*STRESS_INPUTS, *SEARCHED)) if name == _VALUES else CHOICES.get(name)
        )
        if allowed is None:
            raise BadInput(f"{text!r}: {unknown_name('word', name, (_VALUES, *CHOICES))}")
        if value not in allowed:
            raise BadInput(f"{text!r}: {unknown_name(name, value, allowed)}")
        if name == _VALUES:
            values = value
        else:
            found[name] = value
    point = Point(parse_case(case), values, Way(**found))
    if point.way.autocast and (point.case.dtype not in AUTOCAST or point.case.mask.adds):
        raise BadInput(f"{text!r}: autocast needs one of {', '.join(AUTOCAST)}, and no float mask")
    return point
