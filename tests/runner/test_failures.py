"""Whatever one backend does, its record says so and the others are unharmed."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest
from run_parts import by_backend, run_of

import attnbench
from attnbench.types.record import Record

CASE = "attention/dot/B2-H2-Lq32-Lk32-D16/none/float32/cpu/forward"
HARMLESS = "bmm"


def workers() -> set[psutil.Process]:
    """Processes that work for this one, forks of forks too: all have its number on their command line."""
    mine = set(psutil.Process(os.getpid()).children(recursive=True))
    found = set()
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        of_ours = process in mine or str(os.getpid()) in words
        if of_ours and "attnbench" in " ".join(words):
            found.add(process)
    return found


@pytest.fixture(scope="module")
def left() -> list[psutil.Process]:
    """Processes that were there right after the run of all, and not before it: other modules keep some."""
    return []


@pytest.fixture(scope="module")
def records(left: list[psutil.Process], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Record]:
    """One run of every broken backend beside two right ones, with short limits."""
    import importlib.metadata

    with pytest.MonkeyPatch.context() as patch:
        broken = Path(__file__).parent.parent / "broken"
        patch.syspath_prepend(broken)
        patch.setenv("PYTHONPATH", str(broken))
        (distribution,) = importlib.metadata.distributions(name="attnbench-broken")
        assert distribution.version == "1.0"
        import broken_backends

        names = [*broken_backends.CALLS, *broken_backends.PREPARES]
        names += ["needs_what_is_not_there", "supports_nothing", "can_not_be_forked"]
        before = workers()
        run = run_of(
            tmp_path_factory.mktemp("failures") / "run.jsonl",
            (CASE,),
            ("eager", *names, HARMLESS),
            budget_s=0.02,
            sets=4,
            timeout_s=15,
            memory_limit_bytes=512 * 1024**2,
        )
        left += workers() - before
    return by_backend(run, CASE)


@pytest.mark.parametrize(
    ("backend", "status", "reason"),
    [
        ("segfault", "crashed", "died of SIGSEGV"),
        ("exit_at_once", "crashed", "exited with status 0"),
        ("exit_politely", "crashed", "called exit(0)"),
        ("kill_itself", "crashed", "died of SIGKILL"),
        ("close_every_line", "crashed", "died of SIGKILL"),
        ("loop_for_ever", "timeout", "a checked call took longer than 15 s; the worker was killed"),
        ("allocate_without_end", "out_of_memory", "ran out of memory"),
        ("raise_error", "error", "ValueError: first line second line"),
        ("fail_to_prepare", "error", "no such instruction set"),
        ("to_nan", "mismatch", "nan"),
        ("zeros", "mismatch", ""),
        ("wrong_dtype", "mismatch", "has dtype float64; float32 is asked for"),
        ("wrong_shape", "mismatch", "has shape (2, 2, 32, 15); (2, 2, 32, 16) is asked for"),
        ("wrong_device", "mismatch", "is on meta; cpu is asked for"),
        ("no_tensor", "mismatch", "is a list, not a torch.Tensor"),
        ("only_when_timed", "mismatch", "in the output of a timed call"),
        ("crash_when_timed", "crashed", "died of SIGABRT"),
        ("remember_by_address", "mismatch", "is above"),
        ("remember_when_timed", "mismatch", "in the output of a timed call"),
        ("compute_every_second", "mismatch", "in the output of a timed call, call "),
        ("keep_weights", "mismatch", "in the output of a timed call"),
        ("change_inputs", "mismatch", "the call changed its third input"),
        # What is kept of its own outputs is among what it can write to; the inputs of others are not.
        ("spoil_shared_memory", "mismatch", "in the output of a timed call"),
        ("leave_a_child", "mismatch", "left a process running"),
        ("needs_what_is_not_there", "unavailable", "needs no_such_module_anywhere"),
        ("supports_nothing", "unsupported", "only on Sundays"),
    ],
)
def test_each_failure_has_its_status_and_reason(
    records: dict[str, Record], backend: str, status: str, reason: str
) -> None:
    record = records[backend]
    assert record.status == status, record.reason
    assert reason.lower() in record.reason.lower()
    assert "\n" not in record.reason


def test_each_mismatch_names_the_check_that_failed(records: dict[str, Record]) -> None:
    expected = {
        "to_nan": "not_finite",
        "zeros": "values",
        "wrong_shape": "output_form",
        "no_tensor": "output_form",
        "change_inputs": "inputs_changed",
        "leave_a_child": "activity",
        "only_when_timed": "timed_values",
        "raise_error": "",
        HARMLESS: "",
    }
    assert {name: records[name].failed_check for name in expected} == expected


def test_only_ok_and_suspect_carry_a_timing(records: dict[str, Record]) -> None:
    for record in records.values():
        assert (record.median_ms is not None) == (record.status in ("ok", "suspect")), record


@pytest.mark.parametrize(
    "backend",
    [
        "eager",
        HARMLESS,
        "print_rubbish",
        "leave_a_child_when_timed",
        "record_process",
        "can_not_be_forked",
    ],
)
def test_the_others_are_unharmed(records: dict[str, Record], backend: str) -> None:
    record = records[backend]
    assert record.status == "ok", record.reason
    assert record.verified_calls >= 2 * record.sets >= 6
    assert record.timed_calls > 0
    assert record.accuracy is not None
    assert record.accuracy.rms_error < 1e-5


def test_what_can_not_be_forked_says_so(records: dict[str, Record]) -> None:
    assert any("restarted" in note for note in records["can_not_be_forked"].notes)


def test_a_clock_that_runs_slow_is_suspect(broken_plugin: str, tmp_path: Path) -> None:
    """Its samples are kept, and rank nowhere."""
    run = attnbench.run(CASE, ["slow_the_clock"], budget=0.3, sets=3, out=tmp_path)
    (record,) = run.records
    assert record.status == "suspect"
    assert "by its own clock" in record.reason
    assert "by the clocks of the others" in record.reason
    assert record.median_ms is not None


@pytest.mark.parametrize("backend", ["raise_error", "only_when_timed"])
def test_a_case_on_which_nobody_is_left_ends(broken_plugin: str, tmp_path: Path, backend: str) -> None:
    """Dropped before the first set, and in it."""
    run = attnbench.run(CASE, [backend], budget=0.01, sets=3, out=tmp_path)
    (record,) = run.records
    assert record.status in ("error", "mismatch")
    assert run.unfinished == ()


def test_no_process_is_left(records: dict[str, Record], left: list[psutil.Process]) -> None:
    """Not even the children that a backend started. What was killed may take a moment to be gone."""
    _, alive = psutil.wait_procs(left, timeout=60)
    assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []
