"""The backends of the package, and why a backend of it is unavailable here."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from functools import reduce
from importlib.metadata import PackageNotFoundError
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from attnbench_cuda import (
    BATCHES,
    DENSE,
    RECURRENCES,
    attnbench_backends,
    flash_attn,
    flash_attn_3,
    flash_attn_4,
    flashinfer,
    hub,
    sageattention,
    transformer_engine,
    xformers,
)
from attnbench_cuda.device import cannot_call, needs_gpu
from library_modules import FUNCTIONS, modules
from published import PUBLISHED

from attnbench.plugins.kinds import fault

BACKENDS = {backend.name: backend for backend in attnbench_backends()}
HOPPER = (9, 0)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Callable[[tuple[int, int]], None]:
    """Let torch find a device of a compute capability."""

    def of(capability: tuple[int, int]) -> None:
        monkeypatch.setattr(torch.version, "cuda", "12.8")
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)

    return of


@pytest.fixture
def libraries(device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every library is installed, as a stand-in, beside a device that all have kernels for."""
    device(HOPPER)
    for name, module in modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    hugging_face = ModuleType("huggingface_hub")
    hugging_face.constants = SimpleNamespace(HF_HUB_OFFLINE=True)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hugging_face)
    monkeypatch.setattr(flash_attn, "find_spec", lambda name: SimpleNamespace(origin="__init__.py"))
    monkeypatch.setattr(flash_attn_4, "version", lambda name: "4.0.0b36")
    monkeypatch.setattr(sageattention, "version", lambda name: "2.2.0")
    hub.cached.cache_clear()
    yield
    hub.cached.cache_clear()


def test_what_it_brings() -> None:
    names: dict[str, list[str]] = {}
    for name, backend in BACKENDS.items():
        names.setdefault(*backend.requires, []).append(name)
    assert names == {
        "flash_attn": [
            "flash_attn", "flash_attn_4", "flash_attn_varlen", "flash_attn_kvcache", "flash_attn_4_varlen",
            "flash_attn_4_paged",
        ],
        "flash_attn_interface": ["flash_attn_3", "flash_attn_3_varlen"],
        "kernels": ["kernels_flash_attn3"],
        "flashinfer": [
            "flashinfer_prefill", "flashinfer_ragged", "flashinfer_paged", "flashinfer_decode",
            "flashinfer_gated_delta",
        ],
        "xformers": ["xformers_attention", "xformers_varlen", "xformers_paged"],
        "transformer_engine": ["transformer_engine"],
        "sageattention": ["sageattention"],
        "fla": ["fla_chunks", "fla_steps"],
        "mamba_ssm": ["mamba_chunk_scan"],
    }  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)
def test_declared_as_attnbench_asks(backend) -> None:
    assert fault(backend) is None
    assert backend.devices == ("cuda",)
    assert not backend.forkable
    assert (backend.layout == "BLHD") == (backend in DENSE)


def test_only_the_approximate_one_declares_its_arithmetic() -> None:
    declared = {name: backend.computes_in for name, backend in BACKENDS.items() if backend.computes_in}
    assert declared == {"sageattention": "float8_e4m3"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)
def test_without_a_gpu_each_says_why(backend) -> None:
    assert "needs a CUDA device" in (backend.available("cuda") or "")


