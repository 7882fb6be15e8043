"""One timed run of many broken and right backends on few small cases; the tests read its records."""

from __future__ import annotations

import os

import psutil
import pytest
from run_parts import PLAIN, assert_records, by_backend, run_of

from attnbench.results.format import StoredRun
from attnbench.runner.machine import cpu_quota

pytestmark = pytest.mark.slow

CASE = "attention/dot/B2-H2-Lq32-Lk32-D16/none/float32/cpu/forward"
DROPOUT = "attention/scaled_dot/B2-H4-Lq64-Lk64-D16/none/float32/cpu/forward/dropout0.1"
BOTH, BACKWARD = PLAIN.replace("forward", "both"), PLAIN.replace("forward", "backward")
LAYER = "multihead/general/B1-H2-L6-D4-E8-bias/causal/float32/cpu/both"
ALONE, THREADS = f"{PLAIN}/seed1", f"{PLAIN}/threads2"
MIB = 1024**2
TIMED = "in the output of a timed call, call "
BROKEN = {
    "segfault": ("crashed", "", "died of SIGSEGV"),
    "exit_at_once": ("crashed", "", "exited with status 0"),
    "exit_politely": ("crashed", "", "called exit(0)"),
    "kill_itself": ("crashed", "", "died of SIGKILL"),
    "close_every_line": ("crashed", "", "died of SIGKILL"),
    "allocate_without_end": ("out_of_memory", "", "ran out of memory"),
    "raise_error": ("error", "", "ValueError: first line second line"),
    "fail_to_prepare": ("error", "", "no such instruction set"),
    "to_nan": ("mismatch", "not_finite", "nan"),
    "zeros": ("mismatch", "values", "RMS error"),
    "wrong_shape": ("mismatch", "output_form", "has shape (2, 2, 32, 15); (2, 2, 32, 16) is asked for"),
    "no_tensor": ("mismatch", "output_form", "is a list, not a torch.Tensor"),
    "only_when_timed": ("mismatch", "timed_values", TIMED),
    "remember_by_address": ("mismatch", "values", "is above"),
    "remember_when_timed": ("mismatch", "timed_values", TIMED),
    "compute_every_eighth": ("mismatch", "timed_values", TIMED),
    "keep_weights": ("mismatch", "timed_values", TIMED),
    "change_inputs": ("mismatch", "inputs_changed", "the call changed its third input"),
    # It can write to the outputs that are kept of its own calls, but not to the inputs of others.
    "spoil_shared_memory": ("mismatch", "timed_values", TIMED),
    "leave_a_child": ("mismatch", "activity", "left a process running"),
    "leave_a_child_when_timed": ("mismatch", "activity", "a timed call left a process running"),
    "needs_what_is_not_there": ("unavailable", "", "needs no_such_module_anywhere"),
    "supports_nothing": ("unsupported", "", "only on Sundays"),
    "third_abort": ("crashed", "", "died of SIGABRT during timed calls"),
    "third_exit_at_once": ("crashed", "", "exited with status 3 during timed calls"),
    "third_exit_politely": ("crashed", "", "the call called exit(4)"),
    "third_raise_an_error": ("error", "", "the call raised ValueError: not today"),
    "third_tell_rubbish": ("crashed", "", "the worker sent unreadable data during timed calls"),
}
WAITED_FOR = {
    "loop_for_ever": ("timeout", "", "a checked call took longer than 4 s; the worker was killed"),
    # The process that it leaves holds its line open.
    "crash_and_leave_a_group": ("crashed", "", "it left processes running, which were ended"),
}
UNHARMED = ("print_rubbish", "leave_a_daemon", "record_process", "can_not_be_forked", "bmm")
DROPPED = {
    "drop_one_mask": ("mismatch", "dropout", ""),
    "drop_p_a_fifth_larger": ("mismatch", "dropout", "the variance of"),
    "drop_none_when_timed": ("mismatch", "timed_values", "in the output of a timed call"),
    "drop_first_weights_when_timed": ("mismatch", "timed_values", "in the output of a timed call"),
}
DROPS_RIGHT = ("drop_right", "drop_generator_of_its_own", "eager", "numpy")
GRADIENTS = ("eager", "bmm", "sdpa_math")


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
    """Processes that were there right after a run of broken backends, and not before it."""
    return []


