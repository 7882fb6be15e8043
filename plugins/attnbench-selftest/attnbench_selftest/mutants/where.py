"""Conditions on a case and its rule under which a mistake can show. NumPy alone."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from attnbench.testing.mistakes.masks import Added, Make, added_mask
from attnbench.types.case import Case
from attnbench.types.rule import Rule
from attnbench_selftest.mutants.mutant import Applies

Keep = NDArray[np.bool_]

SCALED = ("scaled_dot", "alibi", "softcap", "sinks")
"""Rules that divide by √D."""
UNBOUNDED = ("dot", "scaled_dot", "general", "alibi", "sinks")
"""Rules whose scores grow with q and k; the others keep them within bounds."""


def anywhere(case: Case, rule: Rule) -> bool:
    """Everywhere."""
    return True


def forward(case: Case, rule: Rule) -> bool:
    """No gradients are asked for."""
    return case.pass_ == "forward"


def any_of(*conditions: Applies) -> Applies:
    """One of some conditions holds."""
    return lambda case, rule: any(holds(case, rule) for holds in conditions)


def both(*conditions: Applies) -> Applies:
    """All conditions hold."""
    return lambda case, rule: all(holds(case, rule) for holds in conditions)


@lru_cache(maxsize=8)
def right_mask(case: Case) -> Added:
    """The case's mask as it is added, (B, 1, Lq, Lk); cached, since every mutant asks for it."""
    return added_mask(case)


def kept(case: Case) -> Keep:
    """The pairs that count, (B, Lq, Lk)."""
    return np.isfinite(right_mask(case)[:, 0])


def kept_counts(case: Case) -> NDArray[np.intp]:
    """The number of keys that each query keeps, (B, Lq)."""
    return np.asarray(kept(case).sum(-1))


def choosing(case: Case, rule: Rule) -> Keep:
    """The queries with several keys to choose from, a sink being one more: (B, Lq)."""
    return kept_counts(case) >= (1 if rule.sink is not None else 2)


def keeps_a_key(case: Case, rule: Rule) -> bool:
    """Some query keeps a key, so that not all of the answer is 0."""
    return bool(kept(case).any())


def scores_matter(case: Case, rule: Rule) -> bool:
    """The answer to some query depends on the scores."""
    return bool(choosing(case, rule).any())


def keeps_more_than(count: int) -> Applies:
    """Some query keeps more than so many keys."""
    return lambda case, rule: bool((kept_counts(case) > count).any())


def keeps_beyond(length: int) -> Applies:
    """Some query keeps one of the first so many keys and a later one too."""
    return lambda case, rule: bool(
        (kept(case)[..., :length].any(-1) & kept(case)[..., length:].any(-1)).any()
    )


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
    """The mask that is made so weighs keys of equal scores otherwise than the case's."""

    def applies(case: Case, rule: Rule) -> bool:
        sink = rule.sink is not None
        return not np.allclose(_shares(make(case), sink), _shares(right_mask(case), sink), rtol=0, atol=1e-9)

    return applies


def _shares(mask: Added, sink: bool) -> Added:
    powers = np.exp(mask)
    total = powers.sum(-1, keepdims=True) + sink
    return np.asarray(powers / np.where(total == 0, 1, total))


def drops(case: Case, rule: Rule) -> bool:
    """Some query keeps some keys and drops others, so that dropping matters."""
    counts = kept_counts(case)
    return bool(((counts > 0) & (counts < case.Lk)).any())


def empty_rows(case: Case, rule: Rule) -> bool:
    """Some query keeps no key, and there is no sink to take its weight."""
    return rule.sink is None and bool((kept_counts(case) == 0).any())


def far_out_of_mask(case: Case, rule: Rule) -> bool:
    """Among many dropped keys one can have a logit far above those that are kept."""
    counts = kept_counts(case)
    dropped = case.Lk - counts[counts > 0]
    return unbounded(case, rule) and bool(dropped.sum() >= 64)


def several_heads(case: Case, rule: Rule) -> bool:
    """More query heads than one."""
    return case.H > 1


def shared_in_groups(case: Case, rule: Rule) -> bool:
    """More key/value heads than one, each for several query heads."""
    return 1 < case.Hkv < case.H


def many_key_heads(case: Case, rule: Rule) -> bool:
    """More key/value heads than one, and an answer."""
    return case.Hkv > 1 and keeps_a_key(case, rule)


def later_batches(case: Case, rule: Rule) -> bool:
    """An answer in a batch element behind the first."""
    return bool(kept(case)[1:].any())


def has_layer(case: Case, rule: Rule) -> bool:
    """A whole layer, with projections."""
    return case.layer is not None


def projects_out(case: Case, rule: Rule) -> bool:
    """A layer with an output projection."""
    return case.layer is not None and case.layer.out


def batches_matter(case: Case, rule: Rule) -> bool:
    """Scores matter in a batch element behind the first."""
    return bool(choosing(case, rule)[1:].any())


def last_row_kept(case: Case, rule: Rule) -> bool:
    """The last query of some batch element keeps a key."""
    return bool((kept_counts(case)[:, -1] > 0).any())


def drops_keys(case: Case, rule: Rule) -> bool:
    """The mask drops a key for every query of a batch element."""
    return case.layer is None and not rule.pairs_keys and not kept(case).any(1).all()


def has_float_mask(case: Case, rule: Rule) -> bool:
    """An explicit mask of numbers."""
    return case.mask.adds


def no_sink(case: Case, rule: Rule) -> bool:
    """The rule has no sink: a wrong softmax would give it no gradient at all, which is an error."""
    return rule.sink is None


def several_features(case: Case, rule: Rule) -> bool:
    """More features of q and k than one."""
    return case.D > 1


def features_left(count: int, vector: int) -> bool:
    """Some features are left after whole vectors."""
    return count > vector and count % vector > 0


def bias_added(case: Case, rule: Rule) -> bool:
    """A layer whose projections add a bias."""
    return case.layer is not None and case.layer.bias


def with_backward(case: Case, rule: Rule) -> bool:
    """Gradients are asked for, and there are any of scores."""
    return case.pass_ != "forward" and scores_matter(case, rule)
