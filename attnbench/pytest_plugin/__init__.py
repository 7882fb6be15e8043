"""attnbench in pytest: a test over cases and backends, checked before it is timed and on what is timed.

pytest imports this module in every session, whether anybody uses it or not; so it imports nothing but pytest,
which is there, and all that does something is imported by the first test that asks for it.

There is nothing to assert here, so pytest needn't rewrite it: PYTEST_DONT_REWRITE.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from attnbench.pytest_plugin.pairs import Pair
    from attnbench.pytest_plugin.watched import CheckedBackend
    from attnbench.types.case import Case

PAIR = "_attnbench_pair"
"""The fixture that a test is parametrised over; both public ones ask for it."""

MARKER = (
    "attnbench(*words, suite, cases, backends, rules, ...): run the test for each case and backend; words "
    "are suites, ids of cases, TOML files or Case values"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options for a run with no test written."""
    group = parser.getgroup("attnbench", "attnbench: attention backends, checked and timed")
    for option, metavar, text in (
        ("suite", "SUITE", "run this suite (a name or a TOML file), with no test written; may be repeated"),
        ("case", "ID", "run this case, with no test written; may be repeated"),
        ("backend", "NAME", "of --attnbench-suite and --attnbench-case: this backend alone; may be repeated"),
        ("rule", "NAME", "of --attnbench-suite: the cases of this rule alone; may be repeated"),
        ("plugin", "FILE", "load this attnbench plugin too, a file or a module; may be repeated"),
    ):
        group.addoption(
            f"--attnbench-{option}", action="append", default=[], metavar=metavar, help=text,
            dest=f"attnbench_{option}",
        )  # fmt: skip
    group.addoption(
        "--attnbench-threads", type=int, default=None, metavar="N", dest="attnbench_threads",
        help="of --attnbench-suite and --attnbench-case: this many threads in every case",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known; have the items of a suite collected where one is asked for."""
    config.addinivalue_line("markers", MARKER)
    asked = [
        name
        for name in ("suite", "case", "backend", "rule", "threads")
        if config.getoption(f"attnbench_{name}") not in (None, [])
    ]
    if asked:
        from attnbench.pytest_plugin.suite_items import SuiteItems

        config.pluginmanager.register(SuiteItems(config, asked), "attnbench-suite")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise a test that asks for one of the fixtures."""
    if PAIR in metafunc.fixturenames:
        from attnbench.pytest_plugin.pairs import parametrise

        parametrise(metafunc)
    elif any(mark.name == "attnbench" for mark in metafunc.definition.own_markers):
        pytest.fail(
            f"{metafunc.function.__name__} is marked attnbench and takes neither attnbench_case nor "
            "attnbench_backend: it would run once, for no case",
            pytrace=False,
        )


@pytest.fixture(name=PAIR)
def _attnbench_pair(request: pytest.FixtureRequest) -> Pair:
    """The case and the backend that a test is run for."""
    if not hasattr(request, "param"):
        pytest.fail(
            "attnbench_case and attnbench_backend are for tests marked attnbench, whose cases they are: "
            '@pytest.mark.attnbench("smoke")',
            pytrace=False,
        )
    pair: Pair = request.param
    return pair


@pytest.fixture
def attnbench_case(_attnbench_pair: Pair) -> Case:
    """The case that this test is run for; see the marker ``attnbench``."""
    return _attnbench_pair.case


@pytest.fixture
def attnbench_backend(
    _attnbench_pair: Pair, request: pytest.FixtureRequest
) -> Generator[CheckedBackend, None, None]:
    """A backend, prepared for the case and checked, as a function that computes it on inputs it holds.

    Its outputs are compared when the test ends. ``attnbench_backend.inputs`` are the inputs.
    """
    from attnbench.pytest_plugin.one_test import backend_of

    # First, since it skips where benchmarks are to be skipped, before anything dear is done.
    benchmark: Any = request.getfixturevalue("benchmark") if "benchmark" in request.fixturenames else None
    yield from backend_of(_attnbench_pair, request.node, benchmark)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Compare what the test has computed before it counts as passed."""
    if PAIR not in getattr(item, "fixturenames", ()):
        return (yield)
    from attnbench.pytest_plugin.one_test import around_call

    return (yield from around_call(item))


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the processes that have checked, where there are any."""
    from sys import modules

    # Where nobody has asked for it, it isn't there.
    courts = modules.get("attnbench.pytest_plugin.court")
    if courts is not None:
        courts.close_court(config)
