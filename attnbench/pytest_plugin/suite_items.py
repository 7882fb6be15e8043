"""Items for cases and backends that the command line names, with no test written."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from attnbench.cases.select import Overrides, Selection, select
from attnbench.pytest_plugin import generated
from attnbench.pytest_plugin.generated import TIMED, UNTIMED
from attnbench.pytest_plugin.pairs import pairs_of, registry_of
from attnbench.types.errors import BadInput

NODE = "attnbench"
"""The node that the items belong to, as a file is the one of others."""


class SuiteItems:
    """Part of the plugin where the command line names a suite or a case."""

    def __init__(self, config: pytest.Config, asked: list[str]) -> None:
        if not {"suite", "case"} & set(asked):
            raise pytest.UsageError(
                f"--attnbench-{asked[0]} chooses among what --attnbench-suite or --attnbench-case names: "
                "give one of these"
            )
        self._config = config

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """Add the items, before others choose among all."""
        try:
            parameters = self._parameters()
        except BadInput as wrong:
            raise pytest.UsageError(str(wrong)) from wrong
        node = SuiteNode.from_parent(session, path=Path(generated.__file__), nodeid=NODE)
        node.parameters = parameters
        items.extend(session.genitems(node))

    def _parameters(self) -> dict[str, list[Any]]:
        """By the name of the test, what it is run for."""
        option, registry = self._config.getoption, registry_of(self._config)
        changes = Overrides(rules=tuple(option("attnbench_rule")), threads=option("attnbench_threads"))
        same = Overrides(threads=changes.threads)
        words = [*option("attnbench_suite"), *option("attnbench_case")]
        chosen = select(words, registry, changes, timed=False)
        untimed: set[Any] = set()
        if not self._config.pluginmanager.hasplugin("benchmark"):
            untimed = set(chosen.cases)
        else:
            for word in option("attnbench_suite"):
                suite = registry.suites.get(word)
                if suite is not None and suite.record.check_only:
                    untimed |= set(select([word], registry, same, timed=False).cases)
        backends = tuple(option("attnbench_backend"))
        found: dict[str, list[Any]] = {}
        for name, cases in (
            (TIMED, tuple(case for case in chosen.cases if case not in untimed)),
            (UNTIMED, tuple(case for case in chosen.cases if case in untimed)),
        ):
            selection = Selection(cases, chosen.compiled_on)
            found[name] = list(pairs_of(selection, backends, registry)) if cases else []
        return found


class SuiteNode(pytest.Module):
    """The module of the generated tests, as a node of its own, whatever tests and files are called here.

    parameters: by test, what it is run for.
    """

    parameters: dict[str, list[Any]]

    def _getobj(self) -> ModuleType:
        return generated

    def funcnamefilter(self, name: str) -> bool:
        """Whether there is something to run a test for."""
        return bool(self.parameters.get(name))
