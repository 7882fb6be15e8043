"""One case: every backend gets one record, in time, with the status and reason that are its own."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest
from run_parts import CAUSAL, PLAIN, by_backend, declared, run_of

from attnbench.cases.ids import parse_case
from attnbench.cases.work import too_large
from attnbench.plugins.registry import load_registry
from attnbench.runner import case as contest
from attnbench.runner.machine import cpu_quota
from attnbench.runner.progress import Moment

LEFT_OUT = "compiles for seconds a case, so this suite gives it a few of its cases"


def test_refused_first_then_failed_then_measured_each_in_the_order_asked_for(
    odd_plugins: None, tmp_path: Path
) -> None:
    asked = ("bmm", "supports_nothing", "fused_multihead", "eager", "zeros", "nn_multihead_attention")
    stored = run_of(tmp_path, (PLAIN,), asked, registry=load_registry())
    assert [(record.backend, record.status) for record in stored.records] == [
        ("fused_multihead", "unsupported"),
        ("nn_multihead_attention", "unsupported"),
        ("supports_nothing", "unsupported"),
        ("zeros", "mismatch"),
        ("bmm", "ok"),
        ("eager", "ok"),
    ]
    records = by_backend(stored)
    assert records["fused_multihead"].reason == "computes multihead, not attention"
    assert records["supports_nothing"].reason == "only on Sundays"
    assert records["zeros"].accuracy is not None, "a wrong output says how wrong"
    assert records["zeros"].accuracy.rms_error > 100 * records["zeros"].accuracy.rms_limit
    (planned,) = stored.cases
    assert list(planned.contenders) == ["bmm", "eager"]


@pytest.mark.parametrize(
    ("compiled_on", "named", "refused"),
    [
        (frozenset({PLAIN}), (), [CAUSAL]),
        (frozenset(), ("bmm",), []),
    ],
)
def test_what_compiles_is_left_out_where_the_suite_says_unless_it_is_named(
    tmp_path: Path, compiled_on: frozenset[str] | None, named: tuple[str, ...], refused: list[str]
) -> None:
    registry = declared(load_registry(), "bmm", compiles=True)
    stored = run_of(
        tmp_path, (PLAIN, CAUSAL), ("eager", "bmm"), registry=registry, named=named, compiled_on=compiled_on,
        timed=False,
    )  # fmt: skip
    left_out = [record for record in stored.records if record.reason]
    assert [(r.case, r.backend, r.status, r.reason) for r in left_out] == [
        (case, "bmm", "unsupported", LEFT_OUT) for case in refused
    ]
    assert {r.status for r in stored.records if r not in left_out} == {"ok"}


def test_what_is_too_large_for_the_free_memory_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contest, "free_memory", lambda: 5000)
    stored = run_of(tmp_path, (PLAIN,), ("eager", "bmm"))
    registry = load_registry()
    for name, record in by_backend(stored).items():
        case = parse_case(PLAIN)
        said = too_large(case, registry.rule("dot"), registry.backend(name), 5000)
        assert said is not None
        assert (record.status, record.reason) == ("out_of_memory", said)
    assert stored.cases == stored.sets == ()


def prepared_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pids = folder / "pids"
    pids.mkdir()
    monkeypatch.setenv("BROKEN_PIDS", str(pids))
    return pids


def test_what_prepares_quickly_is_prepared_anew_for_each_set(
    odd_plugins: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whatever a busy machine makes of its milliseconds.
    monkeypatch.setattr("attnbench.runner.plan._ANEW_BELOW_MS", 1e12)
    pids = prepared_in(tmp_path, monkeypatch)
    run_of(tmp_path, (PLAIN,), ("record_process",), sets=4)
    # One more for the check.
    assert len(list(pids.iterdir())) == 5


def test_what_takes_long_to_prepare_is_prepared_once_and_forked(
    odd_plugins: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnbench.runner.plan._ANEW_BELOW_MS", 0.0)
    pids = prepared_in(tmp_path, monkeypatch)
    run_of(tmp_path, (PLAIN,), ("record_process",), sets=4)
    assert len(list(pids.iterdir())) == 1


@pytest.mark.parametrize(("sets", "restarts"), [(2, 2), (5, 3)], ids=lambda number: str(number))
def test_what_can_not_be_forked_is_started_anew_at_most_three_times(
    odd_plugins: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sets: int, restarts: int
) -> None:
    pids = prepared_in(tmp_path, monkeypatch)
    registry = declared(load_registry(), "record_process", forkable=False)
    stored = run_of(tmp_path, (PLAIN,), ("record_process",), registry=registry, sets=sets)
    (record,) = stored.records
    assert (record.status, record.sets) == ("ok", sets)
    assert record.verified_calls >= 2 * sets
    assert "can't be forked once prepared: restarted every few sets instead of for each" in record.notes
    # One where it is checked, those that are measured, and one whose memory is measured.
    assert len(list(pids.iterdir())) == 1 + restarts + 1


def test_with_several_threads_nothing_is_forked_once_prepared(tmp_path: Path) -> None:
    if cpu_quota() < 2:
        pytest.skip("needs two cores")
    case = f"{PLAIN}/threads2"
    stored = run_of(tmp_path, (case,), ("eager",))
    (record,) = stored.records
    # Whether it is believed is another matter: on busy cores two threads wait for each other.
    assert record.median_ms is not None, record.reason
    assert not stored.cases[0].contenders["eager"].fresh


@pytest.mark.parametrize(
    ("backends", "baseline"),
    [(("bmm",), "eager"), (("bmm", "only_when_timed"), "only_when_timed")],
    ids=["not asked for", "fails when timed"],
)
def test_without_the_baseline_there_is_a_time_and_no_ratio(
    odd_plugins: None, tmp_path: Path, backends: tuple[str, ...], baseline: str
) -> None:
    record = by_backend(run_of(tmp_path, (PLAIN,), backends, baseline=baseline))["bmm"]
    assert record.median_ms is not None
    assert record.ratio is None


@pytest.mark.parametrize("when", ["check bmm", "set 1 of 3", "set 2 of 3"])
def test_a_verifier_killed_in_the_middle_costs_its_case_alone(
    odd_plugins: None, tmp_path: Path, when: str
) -> None:
    """The next case has a new one. What was known before it died is not said twice."""
    killed: list[int] = []
    others = {process.pid for process in psutil.Process().children()}

    def kill_verifier(moment: Moment) -> None:
        if moment.doing == when and not killed:
            for process in psutil.Process().children():
                if process.pid in others:
                    continue
                if "attnbench.verifier.process" in process.cmdline():
                    os.kill(process.pid, signal.SIGKILL)
                    killed.append(process.pid)

    backends = ("fused_multihead", "raise_error", "eager", "bmm")
    stored = run_of(tmp_path, (PLAIN, CAUSAL), backends, sets=3, progress=kill_verifier)
    assert len(killed) == 1
    assert stored.finished is not None
    first, second = by_backend(stored, PLAIN), by_backend(stored, CAUSAL)
    assert set(first) == set(second) == set(backends)
    assert first["fused_multihead"].status == "unsupported"
    for name in ("eager", "bmm"):
        assert first[name].status == "error"
        assert first[name].reason.startswith("the oracle"), first[name].reason
        assert first[name].median_ms is None
        assert second[name].status == "ok", second[name].reason
    if when != "check bmm":
        assert first["raise_error"].reason.startswith("the call raised ValueError: first line")
