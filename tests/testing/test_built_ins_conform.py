"""The kit on the built-in backends: one case of some by default, of all as a slow test, more at night."""

from __future__ import annotations

import pytest

from attnbench.plugins.registry import load_registry
from attnbench.plugins.sources import installed
from attnbench.runner.options import make_options
from attnbench.testing.cases import choose
from attnbench.testing.judge import plan, records_of, reported, rules_in

REGISTRY = load_registry(source for source in installed() if source.distribution == "attnbench")
BUILT_IN = tuple(REGISTRY.backends)
COMPILING = tuple(name for name, entry in REGISTRY.backends.items() if entry.record.compiles)


def assert_conforming(names: tuple[str, ...], most: int) -> None:
    """Check the first small cases of each, which cover most."""
    planned = plan(REGISTRY, names)
    first = {
        name: {one.id for one in [one for one in choice.cases if not one.large][:most]}
        for name, choice in planned.choices.items()
    }
    asked = {
        case: tuple(name for name in backends if case in first[name])
        for case, backends in planned.cases(large=False).items()
    }
    asked = {case: backends for case, backends in asked.items() if backends}
    report = reported(planned, records_of(asked, REGISTRY, make_options(timed=False)), REGISTRY)
    assert report.findings == (), str(report)
    assert {counts.backend for counts in report.counts} == set(names)
    for counts in report.counts:
        assert counts.unavailable or counts.right == counts.judged > 0, str(counts)


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILT_IN)
def test_what_it_declares(name: str) -> None:
    backend = REGISTRY.backends[name].record
    if "cpu" not in backend.devices:
        pytest.skip("asks torch about its device, which may not be there")
    choice = choose(backend, rules_in(REGISTRY))
    assert choice.findings == ()
    assert choice.cases


@pytest.mark.slow
def test_answers_of_some() -> None:
    assert_conforming(("numpy", "nn_multihead_attention"), 1)


EAGER = tuple(name for name in BUILT_IN if name not in COMPILING)


@pytest.mark.slow
@pytest.mark.nightly
def test_answers_of_all() -> None:
    assert_conforming(EAGER, 1)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("name", EAGER)
def test_more_answers_of_each(name: str) -> None:
    assert_conforming((name,), 6)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILING)
def test_answers_of_those_that_compile(name: str) -> None:
    assert_conforming((name,), 1)
