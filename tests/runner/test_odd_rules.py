"""A rule whose reference or torch form is broken costs its own cases alone, and the records say why."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_parts import run_of

from attnbench.ipc import verifier_messages as rm
from attnbench.plugins.registry import load_registry
from attnbench.runner.context import open_context
from attnbench.runner.link import VerifierFailed, VerifierLink
from attnbench.types.record import Record

SIZES = "B1-H2-Lq16-Lk16-D8/none/float32/cpu/forward"
BACKENDS = ["eager", "bmm"]
NO_ORACLE = "the oracle failed: "


@pytest.fixture(scope="module")
def records(odd_plugins: None, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Record]:
    """One run over all odd rules (but the one that hangs), a right one between any two of them."""
    odd = [f"odd_{name}" for name in ("raises", "exits", "gives_nan", "wrong_shape", "disagrees", "bind")]
    cases = [f"attention/{rule}/{SIZES}" for rule in odd]
    seeds = [f"attention/dot/{SIZES}/seed{number}" for number in range(1, len(odd) + 1)]
    mixed = [case for pair in zip(cases, seeds, strict=True) for case in pair]
    run = run_of(tmp_path_factory.mktemp("odd"), tuple(mixed), tuple(BACKENDS), timed=False)
    assert run.finished is not None
    assert len(run.records) == len(mixed) * len(BACKENDS)
    return {(record.case, record.backend): record for record in run.records}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("rule", "status", "begins"),
    [
        ("odd_raises", "error", NO_ORACLE + "ZeroDivisionError: no scores today"),
        ("odd_exits", "error", "the oracle's process ended: "),
        ("odd_gives_nan", "mismatch", "element (b=0, h=0, i=0, d=0) and 255 more are not finite: got "),
        ("odd_wrong_shape", "error", NO_ORACLE + "ValueError: "),
        ("odd_disagrees", "mismatch", "RMS error "),
        ("odd_bind", "error", "the plain reference failed: preparation raised LookupError: "),
    ],
)
def test_every_record_of_the_case_says_what_is_wrong_with_the_rule(
    records: dict[tuple[str, str], Record], rule: str, status: str, begins: str, backend: str
) -> None:
    record = records[f"attention/{rule}/{SIZES}", backend]
    assert (record.status, record.reason[: len(begins)]) == (status, begins)
    assert "\n" not in record.reason


@pytest.mark.parametrize("rule", ["odd_disagrees", "odd_gives_nan"])
def test_a_rule_whose_two_forms_disagree_is_named_as_the_cause(
    records: dict[tuple[str, str], Record], rule: str
) -> None:
    """Every backend is wrong then, and wrong alike: the reader is led to the rule."""
    reason = records[f"attention/{rule}/{SIZES}", "eager"].reason
    assert reason.endswith("do the rule's torch and NumPy forms agree?")


def test_the_cases_between_are_unharmed(records: dict[tuple[str, str], Record]) -> None:
    """Whatever the verifier was through before, or whether it is a new one."""
    right = [record for (case, _), record in records.items() if "/dot/" in case]
    assert len(right) == 12
    assert {record.status for record in right} == {"ok"}, [r.reason for r in right]


def test_with_all_checks_it_is_the_same(odd_plugins: None, tmp_path: Path) -> None:
    """The case beside the case meets the broken rule first."""
    cases = [f"attention/{rule}/{SIZES}" for rule in ("odd_raises", "odd_exits", "odd_bind", "dot")]
    run = run_of(tmp_path, tuple(cases), ("eager",), timed=False, without=())
    told = {record.rule: record for record in run.records}
    assert {rule: record.status for rule, record in told.items()} == {
        "odd_raises": "error", "odd_exits": "error", "odd_bind": "error", "dot": "ok",
    }, told  # fmt: skip
    assert told["odd_raises"].reason.startswith(NO_ORACLE + "ZeroDivisionError: no scores today")
    assert told["odd_exits"].reason.startswith("the oracle's process ended: ")
    assert told["odd_bind"].reason.startswith("the plain reference failed: preparation raised LookupError: ")


def test_a_reference_that_hangs_is_given_up(odd_plugins: None) -> None:
    sources = load_registry().rules
    link = VerifierLink(60)
    try:
        for rule in ("dot", "odd_hangs"):
            case = f"attention/{rule}/{SIZES}"
            opening = rm.OpenCase(case, sources[rule].source, 1, 1, 1e9)
            if rule == "dot":
                # It has started and loaded everything: from here on it is quick, or hangs.
                with open_context(link, opening, 1, 2**30):
                    pass
                link._timeout_s = 2.0
            else:
                with (
                    pytest.raises(VerifierFailed, match=r"^the oracle took more than 2 s$"),
                    open_context(link, opening, 1, 2**30),
                ):
                    pytest.fail("a case was opened that can't be solved")
        assert not link.alive
    finally:
        link.close()
