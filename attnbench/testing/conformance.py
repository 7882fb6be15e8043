"""A pytest class that makes a test of each of the kit's cases for one backend.

::

    # tests/test_my_kernel.py
    from attnbench.testing import BackendConformance

    class TestMyKernel(BackendConformance):
        backend = "my_kernel"

The first test of the class judges all of its cases that the session has selected.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from attnbench.plugins.registry import Registry
from attnbench.runner.options import make_options
from attnbench.testing.cases import ConformanceCase
from attnbench.testing.findings import About, Report
from attnbench.testing.judge import Plan, located, plan, records_of, reported
from attnbench.types.errors import AttnbenchError, BadInput

CASE = "conformance_case"
_REPORT = pytest.StashKey[Report]()
"""The report of a class: a fixture of class scope can't belong to an instance."""


class BackendConformance:
    """Base class: each case of the kit becomes a test of ``backend``, and so does ``supports``.

    backend: the name of an installed one, or the file of a plugin that brings one. large: whether to include
        cases of larger shapes.
    """

    backend: ClassVar[str | Path]
    large: ClassVar[bool] = True

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Make a test of each case; fail where the backend can't be found."""
        if CASE not in metafunc.fixturenames:
            return
        try:
            cases = _cases(type(self))
        except AttnbenchError as wrong:
            pytest.fail(f"{type(self).__name__}: {wrong}", pytrace=False)
        metafunc.parametrize(CASE, cases, ids=[one.id for one in cases])

    @pytest.fixture
    def conformance_report(self, request: pytest.FixtureRequest) -> Report:
        """Report on the cases that this session has selected; made once for a class."""
        node: pytest.Class = request.node.getparent(pytest.Class)
        report = node.stash.get(_REPORT, None)
        if report is None:
            mine = [item for item in request.session.items if item.getparent(pytest.Class) is node]
            asked = [item.callspec.params.get(CASE) for item in mine if hasattr(item, "callspec")]
            wanted = {one.id for one in asked if isinstance(one, ConformanceCase)}
            report = node.stash[_REPORT] = _report(type(self), wanted)
        return report

    def test_what_it_declares(self, conformance_report: Report) -> None:
        """``supports`` gives valid, repeatable answers and takes some cases of every declaration."""
        _fail_for(conformance_report, "declarations")

    def test_case(self, conformance_case: ConformanceCase, conformance_report: Report) -> None:
        """The case passes ``attnbench check``."""
        _fail_for(conformance_report, "answers", conformance_case.id)

    def test_answers_stay_the_same(self, conformance_report: Report) -> None:
        """The same inputs give the same answers, also after calls on other cases."""
        _fail_for(conformance_report, "steadiness")


def _fail_for(report: Report, about: About, case: str = "") -> None:
    for counts in report.unavailable:
        pytest.skip(counts.unavailable)
    own = [f for f in report.findings if f.about == about and (not case or case in f.cases)]
    if own:
        pytest.fail("\n".join(str(replace(f, cases=()) if case else f) for f in own), pytrace=False)


def _planned(cls: type[BackendConformance]) -> tuple[Registry, Plan]:
    if not hasattr(cls, "backend"):
        raise BadInput("it names no backend: add backend = 'name'")
    found = located(cls.backend)
    return found.registry, plan(found.registry, (found.only(),))


def _cases(cls: type[BackendConformance]) -> list[ConformanceCase]:
    choices = _planned(cls)[1].choices.values()
    return [one for choice in choices for one in choice.cases if cls.large or not one.large]


def _report(cls: type[BackendConformance], wanted: set[str]) -> Report:
    registry, planned = _planned(cls)
    asked = {case: names for case, names in planned.cases(cls.large).items() if case in wanted}
    return reported(planned, records_of(asked, registry, make_options(timed=False)), registry)
