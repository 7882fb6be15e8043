"""The kinds of records that plugins bring: one line for each, and a hook of that name in the specification.

What loads, gathers, lists and documents plugins goes through this table. A new kind needs its line here, its
hook in :mod:`attnbench.hookspecs`, its type in :mod:`attnbench.types` and its field in ``Registry``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from attnbench import hookspecs
from attnbench.plugins import validating as v
from attnbench.types.backend import Backend
from attnbench.types.fact import EnvironmentFact
from attnbench.types.metric import Metric
from attnbench.types.reporter import Reporter
from attnbench.types.rule import Rule
from attnbench.types.suite import Suite
from attnbench.types.verdict import VerdictRule


@dataclass(frozen=True)
class Kind:
    """A kind of record.

    field: of the registry, where entries stand by name; the hook is ``attnbench_FIELD``. word: one of them in
    a sentence. listed: the word of ``attnbench list`` and the column of ``attnbench plugins``.
    type: of a record. fault: what is wrong with one, in words; its name is looked at elsewhere.
    unlike: besides the name, attributes in which no two records may be alike.
    """

    field: str
    word: str
    listed: str
    type: type
    fault: Callable[[Any], str | None]
    unlike: tuple[str, ...] = ()

    @property
    def hook(self) -> str:
        """The hook that gives records of this kind."""
        return f"{hookspecs.PROJECT}_{self.field}"


KINDS = (
    Kind("rules", "a rule", "rules", Rule, v.rule_fault),
    Kind("backends", "a backend", "backends", Backend, v.backend_fault),
    Kind("suites", "a suite", "suites", Suite, v.suite_fault),
    Kind("verdict_rules", "a verdict rule", "verdicts", VerdictRule, v.verdict_rule_fault),
    Kind("metrics", "a metric", "metrics", Metric, v.metric_fault, unlike=("head",)),
    Kind("reporters", "a reporter", "reporters", Reporter, v.reporter_fault),
    Kind("environment_facts", "an environment fact", "facts", EnvironmentFact, v.environment_fact_fault),
)


def fault(record: Any) -> str | None:
    """What is wrong with a record that a plugin brings, in words; None where nothing is."""
    kind = next(kind for kind in KINDS if isinstance(record, kind.type))
    wrong = v.name_fault(record)
    if wrong is None and (found := kind.fault(record)) is not None:
        wrong = f"{record.name}: {found}"
    return wrong


def hook_table() -> list[dict[str, str]]:
    """Every hook as the documents list it: signature, what it yields, what for, and what lists that."""
    rows = []
    for kind in KINDS:
        specification = getattr(hookspecs, kind.hook)
        signature = str(inspect.signature(specification)).replace("'", "")
        rows.append(
            {
                "hook": f"{kind.hook}{signature}",
                "yields": kind.type.__name__,
                "what": " ".join((inspect.getdoc(specification) or "").split()),
                "listed by": f"attnbench list {kind.listed}",
            }
        )
    return rows
