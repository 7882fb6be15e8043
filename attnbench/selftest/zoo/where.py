"""Where a mistake can show: words about a case and its rule that animals say. NumPy alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnbench.selftest.zoo.animal import Applies
from attnbench.selftest.zoo.mask_dials import Make, added
from attnbench.types.case import Case
from attnbench.types.rule import Rule

SCALED = ("scaled_dot", "alibi", "softcap", "sinks")
"""Rules that divide by √D."""
UNBOUNDED = ("dot", "scaled_dot", "general", "alibi", "sinks")
"""Rules whose scores grow with q and k; the others keep them within bounds."""


def anywhere(case: Case, rule: Rule) -> bool:
    """Everywhere."""
    return True


def either(*conditions: Applies) -> Applies:
    """Where one of some conditions holds."""
    return lambda case, rule: any(holds(case, rule) for holds in conditions)


def both(*conditions: Applies) -> Applies:
    """Where all conditions hold."""
    return lambda case, rule: all(holds(case, rule) for holds in conditions)


def kept_counts(case: Case) -> NDArray[np.intp]:
    """How many keys each query keeps, (B, Lq)."""
    return np.asarray(np.isfinite(added(case)[:, 0]).sum(-1))


def keeps_a_key(case: Case, rule: Rule) -> bool:
    """Some query keeps a key, so that not all of the answer is 0."""
    return bool((kept_counts(case) > 0).any())


def scores_matter(case: Case, rule: Rule) -> bool:
    """Some query has keys to choose from, a sink being one more: the answer depends on the scores."""
    fewest = 1 if rule.sink is not None else 2
    return bool((kept_counts(case) >= fewest).any())


def named(*rules: str) -> Applies:
    """For these rules, where scores matter."""
    return lambda case, rule: rule.name in rules and scores_matter(case, rule)


def scaled(case: Case, rule: Rule) -> bool:
    """The rule divides by a √D that isn't 1."""
    return rule.name in SCALED and case.D > 1 and scores_matter(case, rule)


def unbounded(case: Case, rule: Rule) -> bool:
    """Logits can be far out."""
    return rule.name in UNBOUNDED and scores_matter(case, rule)


def other_mask(make: Make) -> Applies:
    """The mask that is made so is another than the case's."""
    return lambda case, rule: not np.array_equal(make(case), added(case))


def drops(case: Case, rule: Rule) -> bool:
    """Some query keeps some keys and drops others, so that dropping matters."""
    counts = kept_counts(case)
    return bool(((counts > 0) & (counts < case.Lk)).any())


def empty_rows(case: Case, rule: Rule) -> bool:
    """Some query keeps no key, and there is no sink to take its weight."""
    return rule.sink is None and bool((kept_counts(case) == 0).any())


def far_out_of_mask(case: Case, rule: Rule) -> bool:
    """A dropped key can have a logit far above those that are kept."""
    return unbounded(case, rule) and drops(case, rule)


def longer_than(length: int) -> Applies:
    """More keys than so many, where scores matter."""
    return lambda case, rule: case.Lk > length and scores_matter(case, rule)


def many_heads(case: Case, rule: Rule) -> bool:
    """More query heads than one, and an answer."""
    return case.H > 1 and keeps_a_key(case, rule)


def many_key_heads(case: Case, rule: Rule) -> bool:
    """More key/value heads than one, and an answer."""
    return case.Hkv > 1 and keeps_a_key(case, rule)


def many_batches(case: Case, rule: Rule) -> bool:
    """A batch, and an answer."""
    return case.B > 1 and keeps_a_key(case, rule)


def with_backward(case: Case, rule: Rule) -> bool:
    """Gradients are asked for, and there are any of scores."""
    return case.pass_ != "forward" and scores_matter(case, rule)
