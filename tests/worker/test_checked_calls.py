"""Checked calls of backends that compute the right thing and meddle: each is refused in its own words."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from asked import BUILT_IN_BACKENDS, Asked, New

from attnbench.runner.processes import WorkerFailed

SMALL = "attention/dot/B2-H2-L8-D4/none/float32"


def ready(prepared_worker: New, name: str, case: str = SMALL) -> Asked:
    worker = prepared_worker(case)
    worker.prepare(name)
    worker.give(0, guarded=True)
    return worker


def refusal(worker: Asked) -> str:
    with pytest.raises(WorkerFailed) as failure:
        worker.output()
    assert failure.value.status == "mismatch"
    return failure.value.reason


def ticks(worker: Asked) -> int:
    """CPU time of all threads of a process but its first, in ticks of the system: a hundredth of a second."""
    used = 0
    for task in Path(f"/proc/{worker.link.pid}/task").iterdir():
        if int(task.name) != worker.link.pid:
            words = (task / "stat").read_text().rpartition(")")[2].split()
            used += int(words[11]) + int(words[12])
    return used


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("puts_back", "the call wrote to its first input, and put the values back"),
        ("writes_behind", "the call wrote outside its second input"),
        ("gives_an_input", "the output shares memory with the third input"),
        ("more_threads", "the call changed the number of threads from 1 to 2"),
        ("other_dtype", "the call changed the default dtype from torch.float32 to torch.float64"),
        ("less_precision", "the call changed the precision of float32 matmuls from highest to medium"),
        ("deterministic", "the call changed the mode of deterministic algorithms from 0 to 2"),
        ("builds_graphs", "the call changed the grad mode from False to True"),
        ("flushes_denormals", "the call changed the flushing of denormals from False to True"),
        ("allows_tf32", "the call changed the precision of float32 matmuls from highest to high"),
        ("no_flash", "the call changed the kernels that SDPA may use from "),
        ("sets_a_variable", "the call changed the environment: MEDDLING"),
        pytest.param(
            "takes_a_core",
            "the call changed the cores of its thread from ",
            marks=pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one core"),
        ),
        ("shares_files", "the call changed the umask from "),
        ("goes_to_the_root", "the call changed the working folder from "),
        ("speaks_c", "the call changed the locale from "),
        ("keeps_garbage", "the call changed whether garbage is collected from True to False"),
        ("collects_often", "the call changed the thresholds of the garbage collector from "),
        ("draws_from_torch", "the call drew from torch's random numbers"),
        ("draws_from_numpy", "the call drew from NumPy's random numbers"),
        ("random", "the call drew from Python's random numbers"),
        ("leaves_a_process", "the call left a process running that it started"),
        ("leaves_a_thread", "the call left a thread running"),
    ],
)
def test_meddling_is_refused_and_switches_are_restored(prepared_worker: New, name: str, words: str) -> None:
    worker = ready(prepared_worker, name)
    first = refusal(worker)
    assert first.startswith(words)
    # The same call is refused again: a switch that were still changed could not be changed.
    assert name.startswith("leaves") or refusal(worker) == first


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ignores_out", "the call was given out= and returned another tensor"),
        ("writes_behind_out", "the call wrote outside the tensor that it was given as out="),
    ],
)
def test_a_second_call_gets_a_tensor_to_write(prepared_worker: New, name: str, words: str) -> None:
    worker = ready(prepared_worker, name)
    worker.output()
    assert refusal(worker).startswith(words)


@pytest.mark.parametrize("name", ["fills", "adds_to_out", "leaves_a_row"])
def test_a_tensor_to_write_is_full_of_nan_before_the_call(prepared_worker: New, name: str) -> None:
    worker = ready(prepared_worker, name)
    first, second = worker.output(), worker.output()
    missing = {"fills": [], "adds_to_out": [*range(8)], "leaves_a_row": [7]}[name]
    assert not np.isnan(first).any()
    assert np.isnan(second).any(axis=(0, 1, 3)).nonzero()[0].tolist() == missing


@pytest.mark.skipif(os.getpriority(os.PRIO_PROCESS, 0) == 19, reason="the priority is the lowest already")
def test_a_call_that_lowers_its_priority_is_refused(prepared_worker: New) -> None:
    """An ordinary user can't put it back."""
    worker = ready(prepared_worker, "is_nice")
    assert refusal(worker).startswith("the call changed the niceness from ")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("works_on_a_thread", "the call computes on other threads: "),
        ("works_in_a_pool", "the call computes on other threads: "),
        ("gives_the_same_place", "the output shares memory with the output of an earlier call"),
    ],
)
def test_only_the_first_call_may_start_threads(prepared_worker: New, name: str, words: str) -> None:
    """Libraries start their pools at the first call, in a fork as well."""
    worker = ready(prepared_worker, name)
    worker.output()
    assert refusal(worker).startswith(words)
    if name != "gives_the_same_place":
        fork = prepared_worker(SMALL)
        fork.prepare(name)
        fork = fork.fork()
        fork.give(1, guarded=True)
        fork.output()
        assert refusal(fork).startswith(words)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "no_gradients",
            "the call leaves gradients switched off (torch.set_grad_enabled): later code gets no gradients",
        ),
        ("inference_mode", "the call leaves torch's inference mode on: later code gets no gradients"),
    ],
)
def test_gradients_stay_on_where_they_were_on(prepared_worker: New, name: str, words: str) -> None:
    """Forward passes run without, so the first call shows nothing."""
    worker = ready(prepared_worker, name)
    worker.output()
    assert refusal(worker) == words
    honest = ready(prepared_worker, "honest")
    for _ in range(3):
        assert np.isfinite(honest.output()).all()


