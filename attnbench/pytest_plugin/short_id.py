"""The id of a case as short as it can be: what is the default is left out, as readers of ids allow."""

from __future__ import annotations

import re

from attnbench.cases.ids import case_id
from attnbench.types.case import Case

_DEFAULTS = ("none", "float32", "cpu", "forward")


def short_id(case: Case) -> str:
    """As ``scaled_dot/H4-L64-D32/causal``; with ``attention/`` before it, it's an id of the same case."""
    operation, rule, sizes, *rest = case_id(case).split("/")
    sizes = sizes.removeprefix("B1-")
    if case.Lq == case.Lk:
        sizes = re.sub(r"Lq(\d+)-Lk\d+", r"L\1", sizes)
    words = [word for place, word in enumerate(rest) if _DEFAULTS[place : place + 1] != (word,)]
    return "/".join([*([operation] if operation != "attention" else []), rule, sizes, *words])
