"""Tests for the suites and cases of the command line, without a written test."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from attnbench.cases.select import Overrides, select
from attnbench.pytest_plugin.pairs import parameters_of, registry_of
from attnbench.types.case import Case
from attnbench.types.errors import BadInput

if TYPE_CHECKING:
    from attnbench.pytest_plugin.checked_test import CheckedBackend


def test_attention(benchmark: Any, attnbench_backend: CheckedBackend) -> None:
    """Check and time."""
    benchmark(attnbench_backend)


def test_right(attnbench_backend: CheckedBackend) -> None:
    """Check only: without pytest-benchmark, and for cases meant for checking."""
    attnbench_backend()


class SuiteItems:
    """The part of the plugin that adds the tests. given: the names of the options on the command line."""

    def __init__(self, config: pytest.Config, given: list[str]) -> None:
        if not {"suite", "case"} & set(given):
            raise pytest.UsageError(
                f"--attnbench-{given[0]} needs --attnbench-suite or --attnbench-case: add one of these"
            )
        self._config = config

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """Add the items first, so that ``-k`` and others select among all."""
        try:
            parameters = self._parameters()
        except BadInput as wrong:
            raise pytest.UsageError(str(wrong)) from wrong
        node = SuiteNode.from_parent(session, path=Path(__file__), nodeid="attnbench")
        node.parameters = parameters
        items.extend(session.genitems(node))

    def _parameters(self) -> dict[str, list[Any]]:
        """Return the parameters of each test by its name."""
        option, registry = self._config.getoption, registry_of(self._config)
        threads = option("attnbench_threads")
        changes = Overrides(rules=tuple(option("attnbench_rule")), threads=threads)
        words = [*option("attnbench_suite"), *option("attnbench_case")]
        chosen = select(words, registry, changes, timed=False)
        untimed: set[Case] = set()
        for word in option("attnbench_suite"):
            suite = registry.suites.get(word)
            if suite is not None and suite.record.check_only:
                untimed |= {*select([word], registry, Overrides(threads=threads), timed=False).cases}
        if not self._config.pluginmanager.hasplugin("benchmark"):
            untimed = {*chosen.cases}
        found: dict[str, list[Any]] = {test_attention.__name__: [], test_right.__name__: []}
        for parameter in parameters_of(chosen, tuple(option("attnbench_backend")), registry):
            test = test_right if parameter.values[0].case in untimed else test_attention
            found[test.__name__].append(parameter)
        return found


class SuiteNode(pytest.Module):
    """This module as a node, whatever names the project gives to tests. parameters: by name of the test."""

    parameters: dict[str, list[Any]]

    def _getobj(self) -> ModuleType:
        return sys.modules[__name__]

    def funcnamefilter(self, name: str) -> bool:
        """Return whether the test has anything to run for."""
        return bool(self.parameters.get(name))