@pytest.mark.parametrize(
    "name",
    ["waits_for_a_process", "leaves_a_thread_that_ends", "runs_python_in_a_pool", "starts_up_late"],
)
def test_work_that_ends_with_the_call_is_allowed(prepared_worker: New, name: str) -> None:
    """Also a pool that starts up while the second call runs."""
    worker = ready(prepared_worker, name)
    for _ in range(4):
        assert np.isfinite(worker.output()).all()


def test_work_between_calls_is_refused_at_the_next_call(prepared_worker: New) -> None:
    worker = ready(prepared_worker, "works_behind")
    worker.output()
    # The thread works for three.
    while ticks(worker) < 2:
        pass
    assert refusal(worker).startswith("other threads kept working after the call before: ")


def test_a_pool_that_starts_up_after_the_first_call_is_allowed(prepared_worker: New) -> None:
    worker = ready(prepared_worker, "starts_up_behind")
    worker.output()
    # More than is allowed between calls.
    while ticks(worker) < 2:
        pass
    for _ in range(3):
        assert np.isfinite(worker.output()).all()


def test_bits_are_compared_not_numbers(prepared_worker: New) -> None:
    """-0 equals 0, and NaN not itself."""
    shape = (2, 2, 8, 4)
    zeros = np.zeros(shape, np.float32)
    worker = ready(prepared_worker, "flips_a_zero")
    worker.give((zeros, zeros, zeros), guarded=True)
    assert refusal(worker) == "the call changed its third input"
    worker = ready(prepared_worker, "honest")
    worker.give((zeros, zeros, np.full(shape, np.nan, np.float32)), guarded=True)
    assert np.isnan(worker.output()).all()


@pytest.mark.parametrize("name", ["reads_before", "gives_memory_as_it_is"])
def test_memory_outside_of_inputs_and_outputs_holds_nan(prepared_worker: New, name: str) -> None:
    assert not np.isnan(ready(prepared_worker, "honest").output()).any()
    worker = ready(prepared_worker, name)
    # Which of the freed blocks is found is the allocator's choice; a check makes more calls than these.
    assert any(np.isnan(worker.output()).any() for _ in range(4))


@pytest.mark.parametrize("name", ["more_threads", "other_dtype", "a_device", "sets_a_variable"])
def test_preparation_notes_and_restores_switches(prepared_worker: New, name: str) -> None:
    worker = prepared_worker(SMALL)
    notes = worker.prepare(f"prepares_{name}").notes
    assert len(notes) >= 1
    assert all(note.startswith("preparation ") for note in notes)
    assert any(note.endswith("; put back") for note in notes)
    worker.give(0, guarded=True)
    assert worker.output().shape == (2, 2, 8, 4)
    assert worker.prepare("honest").notes == (), "nothing of it is left"


def test_preparation_may_choose_the_kernels_of_sdpa(prepared_worker: New) -> None:
    worker = prepared_worker(SMALL)
    assert worker.prepare("prepares_no_flash").notes == ()
    assert prepared_worker(SMALL).prepare("sdpa_math", BUILT_IN_BACKENDS).notes == ()


@pytest.mark.parametrize("name", ["more_threads", "draws_from_torch"])
def test_timed_calls_leave_the_state_alone_too(prepared_worker: New, name: str) -> None:
    with pytest.raises(WorkerFailed, match=r"^a timed call ") as failure:
        ready(prepared_worker, name).block(calls=1, samples=1)
    assert failure.value.status == "mismatch"
