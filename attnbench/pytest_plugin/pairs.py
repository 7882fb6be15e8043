"""The cases and backends that tests run for: from markers, and for tests that the command line makes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from attnbench import hookspecs
from attnbench.cases.ids import case_id, short_id
from attnbench.cases.select import Overrides, Selection, select
from attnbench.plugins.registry import Registry, load_wanted, named_by
from attnbench.plugins.sources import named as source_of
from attnbench.pytest_plugin import PAIR
from attnbench.pytest_plugin.named import NAMED
from attnbench.runner.case import COMPILES, refusal
from attnbench.runner.forecast import RunPlan, plan_run
from attnbench.runner.options import make_options
from attnbench.types.case import Case
from attnbench.types.errors import BadInput
from attnbench.types.extensions import Source
from attnbench.types.mask import Mask, parse_mask
from attnbench.types.words import unknown_name

if TYPE_CHECKING:
    from attnbench.pytest_plugin.checked_test import CheckedBackend

_REGISTRY = pytest.StashKey[Registry]()


@dataclass(frozen=True)
class Pair:
    """The parameter of a test. backend: None if the test asks for the case alone."""

    case: Case
    backend: str | None = None


def registry_of(config: pytest.Config) -> Registry:
    """Return the session's plugins, loaded once: installed ones, named ones and its ``conftest.py`` files.

    Raises:
        BadInput: a named plugin or a ``conftest.py`` can't be used.
    """
    if _REGISTRY not in config.stash:
        config.stash[_REGISTRY] = load_wanted(config.getoption("attnbench_plugin"), _conftest_plugins(config))
    return config.stash[_REGISTRY]


def _conftest_plugins(config: pytest.Config) -> list[Source]:
    """Return the session's ``conftest.py`` files that have hooks of attnbench. Workers import each file."""
    found = []
    for module in config.pluginmanager.get_plugins():
        file = getattr(module, "__file__", None)
        if isinstance(module, ModuleType) and file and file.endswith("conftest.py") and _has_hooks(module):
            source = source_of(file)
            # attnbench finds the module there, and does not import the file a second time.
            sys.modules.setdefault(source.module, module)
            found.append(source)
    return sorted(found, key=lambda source: source.path)


def _has_hooks(module: ModuleType) -> bool:
    """Return whether it has a hook, also one without ``hookimpl``: loading reports that mistake."""
    known = {name for name in vars(hookspecs) if name.startswith("attnbench_")}
    return any(
        callable(value) and (name in known or hasattr(value, "attnbench_impl"))
        for name, value in vars(module).items()
    )


def parametrise(metafunc: pytest.Metafunc) -> None:
    """Run a test for each case and backend of its marker. An impossible marker is an error of collection."""
    module = metafunc.definition.getparent(pytest.Module)
    if isinstance(module, SuiteNode):
        metafunc.parametrize(PAIR, module.parameters[metafunc.function.__name__], indirect=True)
        return
    marker = metafunc.definition.get_closest_marker("attnbench")
    if marker is None:
        # The fixture reports it if the test runs.
        return
    try:
        parameters = marked(registry_of(metafunc.config), marker.args, marker.kwargs, metafunc.fixturenames)
    except BadInput as wrong:
        text = f"the marker attnbench of {metafunc.function.__name__}: {wrong}"
        raise pytest.fail.Exception(text, pytrace=False) from None
    metafunc.parametrize(PAIR, parameters, indirect=True)


def marked(
    registry: Registry, args: Sequence[Any], kwargs: Mapping[str, Any], fixtures: Sequence[str]
) -> list[Any]:
    """Return the parameters of a test from its marker's arguments.

    args: suites, case ids, TOML files, cases. kwargs: the same as ``suite`` and ``cases``; ``backends``; and
    changes to the cases, by the names of :class:`attnbench.cases.select.Overrides`.

    Raises:
        BadInput: an argument is unknown or impossible.
    """
    changes = {each.name for each in fields(Overrides)}
    known = changes | {"suite", "cases", "backends"}
    for name in kwargs:
        if name not in known:
            raise BadInput(unknown_name("argument", name, sorted(known)))
    named = [*args, *_several(kwargs.get("suite")), *_several(kwargs.get("cases"))]
    if not named:
        raise BadInput('name a suite or a case, as in @pytest.mark.attnbench("smoke")')
    changed = {name: value for name, value in kwargs.items() if name in changes and value is not None}
    for name in ("rules", "dtypes", "passes"):
        changed[name] = _names(name, kwargs.get(name))
    changed["masks"] = tuple(_mask(each) for each in _several(kwargs.get("masks")))
    selection = select([_word(each) for each in named], registry, Overrides(**changed), timed=False)
    if "attnbench_backend" not in fixtures:
        return [pytest.param(Pair(case), id=short_id(case)) for case in selection.cases]
    return list(parameters_of(selection, _names("backends", kwargs.get("backends")), registry))


