"""Rules, backends and a registry that stand for real ones: only what counting and choosing reads."""

from __future__ import annotations

from attnbench.plugins.registry import Entry, Registry
from attnbench.types.backend import Backend
from attnbench.types.case import Case
from attnbench.types.extensions import Source, Suite
from attnbench.types.rule import Parameter, Rule, Scoring

SOURCE = Source("mine", "mine_module", "mine-dist", "1.0")


def rule(name: str = "dot", **fields: object) -> Rule:
    return Rule(
        name, "q·k", "a test", reference=lambda q, k, p, i: q @ k.T, bind=lambda c, p: Scoring(), **fields
    )


def backend(**fields: object) -> Backend:
    return Backend("mine", "a test", prepare=lambda setup: lambda q, k, v: q, **fields)


def two_parameters(case: Case) -> tuple[Parameter, ...]:
    def zeros(rng: object, H: int, shape: tuple[int, ...]) -> object:
        raise AssertionError("counting draws nothing")

    return (Parameter("w", (case.D, 2), zeros), Parameter("b", (), zeros))


def refuses_unpaired(case: Case) -> str | None:
    return None if case.Lq == case.Lk else "it pairs each query with a key"


def registry(*suites: Suite, rules: tuple[str, ...] = ("dot", "scaled_dot", "additive")) -> Registry:
    all_rules = [*map(rule, rules), rule("concat_linear", supports=refuses_unpaired)]
    return Registry(
        rules={r.name: Entry(r, SOURCE) for r in all_rules},
        backends={"mine": Entry(backend(), SOURCE)},
        suites={s.name: Entry(s, SOURCE) for s in suites},
        plugins=(SOURCE,),
        verdict_rules={},
        faults=(),
    )
