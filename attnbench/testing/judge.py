"""Judging backends on the kit's cases, as ``attnbench check`` does, and reporting the result."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from attnbench.cases.ids import parse_case
from attnbench.cases.select import Overrides
from attnbench.plugins.registry import Registry, load_wanted, named_by
from attnbench.plugins.sources import installed, uninstalled_project
from attnbench.runner.forecast import RunPlan, with_baseline
from attnbench.runner.options import Options, make_options
from attnbench.runner.processes import HERE, Interpreter
from attnbench.runner.run import start_run
from attnbench.testing.cases import NO_OPTIONS, ChosenCases, ConformanceCase, absent, choose
from attnbench.testing.diagnosis_process import Asked, Diagnosed, Smallest, Unlike, Unsteady, look
from attnbench.testing.findings import Counts, Finding, NotConforming, Report, merged
from attnbench.testing.problems import findings_of, looks
from attnbench.testing.two_ways import may_be_expanded, may_be_halved
from attnbench.types.encoding import is_encoded
from attnbench.types.errors import BadInput
from attnbench.types.extensions import Source
from attnbench.types.record import Record, Shard
from attnbench.types.rule import Rule
from attnbench.types.status import MEANING
from attnbench.types.words import count_of, unknown_name

BY_ANY = "eager"
"""Computes any rule in the plainest way."""
COMPUTED_AGAIN = 4
"""Small cases with right answers that are computed repeatedly in one process."""
TWO_WAYS = 2
"""Right cases that are computed on two halves of the keys, and so many with a latent head from its heads."""
QUICK_LOOKS = 2
"""Cases of a backend that get a close look beside a comparison: the simplest show a known mistake best."""


@dataclass(frozen=True)
class Plan:
    """The cases of each backend, by name. unavailable: by name, why no case of a backend can be checked."""

    choices: Mapping[str, ChosenCases]
    unavailable: Mapping[str, str]

    def cases(self, large: bool) -> dict[str, tuple[str, ...]]:
        """Return the backends that are judged on each case, by its id."""
        asked: dict[str, tuple[str, ...]] = {}
        for name, choice in self.choices.items():
            for one in choice.cases:
                if large or not one.large:
                    asked[one.id] = (*asked.get(one.id, ()), name)
        return asked


@dataclass(frozen=True)
class Found:
    """Backends by name, in a registry that has them. rules: those that the plugin brings itself."""

    registry: Registry
    backends: tuple[str, ...]
    rules: tuple[str, ...] = ()

    def only(self) -> str:
        """Return the name of the only backend. Raises :class:`BadInput` where there are more or none."""
        if len(self.backends) != 1:
            names = ", ".join(self.backends) or "none"
            raise BadInput(f"the plugin brings {len(self.backends)} backends ({names}): name one of them")
        return self.backends[0]


def located(backend: str | Path) -> Found:
    """Find what to check: a backend by its name, or all of the file or module of a plugin.

    Raises:
        BadInput: there is no such thing.
    """
    if not isinstance(backend, str | Path):
        raise BadInput(
            f"{type(backend).__name__}: give the name of an installed backend or the file of a plugin, as in "
            "check_backend('my_kernel.py')"
        )
    word = str(backend).strip()
    registry = load_wanted()
    if word in registry.backends:
        return Found(registry, (word,))
    if word.endswith(".py") or os.sep in word or "." in word:
        return brought_by([word], load_wanted([word]))
    if project := uninstalled_project(Path.cwd()):
        raise BadInput(
            f"no backend {word!r}: {project}, the package of this folder, is not installed; "
            "run pip install -e '.[test]' first"
        )
    raise BadInput(
        f"{unknown_name('backend', word, registry.backends)} Or name a file, for example my_kernel.py."
    )


def brought_by(words: Sequence[str], registry: Registry) -> Found:
    """Return all backends and rules of the plugins that words name, in a registry that has them.

    Raises:
        BadInput: they bring neither.
    """
    backends, rules = named_by(words, registry.backends), named_by(words, registry.rules)
    if not backends and not rules:
        raise BadInput(
            f"{', '.join(words)} brings no backend and no rule: add a function attnbench_backends() with "
            "@attnbench.hookimpl that returns a list of attnbench.Backend"
        )
    return Found(registry, backends, rules)


def check_backend(
    backend: str | Path,
    *,
    large: bool = True,
    raises: bool = True,
    timeout: float | None = None,
    memory_limit: int | None = None,
) -> Report:
    """Check a backend on the kit's cases: those that it declares and its ``supports`` takes.

    Each case is judged as by ``attnbench check``, in processes of its own, in about half a second.

    backend: the name of an installed one, or the file or module of a plugin, of which all backends are
        checked (and rules, with a plain backend). large: whether to include cases of larger shapes. raises:
        False to get a report of failures too. timeout: the longest wait for one answer, s. memory_limit: the
        most memory that it may allocate, bytes.

    Raises:
        NotConforming: it has problems, or can't run on this machine, so that nothing was checked; an
            AssertionError with all findings.
        BadInput: there is no such backend.
        MeasuringFailed: the machinery could not go on.
    """
    options = make_options(timeout_s=timeout, memory_limit_bytes=memory_limit, timed=False)
    found = located(backend)
    planned = plan(found.registry, found.backends, found.rules)
    report = reported(planned, records_of(planned.cases(large), found.registry, options), found.registry)
    if raises and not report.ok:
        raise NotConforming(report)
    return report


def conformance_cases(backend: str | Path, *, large: bool = True) -> tuple[ConformanceCase, ...]:
    """Return the cases that :func:`check_backend` judges a backend on. Computes nothing.

    The same declarations and answers of ``supports`` give the same cases.

    Raises:
        BadInput: there is no such backend, or more than one.
    """
    found = located(backend)
    chosen = choose(found.registry.backend(found.only()), rules_in(found.registry))
    return tuple(one for one in chosen.cases if large or not one.large)


def plan(
    registry: Registry,
    backends: Sequence[str],
    brought: Sequence[str] = (),
    options: Overrides = NO_OPTIONS,
) -> Plan:
    """Choose the cases of each backend. Computes nothing.

    brought: rules that a plugin brings. A backend that computes any rule shows whether their torch and NumPy
        forms agree. options: narrow the cases.
    """
    rules = rules_in(registry)
    asked = {name: registry.backend(name) for name in backends}
    kept = [rule for rule in brought if not options.rules or rule in options.rules]
    if BY_ANY not in asked and (kept or not backends):
        dtypes = options.dtypes or ("float32", "float64")
        asked[BY_ANY] = replace(registry.backend(BY_ANY), rules=tuple(brought), dtypes=dtypes)
    choices: dict[str, ChosenCases] = {}
    unavailable: dict[str, str] = {}
    for name, backend in asked.items():
        reason = absent(backend, options.device)
        choice = None if reason else choose(backend, rules, options)
        if choice is None or choice.none:
            unavailable[name] = reason if choice is None else choice.none
        else:
            choices[name] = choice
    return Plan(choices, unavailable)


def part_of(planned: Plan, wanted: Collection[str], where: str) -> Plan:
    """Return a plan with the cases of some ids alone. where: for a backend that has none of them."""
    choices: dict[str, ChosenCases] = {}
    unavailable = dict(planned.unavailable)
    for name, choice in planned.choices.items():
        cases = tuple(one for one in choice.cases if one.id in wanted)
        if cases or not choice.cases:
            choices[name] = replace(choice, cases=cases)
        else:
            unavailable[name] = f"none of its {count_of(len(choice.cases), 'case')} is in {where}"
    return Plan(choices, unavailable)


def rules_in(registry: Registry) -> dict[str, Rule]:
    """Return the rules of a registry by name."""
    return {name: entry.record for name, entry in registry.rules.items()}


def judging_plan(
    asked: Mapping[str, tuple[str, ...]], registry: Registry, options: Options, shard: Shard | None = None
) -> RunPlan:
    """Plan a run that only checks. asked: the backends of each case, by its id. shard: what part they are."""
    names = tuple(dict.fromkeys(name for names in asked.values() for name in names))
    cases = tuple(parse_case(case) for case in asked)
    return RunPlan(
        cases, names, registry, with_baseline(options, cases), named=names, asked=asked, shard=shard
    )


def records_of(
    asked: Mapping[str, tuple[str, ...]], registry: Registry, options: Options
) -> tuple[Record, ...]:
    """Return the records of such a run; its file is deleted.

    Raises:
        MeasuringFailed, Interrupted: as any run.
    """
    if not asked:
        return ()
    with TemporaryDirectory(prefix="attnbench-") as folder:
        return start_run(judging_plan(asked, registry, options), Path(folder) / "check.jsonl").records


def reported(planned: Plan, records: Sequence[Record], registry: Registry) -> Report:
    """Report on the backends of a plan after these records; wrong answers get a close look."""
    counts: list[Counts] = []
    findings: list[Finding] = []
    for name, choice in planned.choices.items():
        own = [record for record in records if record.backend == name]
        right = [record for record in own if record.passed]
        ran = [record for record in own if not MEANING[record.status].declined]
        counted = [record for record in ran if not MEANING[record.status].unknown]
        unchecked = own[0].reason if own and not ran else ""
        numbers = (len(right), len(counted), choice.declined, choice.asked)
        command = f"attnbench check CASE {_asking(name, own, registry)}"
        counts.append(Counts(name, *numbers, unchecked, command))
        findings += choice.findings
        findings += _closely(name, own, right, registry)
    for name, reason in planned.unavailable.items():
        counts.append(Counts(name, 0, 0, 0, 0, reason))
    return Report(tuple(counts), merged(findings))


def advice_on(
    records: Sequence[Record],
    named: Sequence[str],
    registry: Registry,
    where: Interpreter = HERE,
    *,
    quick: bool = False,
) -> tuple[Finding, ...]:
    """Return what a report would say of the failures of named backends, after a check of any cases.

    where: the interpreter that has them. quick: look at few cases, and make none small.
    """
    found = [
        finding
        for name in named
        if (own := [record for record in records if record.backend == name])
        for finding in _closely(name, own, [], registry, where, quick=quick)
    ]
    return tuple(finding for finding in merged(found) if finding.advice)


def _asking(name: str, own: Sequence[Record], registry: Registry) -> str:
    """Return the options that name a backend, and the plugins of it and of the rules of what failed."""
    rules = {registry.rules[record.rule].source for record in own if not record.passed}
    there = {*installed()}
    sources = (registry.backends[name].source, *rules)
    named = dict.fromkeys(_word(one) for one in sources if one not in there)
    return " ".join([f"--backend {name}", *(f"--plugin {word}" for word in named)])


def _word(source: Source) -> str:
    """Return the value of --plugin that names a source, valid in the current folder."""
    if not source.path:
        return source.module
    path = Path(source.path)
    return shlex.quote(str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path))


def _closely(
    name: str,
    own: list[Record],
    right: list[Record],
    registry: Registry,
    where: Interpreter = HERE,
    *,
    quick: bool = False,
) -> list[Finding]:
    entry = registry.backends[name]
    sources = {rule: found.source for rule, found in registry.rules.items()}
    wrong = dict(islice(looks(own, sources).items(), QUICK_LOOKS if quick else None))
    # Answers as coarse as an arithmetic that nobody declared can't be told from wrong ones here.
    steady = [record for record in right if record.status == "ok" or entry.record.computes_in]
    again = [] if entry.record.compiles else [(r.case, sources[r.rule]) for r in steady_cases(steady)]
    operations = tuple(dict.fromkeys(found.source for found in registry.operations.values()))
    ok = [record for record in right if record.status == "ok"]
    two_ways = [
        record
        for may_be in (may_be_halved, may_be_expanded)
        for record in islice((one for one in ok if may_be(parse_case(one.case))), TWO_WAYS)
    ]
    asked = Asked(
        name, entry.source, tuple(wrong.values()), tuple(again), operations, shrinking=not quick,
        two_ways=tuple((one.case, sources[one.rule]) for one in two_ways),
    )  # fmt: skip
    replies = look(asked, where)
    # The last ones are missing if a backend ended the process.
    diagnoses = dict(zip(wrong, (one for one in replies if isinstance(one, Diagnosed)), strict=False))
    smallest = next((one for one in replies if isinstance(one, Smallest)), None)
    asking = _asking(name, own, registry)
    unlike = [
        Finding(name, f"{reply.what}.", reply.do, (reply.case,), check="values")
        for reply in replies
        if isinstance(reply, Unlike)
    ]
    findings = unlike + findings_of(own, diagnoses, entry.record, rules_in(registry), smallest, asking)
    if any(one.kind == "sometimes" for one in diagnoses.values()):
        return findings
    do = "Keep nothing from one call to the next, and nothing for all cases in a global."
    for reply in replies:
        if isinstance(reply, Unsteady):
            cases = (reply.case,) if reply.case else ()
            findings.append(Finding(name, reply.what, do, cases, about="steadiness", check="repeatability"))
    return findings


def steady_cases(right: Sequence[Record]) -> list[Record]:
    """Choose a few of different shapes and passes, none of them large or with dropout.

    One whose rule has constants comes second, after the same without them.
    """
    small = [(parse_case(record.case), record) for record in right]
    small = [
        (case, one)
        for case, one in small
        if not (case.dropout or case.batch or is_encoded(case)) and case.Lk <= 128
    ]
    found: dict[tuple[int, int, int, str], Record] = {}
    for case, record in small:
        found.setdefault((case.Lq, case.Lk, case.D, case.pass_), record)
    first: list[Record] = []
    for case, record in small:
        if case.constants:
            plain = replace(case, constants=())
            first = [*(other for its, other in small if its == plain), record]
            break
    others = [record for record in found.values() if record not in first]
    return [*first, *others][:COMPUTED_AGAIN]
