"""What a call runs, as the worker tells it: by the recorder alone, and through real workers."""

from __future__ import annotations

import pytest
import torch
from asked import BUILT_IN_BACKENDS, ENOUGH_S, Asked, New

from attnbench.ipc import messages as m
from attnbench.runner.processes import WorkerFailed
from attnbench.worker.trace import NOTHING, kernel_name, what_ran

CAUSAL = "attention/scaled_dot/B2-H2-L16-D8/causal/float32"
LAYER = "multihead/scaled_dot/B1-H2-L16-D8-E16-bias/none/float32"
FLASH = "_scaled_dot_product_flash_attention_for_cpu"


def ran_in(worker: Asked) -> tuple[str, ...]:
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
    assert ran_in(prepared_worker(case, backend, BUILT_IN_BACKENDS)) == ran


def test_an_operation_stands_before_those_that_it_calls(prepared_worker: New) -> None:
    ran = ran_in(prepared_worker(CAUSAL, "sdpa_math", BUILT_IN_BACKENDS))
    assert ran[0] == "_scaled_dot_product_attention_math"
    assert {"bmm x2", "_softmax"} <= set(ran)
    assert not {"matmul", "transpose", "expand", "empty", "scaled_dot_product_attention"} & {
        text.partition(" ")[0] for text in ran
    }
    layer = prepared_worker(LAYER, "nn_multihead_attention", BUILT_IN_BACKENDS)
    assert ran_in(layer)[0] == "_native_multi_head_attention"


def test_a_call_that_raises_while_traced_leaves_no_recorder_on(prepared_worker: New) -> None:
    worker = prepared_worker(CAUSAL, "raises_once_warm")
    for _ in range(2):
        worker.output()
    with pytest.raises(WorkerFailed, match="the call raised ArithmeticError: tired"):
        worker.link.ask(m.TraceCall(), m.Traced, ENOUGH_S)
    # A recorder that was left on would refuse to be switched on again.
    traced, _ = worker.link.ask(m.TraceCall(), m.Traced, ENOUGH_S)
    assert traced.ran == ("mul", "add")


def test_custom_operations_have_their_names() -> None:
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


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_device_kernels_have_names(prepared_worker: New) -> None:
    case = "attention/scaled_dot/B2-H2-L128-D64/causal/bfloat16/cuda"
    ran = ran_in(prepared_worker(case, "sdpa_flash", BUILT_IN_BACKENDS))
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
        ("ampere_sgemm_128x64_nn", "ampere_sgemm_128x64_nn"),
        ("Memcpy DtoD (Device -> Device)", "Memcpy DtoD"),
        ("", ""),
    ],
)
def test_a_kernel_has_a_name_without_its_types(text: str, name: str) -> None:
    assert kernel_name(text) == name
