"""The fastest of a case is called so only where every other is proved slower."""

from __future__ import annotations

from collections.abc import Sequence

from page_runs import LEVEL, SETS, TIMES, UNSURE, around, case, failed, run_of

from attnbench.reports.html.leads import Lead
from attnbench.reports.html.shown import shown
from attnbench.runner.run_file import StoredRun


def leads_of(run: StoredRun) -> Sequence[Lead]:
    (one,) = shown([run])
    return one.leads


def test_a_lead_is_sole_where_all_others_are_proved_slower() -> None:
    leads = leads_of(run_of(TIMES))
    assert [lead.kind for lead in leads] == ["sole"] * 3
    for lead in leads:
        assert lead.best is not None
        assert lead.best.backend == "quick"
        assert 2.4 < (lead.rivals[0].record.ratio or 0) < 3.6
        assert lead.rivals[0].record.baseline == "quick"


def test_a_lead_is_level_where_those_beside_it_are_proved_as_fast() -> None:
    (lead,) = leads_of(run_of({case(64): LEVEL}))
    assert lead.kind == "level"
    assert {rival.record.backend for rival in lead.beside} | {lead.best and lead.best.backend} == {
        "eager",
        "twin",
    }
    assert [rival.record.backend for rival in lead.rivals][-1] == "slow"


def test_a_lead_is_unclear_where_neither_is_proved() -> None:
    (lead,) = leads_of(run_of({case(64): UNSURE}))
    assert lead.kind == "unclear"


def test_too_few_sets_prove_no_lead_however_large_it_is() -> None:
    few = {"eager": around(10.0, 1)[:5], "quick": around(0.1, 2)[:5]}
    (lead,) = leads_of(run_of({case(64): few}))
    assert lead.kind == "unclear"
    assert lead.best is not None
    assert lead.best.backend == "quick"


def test_one_backend_with_a_time_wins_nothing_and_none_is_none() -> None:
    alone, none = leads_of(
        run_of({case(64): {"eager": around(1.0, 1)}}, failed(case(32), "eager", "crashed", "by signal 11"))
    )
    assert (alone.kind, none.kind) == ("alone", "none")
    assert none.best is None


def test_what_has_a_time_that_does_not_count_leads_nothing() -> None:
    suspect = failed(case(64), "odd", "suspect", "too fast to be true", median_ms=1e-6)
    (lead,) = leads_of(run_of({case(64): LEVEL}, suspect))
    assert "odd" not in {rival.record.backend for rival in lead.rivals} | {lead.best and lead.best.backend}


def test_identical_backends_hardly_ever_have_a_sole_lead() -> None:
    """Of k contenders some one is told as sole in at most k times 0.2 % of cases; here by far less than 3."""
    cases = {
        case(2 + i): {f"b{j}" if j else "eager": around(1.0, 100 * i + j, noise=0.1) for j in range(4)}
        for i in range(120)
    }
    assert SETS >= 9
    assert sum(lead.kind == "sole" for lead in leads_of(run_of(cases))) <= 3