def test_the_listing_shows_each_with_its_reason() -> None:
    done = subprocess.run(
        ["attnbench", "list", "backends", "--device", "cuda", "--format", "json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    reasons = {row["name"]: row["unavailable"] for row in json.loads(done.stdout)}
    for name, backend in BACKENDS.items():
        if not any(map(_importable, backend.requires)):
            assert reasons[name] == f"needs {', '.join(backend.requires)}, which is not installed"


def _importable(name: str) -> bool:
    from importlib.util import find_spec

    return find_spec(name) is not None


def test_devices_without_a_kernel_are_named(device) -> None:
    device((7, 5))
    assert needs_gpu("flash-attn") == "flash-attn needs compute capability 8.0 or more; this device has 7.5"
    assert needs_gpu("xformers", (6, 0)) is None
    device((10, 0))
    assert needs_gpu("FlashAttention-3", below=(10, 0)) == (
        "FlashAttention-3 has kernels for compute capabilities below 10.0; this device has 10.0"
    )
    assert sageattention.available("cuda") == (
        "sageattention has kernels for the compute capabilities 8.0, 8.6, 8.9, 9.0, 12.0; "
        "this device has 10.0"
    )


def test_a_release_that_changes_its_inputs_is_refused(libraries, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sageattention, "version", lambda name: "1.0.6")
    assert "sageattention 1.0.6 writes to the keys" in (sageattention.available("cuda") or "")
    monkeypatch.setattr(sageattention, "version", lambda name: "2.2.0")
    assert sageattention.available("cuda") is None


def test_flash_attn_2_and_4_are_told_apart(libraries, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both packages have the module flash_attn; flash-attn-4 has no __init__.py there."""

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(flash_attn_4, "version", missing)
    monkeypatch.setattr(flash_attn, "find_spec", lambda name: SimpleNamespace(origin=None))
    assert "only flash-attn-4 is installed" in (flash_attn.available("cuda") or "")
    monkeypatch.setattr(
        flash_attn, "find_spec", lambda name: SimpleNamespace(origin="flash_attn/__init__.py")
    )
    assert flash_attn.available("cuda") is None
    assert "which is not installed" in (flash_attn_4.available("cuda") or "")
    monkeypatch.setattr(flash_attn_4, "version", lambda name: "4.0.0b36")
    assert flash_attn_4.available("cuda") is None


@pytest.mark.parametrize(
    ("offline", "there", "reason"),
    [
        (False, (2, 1), "set HF_HUB_OFFLINE=1"),
        (True, (), "can't be loaded from the cache: ValueError: Version 1 not found"),
        (True, (1,), None),
    ],
)
def test_kernels_come_from_the_cache_alone(
    offline: bool, there: tuple[int, ...], reason: str | None, device, monkeypatch: pytest.MonkeyPatch
) -> None:
    device(HOPPER)
    asked = []

    def get_kernel(repo_id: str, *, version: int) -> Any:
        asked.append((repo_id, version))
        if version not in there:
            raise ValueError(f"Version {version} not found")
        return SimpleNamespace(flash_attn_func=FUNCTIONS["flash_attn_3"])

    kernels, hugging_face = ModuleType("kernels"), ModuleType("huggingface_hub")
    kernels.get_kernel = get_kernel
    hugging_face.constants = SimpleNamespace(HF_HUB_OFFLINE=offline)
    monkeypatch.setitem(sys.modules, "kernels", kernels)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hugging_face)
    hub.cached.cache_clear()
    found = hub.available("cuda")
    hub.cached.cache_clear()
    assert found is None if reason is None else reason in (found or "")
    repository = "kernels-community/flash-attn3"
    assert asked == ([(repository, 2), (repository, 1)] if offline else [])


def test_importing_it_imports_nothing_heavy() -> None:
    heavy = {"torch"} | {name for backend in BACKENDS.values() for name in backend.requires}
    code = f"import sys, attnbench_cuda; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


USERS = {
    "flash_attn_2": flash_attn, "flash_attn_3": flash_attn_3, "flash_attn_4": flash_attn_4,
    "flashinfer": flashinfer, "packbits": flashinfer, "xformers": xformers,
    "transformer_engine": transformer_engine, "sageattention": sageattention,
}  # fmt: skip
"""The module that calls each published function."""


def lacking(function: Callable[..., Any], argument: str) -> Callable[..., Any]:
    """The function of a release that does not have an argument."""
    known = inspect.signature(function)

    def other(*args: Any, **named: Any) -> Any:
        raise AssertionError("called")

    other.__name__ = "other"
    kept = [one for name, one in known.parameters.items() if name != argument]
    other.__signature__ = known.replace(parameters=kept)
    return other


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("flash_attn_2", "softcap"),
        ("flash_attn_3", "window_size"),
        ("flash_attn_4", "learnable_sink"),
        ("flashinfer", "window_left"),
        ("packbits", "bitorder"),
        ("xformers", "attn_bias"),
        ("transformer_engine", "num_gqa_groups"),
        ("sageattention", "sm_scale"),
    ],
)
def test_a_release_with_another_signature_is_unavailable_and_says_why(
    name: str, argument: str, libraries, monkeypatch: pytest.MonkeyPatch
) -> None:
    available, (module, attribute) = USERS[name].available, PUBLISHED[name].at
    assert available("cuda") is None
    monkeypatch.setattr(sys.modules[module], attribute, lacking(FUNCTIONS[name], argument))
    assert available("cuda") == (
        f"other of this release takes no {argument}: "
        "install the release that the README of attnbench-cuda names"
    )
    monkeypatch.delattr(sys.modules[module], attribute)
    assert "the library can't be loaded: ImportError: cannot import name" in (available("cuda") or "")


def test_functions_of_batches_and_recurrences_must_take_what_is_given(
    libraries, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {backend.name: backend for backend in (*BATCHES, *RECURRENCES)}
    assert {name: backend.available("cuda") for name, backend in own.items()} == dict.fromkeys(own)
    for name, function, argument in (
        ("flash_attn_varlen", "flash_attn_2_varlen", "block_table"),
        ("flash_attn_kvcache", "flash_attn_2_kvcache", "cache_seqlens"),
        ("flash_attn_3_varlen", "flash_attn_3_varlen", "return_attn_probs"),
        ("flash_attn_3_varlen", "flash_attn_3_kvcache", "page_table"),
        ("flash_attn_4_paged", "flash_attn_4_varlen", "seqused_k"),
        ("flashinfer_paged", "flashinfer_paged.run", "lse_base"),
        ("flashinfer_gated_delta", "flashinfer_gated_delta", "gate_domain"),
        ("fla_chunks", "chunk_kda", "initial_state"),
        ("fla_steps", "fused_recurrent_rwkv7", "cu_seqlens"),
        ("mamba_chunk_scan", "mamba_chunk_scan", "initial_states"),
    ):
        module, attribute = PUBLISHED[function].at
        *owner, last = attribute.split(".")
        place = reduce(getattr, owner, sys.modules[module])
        with monkeypatch.context() as patch:
            patch.setattr(place, last, lacking(FUNCTIONS[function], argument))
            assert f"other of this release takes no {argument}: " in (own[name].available("cuda") or "")


def test_a_kernel_of_the_hub_with_another_signature_is_unavailable(
    libraries, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hub.available("cuda") is None
    other = SimpleNamespace(flash_attn_func=lacking(FUNCTIONS["flash_attn_3"], "softcap"))
    monkeypatch.setattr(sys.modules["kernels"], "get_kernel", lambda repo_id, version: other)
    hub.cached.cache_clear()
    assert "takes no softcap" in (hub.available("cuda") or "")


def test_a_function_behind_a_wrapper_that_hides_its_arguments_is_called() -> None:
    assert cannot_call(lambda: lambda *args, **named: None, "causal") is None
    assert cannot_call(lambda: int.__new__, "causal") is None