@pytest.fixture(scope="module")
def broken(
    odd_plugins: None, left: list[psutil.Process], tmp_path_factory: pytest.TempPathFactory
) -> StoredRun:
    """A run with one call a sample and no warm calls, so that a third call is in a third slot."""
    asked = {
        CASE: (*BROKEN, "third_close_everything", *UNHARMED, "fused_multihead"),
        DROPOUT: (*DROPPED, *DROPS_RIGHT),
        BOTH: (*GRADIENTS, "wrong_dk", "wrong_dv_when_timed", "forgets_k", "numpy"),
        BACKWARD: (*GRADIENTS, "wrong_dk"),
        LAYER: ("eager", "bmm"),
        ALONE: ("raise_error",),
        **({THREADS: ("bmm",)} if cpu_quota() > 1 else {}),
    }
    before = workers()
    stored = run_of(
        tmp_path_factory.mktemp("broken"), asked, named=("fused_multihead",), budget_s=0.02, repetitions=3,
        launches=2, sample_s=1e-9, warm_s=0, memory_limit_bytes=512 * MIB, baseline="only_when_timed",
    )  # fmt: skip
    left += workers() - before
    return stored


@pytest.fixture(scope="module")
def waited_for(
    odd_plugins: None, left: list[psutil.Process], tmp_path_factory: pytest.TempPathFactory
) -> StoredRun:
    """A run of those that take the whole time limit, which is short here: one of them uses a core so long."""
    before = workers()
    stored = run_of(tmp_path_factory.mktemp("waited"), (CASE,), (*WAITED_FOR, "bmm"), timeout_s=4)
    left += workers() - before
    return stored


@pytest.mark.parametrize("name", BROKEN)
def test_each_failure_has_its_status_check_and_reason(broken: StoredRun, name: str) -> None:
    assert_records(by_backend(broken, CASE), {name: BROKEN[name]})


def test_those_that_take_the_whole_time_limit_harm_no_other(waited_for: StoredRun) -> None:
    assert_records(by_backend(waited_for, CASE), WAITED_FOR | {"bmm": ("ok", "", "")})


def test_other_backends_are_unharmed(broken: StoredRun) -> None:
    records = by_backend(broken, CASE)
    for name in UNHARMED:
        record = records[name]
        assert record.status == "ok", (name, record.reason)
        assert record.verified_calls >= 2 * record.repetitions == 6
        assert record.timed_calls > 0
        assert record.accuracy.rms_error < 1e-5
        # The baseline failed when it was timed.
        assert record.median_ms is not None
        assert record.ratio is None
    told = records["can_not_be_forked"].notes
    assert any("one process serves several repetitions" in note for note in told)
    assert any("preparation left a process running" in note for note in records["leave_a_daemon"].notes)
    assert records["third_close_everything"].status == "crashed"
    assert records["third_raise_an_error"].ran == ["bmm x2", "_softmax"]
    zeros = records["zeros"].accuracy
    assert zeros is not None, "a wrong output says how wrong"
    assert zeros.rms_error > 100 * zeros.rms_limit


def test_records_are_written_as_soon_as_they_are_known(broken: StoredRun) -> None:
    """Refused first, then failed in the check, then timed; each in the order asked for."""
    names = [record.backend for record in broken.records if record.case == CASE]
    asked = [*BROKEN, "third_close_everything", *UNHARMED, "fused_multihead"]
    (planned,) = (line for line in broken.cases if line.case == CASE)
    timed = [name for name in asked if name in planned.candidates]
    assert names[0] == "fused_multihead"
    assert names[-len(timed) :] == timed
    assert sorted(names) == sorted(asked)


