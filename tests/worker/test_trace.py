"""What a call runs, as the worker tells it: by the recorder alone, and through real workers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import count

import numpy as np
import pytest
import torch
from asked import BUILT_IN_BACKENDS, ENOUGH_S, OUTSPOKEN, Asked, attend
from hypothesis import given
from hypothesis import strategies as st

from attnbench.ipc import messages as m
from attnbench.runner.link import WorkerFailed, threads_of
from attnbench.types.extensions import Source
from attnbench.worker.trace import (
    LONGEST_NAME,
    MOST_NAMES,
    NOTHING,
    Op,
    kernel_name,
    nested,
    recorded,
    shown,
    signature,
    what_ran,
)

New = Callable[[str], Asked]

CAUSAL = "attention/scaled_dot/B2-H2-L16-D8/causal/float32"
LAYER = "multihead/scaled_dot/B1-H2-L16-D8-E16-bias/none/float32"
FLASH = "_scaled_dot_product_flash_attention_for_cpu"


def ran_in(worker: Asked, backend: str, source: Source = BUILT_IN_BACKENDS) -> tuple[str, ...]:
    worker.prepare(backend, source)
    worker.give()
    traced, _ = worker.link.ask(m.TraceCall(), m.Traced, ENOUGH_S)
    assert traced.problem == ""
    return traced.ran


@pytest.mark.parametrize(
    ("backend", "case", "ran"),
    [
        ("eager", CAUSAL, ("mul", "bmm x2", "add", "_softmax")),
        ("bmm", CAUSAL, ("baddbmm", "_softmax", "bmm")),
        ("sdpa_flash", CAUSAL, (FLASH,)),
        ("numpy", CAUSAL, (NOTHING,)),
        ("numpy", LAYER, (NOTHING,)),
        ("sdpa_flash", LAYER, ("addmm x4", FLASH)),
    ],
)
def test_the_operations_of_a_call(
    prepared_worker: New, backend: str, case: str, ran: tuple[str, ...]
) -> None:
    assert ran_in(prepared_worker(case), backend) == ran


def test_what_calls_others_to_compute_stands_before_them(prepared_worker: New) -> None:
    ran = ran_in(prepared_worker(CAUSAL), "sdpa_math")
    assert ran[0] == "_scaled_dot_product_attention_math"
    assert {"bmm x2", "_softmax"} <= set(ran)
    assert not {"matmul", "transpose", "expand", "empty", "scaled_dot_product_attention"} & {
        text.partition(" ")[0] for text in ran
    }
    assert ran_in(prepared_worker(LAYER), "nn_multihead_attention")[0] == "_native_multi_head_attention"


def test_generated_code_is_told_in_words_and_what_it_calls_by_name(prepared_worker: New) -> None:
    worker = prepared_worker(CAUSAL)
    worker.prepare("compiled", BUILT_IN_BACKENDS)
    worker.give()
    # In a fork of where it was compiled, as runs do it.
    traced, _ = worker.fork().link.ask(m.TraceCall(), m.Traced, ENOUGH_S)
    assert traced == m.Traced(("compiled code", "bmm x2"))


def test_the_worker_goes_on_as_before(prepared_worker: New) -> None:
    worker = prepared_worker(CAUSAL)
    first = ran_in(worker, "sdpa_flash")
    threads = threads_of(worker.link.pid)
    arrays = worker.give(1)
    assert worker.output().shape == arrays[0].shape
    assert ran_in(worker, "sdpa_flash") == first
    assert threads_of(worker.link.pid) == threads
    assert len(threads) == 1


def test_a_trace_is_one_call(prepared_worker: New) -> None:
    worker = prepared_worker(CAUSAL)
    ran_in(worker, "counts_calls", OUTSPOKEN)
    assert set(worker.output().ravel()) == {2}


def test_a_call_that_fails_while_traced_is_told_and_the_next_is_not_traced(prepared_worker: New) -> None:
    worker = prepared_worker(CAUSAL)
    worker.prepare("raises_once_warm")
    worker.give()
    for _ in range(2):
        worker.output()
    with pytest.raises(WorkerFailed, match="the call raised ArithmeticError: tired"):
        worker.link.ask(m.TraceCall(), m.Traced, ENOUGH_S)
    # A recorder that was left on would refuse to be switched on again.
    traced, _ = worker.link.ask(m.TraceCall(), m.Traced, ENOUGH_S)
    assert traced.ran == ("mul", "add")


def test_outputs_are_right_after_a_trace(prepared_worker: New) -> None:
    worker = prepared_worker("attention/dot/B1-H2-L8-D4/none/float64")
    ran_in(worker, "eager")
    arrays = worker.give(3)
    np.testing.assert_allclose(worker.output(), attend(*arrays), rtol=1e-12)


def test_calls_of_an_operation_of_ones_own_are_seen_with_its_name() -> None:
    with torch.library._scoped_library("traced_here", "DEF") as library:
        library.define("double(Tensor x) -> Tensor")
        library.impl("double", lambda x: x + x, "CompositeExplicitAutograd")
        x = torch.ones(2)
        ran, problem = what_ran(lambda: torch.ops.traced_here.double(x), "cpu")
    assert (ran, problem) == (("traced_here::double", "add"), "")


def test_a_backward_pass_is_seen() -> None:
    x = torch.ones(2, 2, requires_grad=True)
    ran, _ = what_ran(lambda: (x @ x).sum().backward(), "cpu")
    assert "mm x3" in ran


def test_words_of_a_profiler_are_no_operations() -> None:
    def call() -> None:
        with torch.autograd.profiler.record_function("flash_attention_of_mine"):
            torch.ones(2).exp()

    assert what_ran(call, "cpu")[0] == ("fill_", "exp")


def test_names_of_kernels_that_can_not_be_had_leave_the_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(call: Callable[[], object]) -> list[str]:
        raise RuntimeError("no CUPTI")

    monkeypatch.setattr("attnbench.worker.trace.kernels", broken)
    x = torch.ones(2)
    assert what_ran(lambda: x.exp(), "cuda") == (
        ("exp",),
        "the names of kernels are not known: RuntimeError: no CUPTI",
    )


def test_kernels_stand_after_the_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count(1)
    x = torch.ones(2)

    def call() -> None:
        next(calls)
        x.exp()

    def some(made: Callable[[], object]) -> list[str]:
        made()
        return ["void a::exp_kernel<float>(float*)", "void a::exp_kernel<double>(double*)"]

    monkeypatch.setattr("attnbench.worker.trace.kernels", some)
    assert what_ran(call, "cuda")[0] == ("exp", "cuda:a::exp_kernel x2")
    assert next(calls) == 3


def test_looking_for_kernels_where_there_is_no_device_finds_none() -> None:
    """In a process of its own: this recorder leaves a thread behind and writes to stderr."""
    script = (
        "import torch; from attnbench.worker.trace import kernels; x = torch.ones(2)\n"
        "print([name for name in kernels(lambda: x.exp())])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_device_kernels_have_names(prepared_worker: New) -> None:
    ran = ran_in(prepared_worker("attention/scaled_dot/B2-H2-L128-D64/causal/bfloat16/cuda"), "sdpa_flash")
    assert "_scaled_dot_product_flash_attention" in ran
    assert any(text.startswith("cuda:") and "flash" in text for text in ran), ran


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (
            "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, false, cutlass::half_t>, "
            "true>(pytorch_flash::Flash_fwd_params)",
            "pytorch_flash::flash_fwd_kernel",
        ),
        (
            "void (anonymous namespace)::softmax_warp_forward<float, float, 7, false>(float*, float const*)",
            "softmax_warp_forward",
        ),
        (
            "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, float>(Params<float>)",
            "internal::gemvx::kernel",
        ),
        ("ampere_sgemm_128x64_nn", "ampere_sgemm_128x64_nn"),
        ("triton_per_fused__softmax_0", "triton_per_fused__softmax_0"),
        ("Memcpy DtoD (Device -> Device)", "Memcpy DtoD"),
        ("Memset (Device)", "Memset"),
        ("", ""),
    ],
)
def test_a_kernel_has_a_name_without_its_types(text: str, name: str) -> None:
    assert kernel_name(text) == name


@given(st.lists(st.tuples(st.sampled_from(["push", "pop", "mark", "memory_alloc"]), st.text(max_size=3))))
def test_whatever_is_recorded_every_beginning_is_one_operation(events: list[tuple[str, str]]) -> None:
    def size(ops: list[Op]) -> int:
        return sum(1 + size(op.inside) for op in ops)

    assert size(nested(events)) == sum(kind == "push" for kind, _ in events)


names = st.sampled_from(["aten::view", "aten::matmul", "aten::bmm", "aten::copy_", "mine::op", "a word", ""])
trees = st.recursive(st.builds(Op, names), lambda inside: st.builds(Op, names, st.lists(inside)))


@given(st.lists(trees))
def test_no_view_is_shown_and_no_operation_that_computes_is_lost(ops: list[Op]) -> None:
    def within(some: list[Op]) -> set[str]:
        return {name for op in some for name in {op.name} | within(op.inside)}

    told, there = set(shown(ops)), within(ops)
    assert told <= {"matmul", "bmm", "copy_", "mine::op"}
    for name in ("aten::bmm", "mine::op"):
        assert (name in there) == (name.removeprefix("aten::") in told)


def test_copies_inside_an_operation_are_its_own_affair() -> None:
    copy = Op("aten::copy_")
    assert shown([Op("aten::reshape", [Op("aten::clone", [copy])]), Op("aten::baddbmm", [copy])]) == [
        "copy_",
        "baddbmm",
    ]
    assert shown([Op("Torch-Compiled Region: 0/0", [copy])]) == ["compiled code", "copy_"]


def test_a_signature_is_bounded() -> None:
    many = signature([f"{number}{'x' * 1000}" for number in range(MOST_NAMES + 7)])
    assert len(many) == MOST_NAMES + 1
    assert many[-1] == "and 7 more"
    assert max(map(len, many)) == LONGEST_NAME
    assert signature(["b", "a", "b"]) == ("b x2", "a")


def test_the_recorder_is_off_again_where_the_call_raises() -> None:
    def fail() -> None:
        raise KeyError("here")

    with pytest.raises(KeyError, match="here"):
        recorded(fail)
    assert recorded(lambda: None) == []
