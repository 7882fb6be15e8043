"""Backends that the command line of pytest names: a session in which one of them passes nowhere fails.

With xdist the process that the user started gets the reports of all others, and decides.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

NAMED = "attnbench_named"
"""The property of a test, which its reports have too: the named backend that it is for."""


class NamedBackends:
    """What the tests of each named backend came to. whys: by name, why the last one did not pass."""

    def __init__(self) -> None:
        self.passed: set[str] = set()
        self.whys: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how a test of a named backend ended."""
        name = dict(report.user_properties).get(NAMED)
        if not isinstance(name, str):
            return
        if report.passed and report.when == "call":
            self.passed.add(name)
        elif not report.passed:
            # A skip is a file, a line and its reason.
            skip = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.outcome
            self.whys[name] = skip.removeprefix("Skipped: ").removeprefix(f"{name}: ")

    def _sentences(self) -> Iterator[str]:
        for name, why in self.whys.items():
            if name not in self.passed:
                yield f"attnbench: {name} passed in no test: {why}"

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a session that would end well although a named backend passed in no test."""
        if session.exitstatus == pytest.ExitCode.OK and any(self._sentences()):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print a line for each such backend."""
        for sentence in self._sentences():
            terminalreporter.write_line(sentence, red=True)