def test_a_failure_in_a_slot_drops_one_backend_and_the_segment_is_taken_again(broken: StoredRun) -> None:
    first, *others = (line for line in broken.repetitions if line.case == CASE)
    assert {name for name in first.failed if name.startswith("third_")} == {
        name for name in (*BROKEN, "third_close_everything") if name.startswith("third_")
    }
    # One repetition in 64 misses the repeated answer.
    assert {name for line in others for name in line.failed} <= {"compute_every_eighth"}
    (planned,) = (line for line in broken.cases if line.case == CASE)
    for line in (first, *others):
        for name in UNHARMED:
            samples = planned.candidates[name].samples
            assert [(block.segment, len(block.slots)) for block in line.samples[name]] == [
                (0, samples), (1, samples),
            ]  # fmt: skip
    for line in others:
        for number in range(2):
            blocks = [block for both in line.samples.values() for block in both if block.segment == number]
            slots = sorted(slot for block in blocks for slot in block.slots)
            assert len(set(slots)) == len(slots)
            # Those of a backend whose outputs were wrong are not kept.
            assert line.failed or slots == [*range(len(slots))]


def test_no_process_is_left(broken: StoredRun, waited_for: StoredRun, left: list[psutil.Process]) -> None:
    """Not even the children that a backend started. What was killed may take a moment to be gone."""
    _, alive = psutil.wait_procs(left, timeout=60)
    assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []


def test_a_case_without_a_right_backend_ends(broken: StoredRun) -> None:
    assert_records(by_backend(broken, ALONE), {"raise_error": BROKEN["raise_error"]})


def test_with_several_threads_nothing_is_forked_once_prepared(broken: StoredRun) -> None:
    for planned in (line for line in broken.cases if line.case == THREADS):
        assert not planned.candidates["bmm"].fresh
        # On busy cores two threads wait for each other, and the record may be suspect.
        assert by_backend(broken, THREADS)["bmm"].median_ms is not None


def test_wrong_dropout_is_a_mismatch_and_right_dropout_has_a_time(broken: StoredRun) -> None:
    records = by_backend(broken, DROPOUT)
    assert_records(records, DROPPED)
    wrong = records["drop_p_a_fifth_larger"]
    assert wrong.failed_on == ["dropout"]
    assert wrong.dropout.p > wrong.dropout.p_most > 0.1
    for name in DROPS_RIGHT:
        record, found = records[name], records[name].dropout
        assert record.status == "ok", record.reason
        assert record.verified_calls >= 3 * 2
        assert record.accuracy is None
        assert found.p_least < found.p < found.p_most
        assert found.p_least < 0.1 < found.p_most
        assert found.calls >= 32
        assert any(note.startswith(f"dropout 0.1: {found.p:.4g} by its spread over") for note in record.notes)


@pytest.mark.parametrize(("case", "parts"), [(BOTH, {"out", "q", "k", "v"}), (BACKWARD, {"q", "k", "v"})])
def test_gradients_are_checked_part_by_part_and_verified_while_timed(
    broken: StoredRun, case: str, parts: set[str]
) -> None:
    records = by_backend(broken, case)
    for name in GRADIENTS:
        record = records[name]
        assert record.status in ("ok", "suspect"), record.reason
        assert record.verified_calls >= 2 * 3
        assert set(record.parts) == parts
        assert all(0 <= one.rms_error <= one.rms_limit for one in record.parts.values())
        assert record.accuracy in record.parts.values()
    assert_records(records, {"wrong_dk": ("mismatch", "gradients", "the gradient of k: RMS error")})
    assert records["wrong_dk"].failed_on == ["normal"]
    if case == BOTH:
        words = "computes the forward pass, not both"
        assert_records(records, {"numpy": ("unsupported", "", words)})
        assert_records(records, {"forgets_k": ("error", "graph", "no gradient reaches k")})
        timed = records["wrong_dv_when_timed"]
        assert (timed.status, timed.failed_check) == ("mismatch", "timed_values")
        assert timed.reason.startswith(TIMED)
        assert "the gradient of v: RMS error" in timed.reason


def test_a_layer_has_gradients_of_its_projections_and_of_the_rules_parameters(broken: StoredRun) -> None:
    for record in by_backend(broken, LAYER).values():
        assert record.status in ("ok", "suspect"), record.reason
        assert set(record.parts) == {
            "out", "x", "rule.w", "w_q", "w_k", "w_v", "w_o", "b_q", "b_k", "b_v", "b_o",
        }  # fmt: skip
