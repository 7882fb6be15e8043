"""What a worker refuses: each in the words and with the status that the record will have."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from asked import BUILT_IN_BACKENDS, BUILT_IN_RULES, ENOUGH_S, OUTSPOKEN, Asked

from attnbench.ipc import messages as m
from attnbench.ipc.shared_memory import pack
from attnbench.runner.link import WorkerFailed
from attnbench.types.extensions import Source

New = Callable[[str], Asked]

SMALL = "attention/dot/B2-H2-Lq3-Lk5-D4/none/float32"
MIB = 1024**2
BROKEN = Source("broken", "does_not_load", "broken-things", "2.1")
MISSING = Source("lost", "no_such_module_anywhere", "lost-things", "3")


def refused(worker: Asked, *args: object, **options: object) -> tuple[str, str]:
    with pytest.raises(WorkerFailed) as failure:
        worker.prepare(*args, **options)  # type: ignore[arg-type]
    return failure.value.status, failure.value.reason


@pytest.mark.parametrize(
    ("backend", "source", "status", "reason"),
    [
        ("egaer", BUILT_IN_BACKENDS, "error", "attnbench 0 (attnbench.backends) brings no 'egaer' here"),
        ("any", MISSING, "error", "lost-things 3 (no_such_module_anywhere): does not import: "
         "ModuleNotFoundError: No module named 'no_such_module_anywhere'"),
        ("any", BROKEN, "error", "broken-things 2.1 (does_not_load): does not import: "
         "OSError: a library is missing from this machine"),
        ("not_here", OUTSPOKEN, "unavailable", "no kernel for cpu"),
        ("asks_in_vain", OUTSPOKEN, "error", "supports() raised LookupError: no idea"),
    ],
)  # fmt: skip
def test_backends_that_can_not_be_prepared(
    template: New, backend: str, source: Source, status: str, reason: str
) -> None:
    worker = template(SMALL)
    assert refused(worker, backend, source) == (status, reason)
    worker.prepare("counts_calls")
    worker.give()
    assert worker.output().shape == (2, 2, 3, 4)


def test_rules_and_cases_that_nobody_knows(template: New) -> None:
    unknown = template("attention/dto/H1-L2-D2/none/float32")
    assert refused(unknown, "eager", BUILT_IN_BACKENDS, parameters={}) == (
        "error",
        "attnbench 0 (attnbench.rules) brings no 'dto' here",
    )
    assert refused(template(SMALL), "eager", BUILT_IN_BACKENDS, rule_source=BROKEN)[1].startswith(
        "broken-things 2.1 (does_not_load): does not import"
    )
    worker = template(SMALL).link
    fd, _ = pack({}, "float32")
    request = m.Prepare("attention/dot/H0-L1-D1", "eager", BUILT_IN_BACKENDS, BUILT_IN_RULES, (), None)
    with pytest.raises(WorkerFailed, match="BadCase: case 'attention/dot/H0-L1-D1': H = 0: sizes are 1"):
        worker.ask(request, m.Prepared, ENOUGH_S, (fd,))
    os.close(fd)


@pytest.mark.parametrize(
    ("case", "parameters", "missing"),
    [
        ("attention/general/H2-L3-D4/none/float32", {}, "rule.w"),
        ("attention/general/H2-L3-D4/none/float32", {"w": np.ones((2, 4, 4), np.float32)}, "rule.w"),
        ("multihead/dot/H2-L3-D4-E8/none/float32", {"w_q": np.ones((8, 8), np.float32)}, "w_k"),
    ],
)
def test_parameters_that_are_missing_are_named(
    template: New, case: str, parameters: Mapping[str, np.ndarray], missing: str
) -> None:
    status, reason = refused(template(case), "eager", BUILT_IN_BACKENDS, parameters=parameters)
    assert (status, reason) == ("error", f"Prepare raised KeyError: '{missing}'")


def test_memory_smaller_than_its_layout_is_refused_and_what_was_held_stays(template: New) -> None:
    worker = template(SMALL)
    worker.prepare("counts_calls")
    worker.give()
    worker.output()
    fd, _ = pack({"a": np.ones(4, np.float32)}, "float32")
    too_large = tuple(m.ArraySpec(name, "float32", (2, 2, 3, 4096), 0) for name in "abc")
    with pytest.raises(WorkerFailed, match=r"^Activations raised ValueError: buffer") as failure:
        worker.link.ask(m.Activations(too_large), m.Done, ENOUGH_S, (fd,))
    assert failure.value.status == "error"
    with pytest.raises(WorkerFailed, match=r"^Activations raised IndexError"):
        worker.link.ask(m.Activations(too_large), m.Done, ENOUGH_S)
    with pytest.raises(
        WorkerFailed, match=r"^Activations raised ValueError: 0 inputs where 3 are asked for$"
    ):
        worker.link.ask(m.Activations(()), m.Done, ENOUGH_S, (fd,))
    os.close(fd)
    assert set(worker.output().ravel()) == {2}


def test_a_failure_in_a_block_is_one_of_the_call_and_the_worker_goes_on(template: New) -> None:
    worker = template(SMALL)
    worker.prepare("raises_once_warm")
    worker.give()
    with pytest.raises(WorkerFailed) as failure:
        worker.block(calls=2, samples=5)
    assert (failure.value.status, failure.value.reason) == ("error", "the call raised ArithmeticError: tired")
    assert set(worker.output().ravel()) == {4}


def test_a_subclass_of_tensor_is_no_output(template: New) -> None:
    worker = template(SMALL)
    worker.prepare("gives_a_parameter")
    worker.give()
    with pytest.raises(WorkerFailed, match=r"^the output is a Parameter, not a torch.Tensor$") as failure:
        worker.output()
    assert failure.value.status == "mismatch"


@pytest.mark.parametrize("limit_mib", [64, 256])
def test_a_call_may_allocate_up_to_its_limit(template: New, limit_mib: int) -> None:
    """The backend holds 96 MiB; a fork has the limit of its template."""
    worker = template(SMALL)
    worker.prepare("holds_memory", limit=limit_mib * MIB)
    for each in (worker, worker.fork()):
        each.give()
        if limit_mib > 96:
            assert each.output().shape == (2, 2, 3, 4)
            continue
        with pytest.raises(
            WorkerFailed, match=r"^the call ran out of memory: .*Unable to allocate 96"
        ) as failure:
            each.output()
        assert failure.value.status == "out_of_memory"


def test_preparation_is_under_the_limit_too(template: New) -> None:
    status, reason = refused(template(SMALL), "prepares_memory", limit=64 * MIB)
    assert status == "out_of_memory"
    assert reason.startswith("preparation ran out of memory: RuntimeError: ")


def test_junk_moves_the_inputs_and_is_gone_when_they_are_there(template: New) -> None:
    worker = template(SMALL)
    worker.prepare("counts_calls", limit=256 * MIB)
    for _ in range(3):
        # Three times 160 MiB would not fit beside each other.
        worker.give(junk_bytes=160 * MIB)
    with pytest.raises(WorkerFailed, match=r"^Activations ran out of memory: MemoryError$") as failure:
        worker.give(1, junk_bytes=512 * MIB)
    assert failure.value.status == "out_of_memory"
    assert set(worker.output().ravel()) == {1}
