"""What cases that fail have in common and no case that is right has: what an author wants to know first."""

from __future__ import annotations

from collections.abc import Iterable

from attnbench.cases.identity import parse_case
from attnbench.types.case import Case

MOST_SHARED = 2


def features(case: Case) -> dict[str, str]:
    """Features of a case that kernels treat in ways of their own: in words, with what supports would ask."""
    mask = case.mask
    found = {
        "fewer key/value heads than query heads": "case.Hkv != case.H" if case.Hkv < case.H else "",
        "another length of keys than of queries": "case.Lq != case.Lk" if case.Lq != case.Lk else "",
        "one query": "case.Lq == 1" if case.Lq == 1 else "",
        "values of another width than keys": "case.Dv != case.D" if case.Dv != case.D else "",
        "features that are no multiple of 8": "case.D % 8" if case.D % 8 else "",
        "several batch elements": "case.B > 1" if case.B > 1 else "",
        "a mask": "not case.mask.is_none" if not mask.is_none else "",
        "a causal mask": "case.mask.causal is not None" if mask.causal else "",
        f"a causal mask aligned {mask.causal}": f"case.mask.causal == {mask.causal!r}" if mask.causal else "",
        "a window": "case.mask.window is not None" if mask.window else "",
        "padding": "case.mask.padding is not None" if mask.padding else "",
        "an explicit mask": "case.mask.explicit is not None" if mask.explicit else "",
        f"a {mask.explicit} mask": f"case.mask.explicit == {mask.explicit!r}" if mask.explicit else "",
        "a layer": "case.layer is not None" if case.layer is not None else "",
        "gradients": "case.pass_ != 'forward'" if case.pass_ != "forward" else "",
        "dropout": "case.dropout" if case.dropout else "",
        "long sequences": "max(case.Lq, case.Lk) > 128" if max(case.Lq, case.Lk) > 128 else "",
        f"the dtype {case.dtype}": f"case.dtype == {case.dtype!r}",
        f"the rule {case.rule}": f"case.rule == {case.rule!r}",
    }
    return {words: condition for words, condition in found.items() if condition}


def shared(failing: Iterable[str], right: Iterable[str]) -> str:
    """One sentence on what all failing cases have and no right one; "" where there is no such thing."""
    wrong = [features(parse_case(case)) for case in failing]
    fine = [features(parse_case(case)) for case in right]
    if not wrong or not fine:
        return ""
    common = [
        f"{words} ({wrong[0][words]})"
        for words in wrong[0]
        if all(words in other for other in wrong) and not any(words in other for other in fine)
    ]
    if not common:
        return ""
    return f"These are all the cases with {', or '.join(common[:MOST_SHARED])}; without, it is right."
