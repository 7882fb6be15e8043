"""Selecting cases by the words of a command line, and parts of a selection: shards, and single cases."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnbench.cases.ids import case_id, meant_id, parse_case, parse_storage, storage_fields
from attnbench.cases.suites import read_suite
from attnbench.types.case import CacheMode, Case, Dtype, Pass
from attnbench.types.encoding import parse_encoding, unencoded
from attnbench.types.errors import BadCase, BadInput
from attnbench.types.extensions import Suite
from attnbench.types.mask import Mask
from attnbench.types.operation import known_operations
from attnbench.types.record import Shard
from attnbench.types.rule import wrong_constant
from attnbench.types.words import count_of

if TYPE_CHECKING:
    from attnbench.plugins.registry import Registry


@dataclass(frozen=True)
class Overrides:
    """The changes that the options of a command make to the selected cases.

    rules: keep only the cases of these rules; an error where one of them has none. dtypes, masks, passes,
    batches, storages, encodings: every case once with each of them; the last three as in ids, without
    ``kv=``. device, threads, seed, cache, dropout, layout: set in every case. Empty and None change nothing.
    """

    rules: tuple[str, ...] = ()
    dtypes: tuple[Dtype, ...] = ()
    masks: tuple[Mask, ...] = ()
    passes: tuple[Pass, ...] = ()
    batches: tuple[str, ...] = ()
    storages: tuple[str, ...] = ()
    encodings: tuple[str, ...] = ()
    device: str | None = None
    threads: int | None = None
    seed: int | None = None
    cache: CacheMode | None = None
    dropout: float | None = None
    layout: str | None = None


@dataclass(frozen=True)
class Selection:
    """The selected cases, each once, in the order of the words; those of a stage stand together.

    compiled_on: those on which compiling backends run; None for all. counts: of calls in one step; empty
    where a case has none, or options make several cases of one that differ in more than their cache. stages:
    of these counts, where suites say some; without: what a step computes beside these cases; share: which
    part of a program's time the calls of its suite took. baseline: that of the suites, if all name the same
    one. shard: which part of a selection they are; None for all of it.
    """

    cases: tuple[Case, ...]
    compiled_on: frozenset[Case] | None = None
    counts: Mapping[Case, float] = field(default_factory=dict)
    stages: Mapping[Case, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    share: float | None = None
    baseline: str | None = None
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
    for word in overrides.storages:
        parse_storage(word)
    for word in overrides.encodings:
        parse_encoding(word)
    # A file or a suite that is named twice counts once: its counts would be doubled.
    named = {os.path.realpath(word) if word.endswith(".toml") else word: word for word in reversed(words)}
    suites = [_suite_of(word, registry) for word in reversed(named.values())]
    for suite in suites:
        if timed and suite.check_only:
            raise BadInput(
                f"the suite {suite.name!r} is for checking, not for timing: use attnbench check {suite.name}"
            )
    chosen: dict[Case, bool] = {}
    counts: dict[Case, float] = {}
    stages: dict[Case, str] = {}
    listed = (
        overrides.dtypes, overrides.masks, overrides.passes, overrides.batches, overrides.storages,
    )  # fmt: skip
    # A step has one way to hold its cache, so several ways are several sums of the same counts.
    several = max(map(len, listed)) > 1
    for suite in suites:
        held: dict[Case, str] = {}
        for position, case in enumerate(suite.cases):
            # Cases that differ in their cache alone become the same, and are counted once.
            if overrides.encodings and held.setdefault(unencoded(case), case.kv) != case.kv:
                continue
            compiled = suite.compiled is None or position in suite.compiled
            if not overrides.rules or case.rule in overrides.rules:
                for changed in _changed(case, overrides):
                    chosen[changed] = chosen.get(changed, False) or compiled
                    if suite.counts is not None and not several:
                        counts[changed] = counts.get(changed, 0.0) + suite.counts[position]
                        if suite.stages is not None:
                            stages[changed] = suite.stages[position]
    _check_rules_found(overrides.rules, suites, chosen)
    for case in chosen:
        check_case(case, registry)
    compiled_on = frozenset(case for case, compiled in chosen.items() if compiled)
    on = None if len(compiled_on) == len(chosen) else compiled_on
    baselines = {suite.baseline for suite in suites}
    # A suite of a config has its stages kind by kind of layer; a reader looks for a stage.
    places = {stage: place for place, stage in enumerate(dict.fromkeys(stages.values()))}
    return Selection(
        tuple(sorted(chosen, key=lambda case: places.get(stages.get(case, ""), 0))),
        on,
        counts if len(counts) == len(chosen) else {},
        stages if len(counts) == len(chosen) else {},
        tuple(dict.fromkeys(words for suite in suites for words in suite.without if counts)),
        share=_share(suites, chosen) if counts else None,
        baseline=baselines.pop() if len(baselines) == 1 else None,
    )


def check_case(case: Case, registry: Registry) -> None:
    """Raise :class:`BadInput` where a case's rule is unknown, lacks its constants, or does not support it."""
    rule = registry.rule(case.rule)
    if problem := wrong_constant(case, rule):
        raise BadCase(f"case {case_id(case)!r}: {problem}")
    reason = rule.refuses(case)
    if reason is not None:
        raise BadCase(f"case {case_id(case)!r}: the rule {case.rule} does not support it: {reason}")