def parameters_of(selection: Selection, backends: tuple[str, ...], registry: Registry) -> Iterator[Any]:
    """Yield a parameter for each case and backend, with a skip mark where the backend declines the case.

    Backends that compile and are not named run only on the cases where ``attnbench run`` uses them.
    """
    plan = plan_run(selection, backends, registry, make_options(timed=False))
    for case in plan.cases:
        for name in plan.backends:
            reason = _declined(case, name, plan)
            marks = [pytest.mark.skip(reason=f"{name}: {reason}")] if reason else []
            yield pytest.param(Pair(case, name), id=f"{short_id(case)}-{name}", marks=marks)


def _declined(case: Case, name: str, plan: RunPlan) -> str:
    rule, backend = plan.registry.rule(case.rule), plan.registry.backend(name)
    # A missing device is found when the test runs.
    refused = refusal(backend, case, rule, devices=(case.device,))
    if refused is not None:
        return f"{refused[0]}: {refused[1]}"
    if name in plan.left_out(case_id(case)):
        return COMPILES
    if case.cache == "rotating":
        return "only attnbench run rotates inputs through copies"
    return ""


def _several(value: Any) -> list[Any]:
    if value is None:
        return []
    one = isinstance(value, str | Case | Mask) or not isinstance(value, Iterable)
    return [value] if one else list(value)


def _names(argument: str, value: Any) -> tuple[str, ...]:
    names = tuple(_several(value))
    for name in names:
        if not isinstance(name, str):
            raise BadInput(f"{argument} = {name!r}: give names")
    return names


def _word(named: Any) -> str:
    if isinstance(named, Case):
        return case_id(named)
    if not isinstance(named, str):
        raise BadInput(f"{named!r}: give a suite, a case id, a TOML file or a Case")
    return named


def _mask(named: Any) -> Mask:
    mask = parse_mask(named) if isinstance(named, str) else named
    if not isinstance(mask, Mask):
        raise BadInput(f"masks = {mask!r}: give words as in case ids, or Mask values")
    return mask


def test_attention(benchmark: Any, attnbench_backend: CheckedBackend) -> None:
    """Check and time, for a suite or case of the command line."""
    benchmark(attnbench_backend)


def test_right(attnbench_backend: CheckedBackend) -> None:
    """Check only: without pytest-benchmark, and for cases meant for checking."""
    attnbench_backend()


class SuiteNode(pytest.Module):
    """This module as a node, whatever names the project gives to tests. parameters: by name of the test."""

    parameters: dict[str, list[Any]]

    def _getobj(self) -> ModuleType:
        return sys.modules[__name__]

    def funcnamefilter(self, name: str) -> bool:
        """Return whether the test has anything to run for."""
        return bool(self.parameters.get(name))


def suite_items(session: pytest.Session, used: Sequence[str]) -> Iterator[pytest.Item]:
    """Yield the tests of the suites and cases of the command line. used: the names of its options.

    Raises:
        pytest.UsageError: an option is impossible, or none names a suite or a case.
    """
    if not {"suite", "case"} & {*used}:
        raise pytest.UsageError(
            f"--attnbench-{used[0]} needs --attnbench-suite or --attnbench-case: add one of these"
        )
    try:
        parameters = _suite_parameters(session.config)
    except BadInput as wrong:
        raise pytest.UsageError(str(wrong)) from wrong
    node = SuiteNode.from_parent(session, path=Path(__file__), nodeid="attnbench")
    node.parameters = parameters
    option, backends = session.config.getoption, registry_of(session.config).backends
    named = option("attnbench_backend") or named_by(option("attnbench_plugin"), backends)
    for item in session.genitems(node):
        name = item.callspec.params[PAIR].backend  # type: ignore[attr-defined]
        if name in named:
            item.user_properties.append((NAMED, name))
        yield item


def _suite_parameters(config: pytest.Config) -> dict[str, list[Any]]:
    """Return the parameters of each test by its name."""
    option, registry = config.getoption, registry_of(config)
    threads = option("attnbench_threads")
    changes = Overrides(rules=tuple(option("attnbench_rule")), threads=threads)
    words = [*option("attnbench_suite"), *option("attnbench_case")]
    chosen = select(words, registry, changes, timed=False)
    untimed: set[Case] = set()
    for word in option("attnbench_suite"):
        suite = registry.suites.get(word)
        if suite is not None and suite.record.check_only:
            untimed |= {*select([word], registry, Overrides(threads=threads), timed=False).cases}
    if not config.pluginmanager.hasplugin("benchmark"):
        untimed = {*chosen.cases}
    found: dict[str, list[Any]] = {test_attention.__name__: [], test_right.__name__: []}
    for parameter in parameters_of(chosen, tuple(option("attnbench_backend")), registry):
        test = test_right if parameter.values[0].case in untimed else test_attention
        found[test.__name__].append(parameter)
    return found
