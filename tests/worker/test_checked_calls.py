"""Checked calls of backends that compute the right thing and meddle: each is refused in its own words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from asked import BUILT_IN_BACKENDS, Asked, attend

from attnbench.cases.ids import parse_case
from attnbench.runner.link import WorkerFailed
from attnbench.types.extensions import Source

New = Callable[[str], Asked]

SMALL = "attention/dot/B2-H2-L8-D4/none/float32"
MEDDLING = Source("meddling", "meddling_plugin", "meddling", "1.0")


def ready(prepared_worker: New, name: str, case: str = SMALL) -> Asked:
    worker = prepared_worker(case)
    worker.prepare(name, MEDDLING)
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
        ("draws_from_torch", "the call drew from torch's random numbers"),
        ("draws_from_numpy", "the call drew from NumPy's random numbers"),
        ("random", "the call drew from Python's random numbers"),
        ("leaves_a_process", "the call left a process running that it started"),
        ("leaves_a_thread", "the call left a thread running"),
    ],
)
def test_who_meddles_is_refused_at_the_first_call(prepared_worker: New, name: str, words: str) -> None:
    assert refusal(ready(prepared_worker, name)).startswith(words)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("works_on_a_thread", "the call computes on other threads: "),
        ("works_in_a_pool", "the call computes on other threads: "),
        ("gives_the_same_place", "the output shares memory with the output of an earlier call"),
    ],
)
def test_what_a_first_call_may_start_no_later_one_may(prepared_worker: New, name: str, words: str) -> None:
    """Libraries start their pools at the first call, in a fork as well."""
    worker = ready(prepared_worker, name)
    worker.output()
    assert refusal(worker).startswith(words)
    if name != "gives_the_same_place":
        fork = prepared_worker(SMALL)
        fork.prepare(name, MEDDLING)
        fork = fork.fork()
        fork.give(1, guarded=True)
        fork.output()
        assert refusal(fork).startswith(words)


def test_a_process_that_ended_within_the_call_is_fine(prepared_worker: New) -> None:
    worker = ready(prepared_worker, "waits_for_a_process")
    for _ in range(2):
        assert np.isfinite(worker.output()).all()


def test_who_works_between_calls_is_refused_at_the_next(prepared_worker: New) -> None:
    worker = ready(prepared_worker, "works_behind")
    worker.output()
    # The thread works for three.
    while ticks(worker) < 2:
        pass
    assert refusal(worker).startswith("other threads kept working after the call before: ")


@pytest.mark.parametrize(
    "name",
    ["more_threads", "other_dtype", "less_precision", "deterministic", "builds_graphs", "flushes_denormals",
     "allows_tf32", "no_flash", "sets_a_variable", "draws_from_torch", "draws_from_numpy", "random"],
)  # fmt: skip
def test_what_was_changed_is_put_back(prepared_worker: New, name: str) -> None:
    """The same call is refused again: it could not change what were still changed."""
    worker = ready(prepared_worker, name)
    assert refusal(worker) == refusal(worker)
    worker.prepare("honest", MEDDLING)
    arrays = worker.give(1, guarded=True)
    np.testing.assert_allclose(worker.output(), attend(*arrays), rtol=1e-5)


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
def test_what_is_read_but_not_given_shows_as_nan(prepared_worker: New, name: str) -> None:
    assert not np.isnan(ready(prepared_worker, "honest").output()).any()
    worker = ready(prepared_worker, name)
    # Which of the freed blocks is found is the allocator's choice; a check makes more calls than these.
    assert any(np.isnan(worker.output()).any() for _ in range(4))


def test_memory_of_a_large_output_is_full_of_nan_too(prepared_worker: New) -> None:
    """Arrays of half a MiB and more are mapped anew, and empty, until the allocator learns otherwise."""
    worker = ready(prepared_worker, "gives_memory_as_it_is", "attention/dot/B1-H1-L8192-D64/none/float32")
    assert np.isnan(worker.output()).mean() > 0.9


def test_a_parameter_is_no_output(prepared_worker: New) -> None:
    worker = prepared_worker("attention/general/B1-H2-L4-D4/none/float32")
    worker.prepare("gives_a_parameter", MEDDLING)
    worker.give(0, guarded=True)
    assert refusal(worker) == "the output shares memory with a parameter of the case"


def test_of_one_key_the_value_itself_is_an_answer(prepared_worker: New) -> None:
    """As self-tests of the clock have it, in whose calls there is nothing to compute."""
    worker = ready(prepared_worker, "gives_an_input", "attention/dot/B1-H2-L1-D4/none/float32")
    for draw in range(3):
        _, _, v = worker.give(draw, guarded=True)
        assert worker.output().tobytes() == v.tobytes()
    worker = ready(prepared_worker, "gives_an_input", "attention/dot/B1-H2-L2-D4/none/float32")
    assert refusal(worker) == "the output shares memory with the third input"


def test_guarded_inputs_are_renewed_where_they_are(prepared_worker: New) -> None:
    worker = prepared_worker(SMALL)
    worker.prepare("counts_places")
    counts = []
    for draw, guarded in ((0, True), (1, True), (2, False), (3, False), (4, True)):
        worker.give(draw, guarded=guarded)
        counts.append(int(worker.output().flat[0]))
    assert counts[0] == counts[1] == 1
    assert counts[2] == counts[3] == 2
    worker.prepare("honest", MEDDLING)
    for draw in range(3):
        arrays = worker.give(draw, guarded=True)
        np.testing.assert_allclose(worker.output(), attend(*arrays), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
@pytest.mark.parametrize("case", ["attention/dot/B1-H2-L3-D5", "multihead/dot/B2-H2-L3-D2-E5"])
def test_guarded_inputs_have_the_given_bits_and_sharing(prepared_worker: New, case: str, dtype: str) -> None:
    worker = prepared_worker(f"{case}/none/{dtype}")
    worker.prepare("gives_values" if "attention" in case else "tells_identity")
    arrays = worker.give(0, guarded=True)
    if parse_case(worker.case).is_self_attention:
        assert set(worker.output().ravel().tolist()) <= {3, 0x4040}
    else:
        assert worker.output().tobytes() == arrays[2].tobytes()


@pytest.mark.parametrize("name", ["more_threads", "other_dtype", "a_device", "sets_a_variable"])
def test_what_preparation_changes_for_others_is_put_back_and_told(prepared_worker: New, name: str) -> None:
    worker = prepared_worker(SMALL)
    notes = worker.prepared(f"prepares_{name}", MEDDLING).notes
    assert len(notes) >= 1
    assert all(note.startswith("preparation ") for note in notes)
    assert any(note.endswith("; put back") for note in notes)
    worker.give(0, guarded=True)
    assert worker.output().shape == (2, 2, 8, 4)
    assert worker.prepared("honest", MEDDLING).notes == (), "nothing of it is left"


def test_what_preparation_sets_for_its_own_calls_stays(prepared_worker: New) -> None:
    worker = prepared_worker(SMALL)
    assert worker.prepared("prepares_no_flash", MEDDLING).notes == ()
    assert prepared_worker(SMALL).prepared("sdpa_math", BUILT_IN_BACKENDS).notes == ()


@pytest.mark.parametrize("name", ["more_threads", "draws_from_torch"])
def test_timed_calls_leave_the_state_alone_too(prepared_worker: New, name: str) -> None:
    with pytest.raises(WorkerFailed, match=r"^a timed call ") as failure:
        ready(prepared_worker, name).block(calls=1, samples=1)
    assert failure.value.status == "mismatch"


def test_turns_tell_what_all_threads_used(prepared_worker: New) -> None:
    taken = ready(prepared_worker, "works_on_a_thread").slots(calls=1, samples=2)
    assert taken.process_cpu_ns - taken.thread_cpu_ns > 50e6
    alone = ready(prepared_worker, "honest").slots(calls=1, samples=2)
    assert sum(alone.block.cpu_ns) <= alone.thread_cpu_ns <= alone.process_cpu_ns


@pytest.mark.parametrize("name", ["eager", "sdpa_flash", "sdpa_math", "bmm", "weighted_sum", "per_head_loop",
                                  "chunked", "numpy"])  # fmt: skip
@pytest.mark.parametrize("case", ["attention/scaled_dot/B1-H4-Hkv2-L16-D8/causal/float32",
                                  "multihead/scaled_dot/B2-H4-L16-D8-E32-bias/padding/float32"])  # fmt: skip
def test_built_in_backends_leave_everything_alone(prepared_worker: New, name: str, case: str) -> None:
    worker = prepared_worker(case)
    assert worker.prepared(name, BUILT_IN_BACKENDS).notes == ()
    for link in (worker, worker.fork()):
        for draw in range(3):
            link.give(draw, guarded=True)
            assert np.isfinite(link.output()).all()
        link.give(3)
        link.block(calls=2, samples=2)
        assert np.isfinite(link.last()).all()
