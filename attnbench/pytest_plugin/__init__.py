"""pytest plugin: run a test over cases and backends, and check what it times.

pytest imports this module in every session. It therefore imports only pytest; the first test that uses the
plugin imports the rest.

This module has no asserts, so pytest need not rewrite it: PYTEST_DONT_REWRITE.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from attnbench.pytest_plugin.checked_test import CheckedBackend
    from attnbench.pytest_plugin.pairs import Pair
    from attnbench.pytest_plugin.session_verifier import SessionVerifier
    from attnbench.types.case import Case

PAIR = "_attnbench_pair"
"""The fixture that carries the parameter of a test; both public fixtures ask for it."""

FAILURES = pytest.StashKey[list[dict[str, str]]]()
"""The benchmarks of a session that failed, which pytest-benchmark does not store."""

SELECTING = ("suite", "case", "backend", "rule", "threads")
"""The options that select tests without a written one."""

MARKER = (
    "attnbench(*cases, suite, cases, backends, rules, ...): run the test for each case and backend; cases "
    "are suites, case ids, TOML files or Case values"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that make tests without writing one."""
    group = parser.getgroup("attnbench", "attnbench: attention backends, checked and timed")
    for option, metavar, text in (
        ("suite", "SUITE", "run this suite (a name or a TOML file) without written tests; may be repeated"),
        ("case", "ID", "run this case without written tests; may be repeated"),
        ("backend", "NAME", "with --attnbench-suite or --attnbench-case: only this backend; may be repeated"),
        ("rule", "NAME", "with --attnbench-suite: only the cases of this rule; may be repeated"),
        ("plugin", "FILE", "load this attnbench plugin too, a file or a module; may be repeated"),
    ):
        group.addoption(
            f"--attnbench-{option}", action="append", default=[], metavar=metavar, help=text,
            dest=f"attnbench_{option}",
        )  # fmt: skip
    group.addoption(
        "--attnbench-threads", type=int, default=None, metavar="N", dest="attnbench_threads",
        help="with --attnbench-suite or --attnbench-case: run every case with this number of threads",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and watch over the backends that the command line names."""
    config.addinivalue_line("markers", MARKER)
    if config.getoption("attnbench_suite") or config.getoption("attnbench_case"):
        from attnbench.pytest_plugin.named import NamedBackends

        config.pluginmanager.register(NamedBackends())


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_json(config: pytest.Config, output_json: dict[str, Any]) -> None:
    """Store failures in the file of pytest-benchmark, so that a comparison does not call them missing."""
    stored = {benchmark["fullname"] for benchmark in output_json["benchmarks"]}
    failures = [one for one in config.stash.get(FAILURES, []) if one["name"] not in stored]
    if failures:
        output_json["attnbench"] = {"left_out": failures}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Add the tests of the command line first, so that ``-k`` and others select among all."""
    option = session.config.getoption
    used = [name for name in SELECTING if option(f"attnbench_{name}") not in (None, [])]
    if used:
        from attnbench.pytest_plugin.pairs import suite_items

        items.extend(suite_items(session, used))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise a test that asks for one of the fixtures."""
    if PAIR in metafunc.fixturenames:
        from attnbench.pytest_plugin.pairs import parametrise

        parametrise(metafunc)
    elif any(mark.name == "attnbench" for mark in metafunc.definition.own_markers):
        pytest.fail(
            f"{metafunc.function.__name__} is marked attnbench, but takes neither attnbench_case nor "
            "attnbench_backend: add one of these fixtures",
            pytrace=False,
        )


@pytest.fixture(name=PAIR)
def _attnbench_pair(request: pytest.FixtureRequest) -> Pair:
    """The case and the backend that a test runs for."""
    if not hasattr(request, "param"):
        pytest.fail(
            "attnbench_case and attnbench_backend need a marker that names the cases: "
            '@pytest.mark.attnbench("smoke")',
            pytrace=False,
        )
    pair: Pair = request.param
    return pair


@pytest.fixture(scope="session")
def _attnbench_verifier(pytestconfig: pytest.Config) -> Generator[SessionVerifier, None, None]:
    """The verifier of the session; its processes start with the first test that needs them."""
    from attnbench.pytest_plugin.pairs import registry_of
    from attnbench.pytest_plugin.session_verifier import SessionVerifier

    verifier = SessionVerifier(registry_of(pytestconfig))
    yield verifier
    verifier.close()


@pytest.fixture
def attnbench_case(_attnbench_pair: Pair) -> Case:
    """The case that this test runs for; see the marker ``attnbench``."""
    return _attnbench_pair.case


@pytest.fixture
def attnbench_backend(
    _attnbench_pair: Pair, request: pytest.FixtureRequest
) -> Generator[CheckedBackend | None, None, None]:
    """A checked backend, prepared for the case, as a function that computes the output on its ``inputs``.

    attnbench compares the last output when the test ends.
    """
    from attnbench.pytest_plugin.checked_test import prepared_backend

    # The benchmark fixture comes before the slow check: it skips the test where benchmarks are skipped.
    benchmark: Any = request.getfixturevalue("benchmark") if "benchmark" in request.fixturenames else None
    verifier: SessionVerifier = request.getfixturevalue("_attnbench_verifier")
    yield from prepared_backend(_attnbench_pair, request.node, benchmark, verifier)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Compare the test's output before the test counts as passed."""
    if "attnbench_backend" not in getattr(item, "fixturenames", ()):
        return (yield)
    from attnbench.pytest_plugin.checked_test import around_call

    return (yield from around_call(item))
