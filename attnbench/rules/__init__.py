"""The scoring rules that come with attnbench: a plugin like any other."""

from __future__ import annotations

from collections.abc import Iterable

from attnbench.hookspecs import hookimpl
from attnbench.rules.additive import ADDITIVE, ADDITIVE_SUM
from attnbench.rules.alibi import ALIBI
from attnbench.rules.concat_linear import CONCAT_LINEAR
from attnbench.rules.cosine import COSINE
from attnbench.rules.dot import DOT, SCALED_DOT
from attnbench.rules.general import GENERAL
from attnbench.rules.sinks import SINKS
from attnbench.rules.softcap import SOFTCAP
from attnbench.types.rule import Rule


@hookimpl
def attnbench_rules() -> Iterable[Rule]:
    """Plain products first, then learned scores, then what is put around a scaled product."""
    return (
        DOT,
        SCALED_DOT,
        GENERAL,
        ADDITIVE,
        ADDITIVE_SUM,
        CONCAT_LINEAR,
        COSINE,
        ALIBI,
        SOFTCAP,
        SINKS,
    )
