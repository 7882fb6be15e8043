"""Selecting cases by the words of a command line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnbench.cases.ids import case_id, parse_case
from attnbench.cases.suites import read_suite
from attnbench.types.case import CacheMode, Case, Dtype, Pass
from attnbench.types.errors import BadCase, BadInput
from attnbench.types.extensions import Suite
from attnbench.types.mask import Mask
from attnbench.types.operation import known_operations
from attnbench.types.record import Shard
from attnbench.types.rule import wrong_constant

if TYPE_CHECKING:
    from attnbench.plugins.registry import Registry


@dataclass(frozen=True)
class Overrides:
    """The changes that the options of a command make to the selected cases.

    rules: keep only the cases of these rules; an error where one of them has none. dtypes, masks, passes:
    every case once with each of them. device, threads, seed, cache, dropout, layout: set in every case. Empty
    and None change nothing.
    """

    rules: tuple[str, ...] = ()
    dtypes: tuple[Dtype, ...] = ()
    masks: tuple[Mask, ...] = ()
    passes: tuple[Pass, ...] = ()
    device: str | None = None
    threads: int | None = None
    seed: int | None = None
    cache: CacheMode | None = None
    dropout: float | None = None
    layout: str | None = None


@dataclass(frozen=True)
class Selection:
    """The selected cases, each once, in the order of the words.

    compiled_on: those on which compiling backends run; None for all. counts: of calls in one step; empty
    where a case has none, or options make several cases of one. shard: which part of a selection they are;
    None for all of it.
    """

    cases: tuple[Case, ...]
    compiled_on: frozenset[Case] | None = None
    counts: Mapping[Case, float] = field(default_factory=dict)
    shard: Shard | None = None


def select(
    words: Sequence[str],
    registry: Registry,
    overrides: Overrides = Overrides(),
    *,
    timed: bool = True,
) -> Selection:
    """Return the cases that ``words`` name: suites, ids of cases, and paths of TOML suites.

    timed: whether the cases will be timed; a suite that is only for checking is then refused.

    Raises:
        BadInput: a word, a rule or a case is unknown or impossible; one sentence.
    """
    for name in overrides.rules:
        registry.rule(name)
    suites = [_suite_of(word, registry) for word in words]
    for suite in suites:
        if timed and suite.check_only:
            raise BadInput(
                f"the suite {suite.name!r} is for checking, not for timing: use attnbench check {suite.name}"
            )
    chosen: dict[Case, bool] = {}
    counts: dict[Case, float] = {}
    several = max(map(len, (overrides.dtypes, overrides.masks, overrides.passes))) > 1
    for suite in suites:
        for position, case in enumerate(suite.cases):
            compiled = suite.compiled is None or position in suite.compiled
            if not overrides.rules or case.rule in overrides.rules:
                for changed in _changed(case, overrides):
                    chosen[changed] = chosen.get(changed, False) or compiled
                    if suite.counts is not None and not several:
                        counts[changed] = counts.get(changed, 0.0) + suite.counts[position]
    _check_rules_found(overrides.rules, suites, chosen)
    for case in chosen:
        check_case(case, registry)
    compiled_on = frozenset(case for case, compiled in chosen.items() if compiled)
    on = None if len(compiled_on) == len(chosen) else compiled_on
    return Selection(tuple(chosen), on, counts if len(counts) == len(chosen) else {})


def check_case(case: Case, registry: Registry) -> None:
    """Raise :class:`BadInput` where a case's rule is unknown, lacks its constants, or does not support it."""
    rule = registry.rule(case.rule)
    if problem := wrong_constant(case, rule):
        raise BadCase(f"case {case_id(case)!r}: {problem}")
    reason = rule.supports(case)
    if reason is not None:
        raise BadCase(f"case {case_id(case)!r}: the rule {case.rule} does not support it: {reason}")


def _suite_of(word: str, registry: Registry) -> Suite:
    if word.endswith(".toml"):
        return read_suite(Path(word))
    if word.endswith(".json"):
        raise BadInput(f"{word!r} is not a suite; attnbench suite from-config makes one of a model's config")
    if word.split("/")[0] in known_operations() or ("/" in word and not Path(word).exists()):
        return Suite(word, "", (parse_case(word),))
    if "/" in word:
        raise BadInput(f"{word!r} is not a suite, an id of a case or a .toml file")
    return registry.suite(word)


def _changed(case: Case, overrides: Overrides) -> Iterator[Case]:
    names = ("device", "threads", "seed", "cache", "dropout", "layout")
    given = {name: getattr(overrides, name) for name in names}
    fixed: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    each = product(
        overrides.dtypes or (case.dtype,), overrides.masks or (case.mask,), overrides.passes or (case.pass_,)
    )
    for dtype, mask, pass_ in each:
        try:
            yield replace(case, dtype=dtype, mask=mask, pass_=pass_, **fixed)
        except BadCase as failure:
            raise BadCase(f"case {case_id(case)!r} with the options applied: {failure}") from failure


def _check_rules_found(rules: Iterable[str], suites: Sequence[Suite], chosen: Iterable[Case]) -> None:
    found = {case.rule for case in chosen}
    there = dict.fromkeys(case.rule for suite in suites for case in suite.cases)
    for name in rules:
        if name not in found:
            raise BadInput(f"no selected case has the rule {name!r}; they have {', '.join(there)}")