def _suite_of(word: str, registry: Registry) -> Suite:
    if word.endswith(".toml"):
        return read_suite(Path(word))
    if word.endswith(".json"):
        raise BadInput(f"{word!r} is not a suite; attnbench suite from-config makes one of a model's config")
    if word.endswith(".jsonl"):
        raise BadInput(f"{word!r} is not a suite; report and compare read stored runs")
    if word.split("/")[0] in known_operations() or ("/" in word and not Path(word).exists()):
        return Suite(word, "", (parse_case(word),))
    if "/" in word:
        raise BadInput(f"{word!r} is not a suite, an id of a case or a .toml file")
    if " " in word:
        meant = meant_id(word)
        hint = f"did you mean {meant!r}?" if meant else "tables shorten names, --details prints whole ids"
        raise BadInput(f"{word!r} is not a suite or an id of a case; {hint}")
    return registry.suite(word)


def _changed(case: Case, overrides: Overrides) -> Iterator[Case]:
    names = ("device", "threads", "seed", "cache", "dropout", "layout")
    given = {name: getattr(overrides, name) for name in names}
    fixed: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    batches = [{"batch": word} for word in overrides.batches] or [{}]
    storages = [{"storage": word} for word in overrides.storages] or [{}]
    encodings = tuple(map(parse_encoding, overrides.encodings)) or (case.kv,)
    each = product(
        overrides.dtypes or (case.dtype,), overrides.masks or (case.mask,), overrides.passes or (case.pass_,),
        batches, storages, encodings,
    )  # fmt: skip
    for dtype, mask, pass_, batch, storage, kv in each:
        try:
            held = storage_fields(batch | storage)
            yield replace(case, dtype=dtype, mask=mask, pass_=pass_, kv=kv, **fixed, **held)
        except BadCase as failure:
            raise BadCase(f"case {case_id(case)!r} with the options applied: {failure}") from failure


def _share(suites: Sequence[Suite], chosen: Iterable[Case]) -> float | None:
    """Return the share of the one suite whose calls are chosen, wherever they find their inputs."""
    if len(suites) != 1:
        return None
    recorded = {replace(case, cache="hot") for case in suites[0].cases}
    return suites[0].share if {replace(case, cache="hot") for case in chosen} == recorded else None


def _check_rules_found(rules: Iterable[str], suites: Sequence[Suite], chosen: Iterable[Case]) -> None:
    found = {case.rule for case in chosen}
    there = dict.fromkeys(case.rule for suite in suites for case in suite.cases)
    for name in rules:
        if name not in found:
            raise BadInput(f"no selected case has the rule {name!r}; they have {', '.join(there)}")


def shard_number(case: str, of: int) -> int:
    """Return the shard of a case, from 1 to ``of``. Its id alone decides, so other cases change nothing."""
    return 1 + int.from_bytes(sha256(case.encode()).digest()[:8], "big") % of


def cut(selection: Selection, text: str) -> Selection:
    """Return the cases of the shard that a text such as ``3/16`` names; there may be none.

    Raises:
        BadInput: the text is not a shard.
    """
    found = re.fullmatch("([0-9]{1,9})/([0-9]{1,9})", text)
    number, of = map(int, found.groups()) if found else (0, 0)
    if not 1 <= number <= of:
        raise BadInput(f"shard {text!r}: give K/N with K from 1 to N; 3/16 is the third of 16 shards")
    return _part(selection, number, of, lambda case: shard_number(case, of) == number)


def only(selection: Selection, names: Collection[str]) -> Selection:
    """Return the cases of some ids.

    Raises:
        BadInput: one of them is not selected.
    """
    wanted = {case_id(parse_case(name)) for name in names}
    if unknown := wanted - {case_id(case) for case in selection.cases}:
        raise BadInput(f"no case {min(unknown)!r} is selected; attnbench list cases lists those that are")
    return _part(selection, 0, 0, wanted.__contains__)


def _part(selection: Selection, number: int, of: int, wanted: Callable[[str], bool]) -> Selection:
    cases = [case for case in selection.cases if wanted(case_id(case))]
    kept, on = frozenset(cases), selection.compiled_on
    return replace(
        selection,
        cases=tuple(cases),
        compiled_on=None if on is None else on & kept,
        counts={case: count for case, count in selection.counts.items() if case in kept},
        shard=Shard(number, of, [case_id(case) for case in selection.cases]),
    )


def shard_words(selection: Selection) -> str:
    """Return a sentence on the shard of a selection; "" if it is whole."""
    shard = selection.shard
    if shard is None:
        return ""
    words = f"shard {shard}: {len(selection.cases)} of {count_of(len(shard.cases), 'case')}"
    if not selection.cases:
        return f"{words}; nothing to run, and no file is written"
    return f"{words}; the total of a step needs all of them, and is left out" if selection.counts else words
