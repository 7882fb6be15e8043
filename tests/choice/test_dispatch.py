"""``attnbench.choice.load``: the meaning of every call is torch's, whoever computes it."""

from __future__ import annotations

import copy
import json
import logging
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_upper_left
from torch.nn.functional import scaled_dot_product_attention as real

import attnbench.choice
from attnbench.choice.table import Choice, Table, machine_of, write_table
from attnbench.plugins.registry import load_registry
from attnbench.types.errors import BadFile, BadInput

THREADS = f"/threads{torch.get_num_threads()}" if torch.get_num_threads() > 1 else ""


def table_file(path: Path, *choices: tuple[str, str, int], **facts: str) -> Path:
    here, plugins = machine_of(load_registry())
    made = [
        Choice(f"attention/scaled_dot/{case}{THREADS}", backend, 1.5, 1.4, 1.6, upto)
        for case, backend, upto in choices
    ]
    path.write_text(write_table(Table("0.1.0", ["r.jsonl"], "sdpa_flash", here | facts, plugins, made)))
    return path


@pytest.fixture
def attention(tmp_path: Path) -> Callable[..., Any]:
    path = table_file(
        tmp_path / "choice.toml",
        ("B2-H4-Lq16-Lk16-D8/causal/float32/cpu/forward", "bmm", 64),
        ("B2-H4-Lq16-Lk16-D8/causal/float32/cpu/both", "eager", 0),
        ("B2-H4-Hkv2-Lq1-Lk8-D8/none/float32/cpu/forward", "chunked", 32),
        ("B2-H4-Lq12-Lk12-D8/causal+window:5/float32/cpu/forward", "eager", 0),
        ("B2-H4-Lq12-Lk12-D8/padding:7,12/float32/cpu/forward", "numpy", 0),
    )
    return attnbench.choice.load(path)


def qkv(Lq: int, Lk: int | None = None, Hkv: int = 4, **kind: Any) -> tuple[torch.Tensor, ...]:
    k, v = torch.randn(2, Hkv, Lk or Lq, 8, **kind), torch.randn(2, Hkv, Lk or Lq, 8, **kind)
    return torch.randn(2, 4, Lq, 8, **kind), k, v


def strided(q: torch.Tensor) -> torch.Tensor:
    return q.transpose(1, 2).contiguous().transpose(1, 2)


WINDOW = torch.ones(12, 12).tril().triu(-4).bool()
PADDED = (torch.arange(12) < torch.tensor([[7], [12]]))[:, None, None]


@pytest.mark.parametrize(
    ("backend", "inputs", "options"),
    [
        ("bmm", qkv(16), {"is_causal": True}),
        ("bmm", qkv(40), {"is_causal": True}),
        ("bmm", qkv(16), {"attn_mask": torch.ones(16, 16).tril().bool()}),
        ("chunked", qkv(1, 32, Hkv=2), {"enable_gqa": True}),
        ("eager", qkv(12), {"attn_mask": WINDOW}),
        ("eager", qkv(12), {"attn_mask": torch.zeros(12, 12).masked_fill(~WINDOW, float("-inf"))}),
        ("numpy", qkv(12), {"attn_mask": PADDED}),
        ("bmm", qkv(16), {"is_causal": True, "scale": 8**-0.5}),
    ],
)
def test_a_proved_call_is_computed_by_the_chosen_backend(
    attention: Callable[..., Any], backend: str, inputs: Any, options: dict[str, Any]
) -> None:
    assert attention(*inputs, **options, explain=True).startswith(f"{backend} for scaled_dot/B2-H4-")
    for _ in range(2):
        torch.testing.assert_close(attention(*inputs, **options), real(*inputs, **options))


@pytest.mark.parametrize(
    ("inputs", "options", "reason"),
    [
        (qkv(65), {"is_causal": True}, "no entry is for scaled_dot/B2-H4-L65-D8/causal"),
        (qkv(15), {"is_causal": True}, "no entry is for scaled_dot/B2-H4-L15-D8/causal"),
        (qkv(16), {}, "no entry is for scaled_dot/B2-H4-L16-D8"),
        (qkv(16), {"is_causal": True, "scale": 0.5}, "no entry is for scaled_dot@scale=0.5/"),
        (qkv(16, dtype=torch.float64), {"is_causal": True}, "no entry is for scaled_dot/"),
        (qkv(16), {"is_causal": True, "dropout_p": 0.0001}, "the table has no dropout"),
        (qkv(65), {"is_causal": True}, "the nearest entry, scaled_dot/B2-H4-L16-D8/causal"),
        (qkv(65), {"is_causal": True}, " up to Lk 64, differs in Lq, Lk"),
        (tuple(map(strided, qkv(65))), {"is_causal": True},
         "; `attnbench run --layout BLHD` measures it as its inputs lie"),
        (qkv(4, 20), {}, "differs in Lq, mask"),
        (qkv(1, 32), {}, "can pass them as they are, with enable_gqa=True"),
        ([qkv(1)[0], *(one[:, :, :40] for one in qkv(1, 64, Hkv=2)[1:])], {"enable_gqa": True},
         "; `attnbench run --layout BHCD` measures it as its inputs lie"),
        ([one.transpose(2, 3).contiguous().transpose(2, 3) for one in qkv(16)], {"is_causal": True},
         "the table has inputs in BHLD"),
        (qkv(12), {"attn_mask": torch.ones(12, 12).tril(1).bool()}, "no entry is for"),
        (tuple(one[0] for one in qkv(16)), {"is_causal": True}, "the inputs have no four axes"),
        # Copying them took longer than bmm had won, for an encoder of transformers.
        (tuple(map(strided, qkv(16))), {"is_causal": True},
         "nothing was proved for scaled_dot/B2-H4-L16-D8/causal/BLHD"),
    ],
)  # fmt: skip
def test_everything_else_is_computed_by_torch(
    attention: Callable[..., Any], inputs: Any, options: dict[str, Any], reason: str
) -> None:
    said = attention(*inputs, **options, explain=True)
    assert said.startswith("torch's function: ")
    assert reason in said
    torch.manual_seed(0)
    got = attention(*inputs, **options)
    torch.manual_seed(0)
    assert torch.equal(got, real(*inputs, **options))


def test_a_scale_of_a_config_serves_calls_and_calls_have_their_own(tmp_path: Path) -> None:
    """Older suites have four digits of a scale, as of 168 ** -0.5, that of Gemma 3 27B."""
    path = table_file(tmp_path / "choice.toml", ("B2-H4-Lq16-Lk16-D8/causal/float64/cpu/forward", "bmm", 0))
    path.write_text(path.read_text().replace("scaled_dot/", "scaled_dot@scale=0.07715/"))
    attention = attnbench.choice.load(path)
    inputs = [100 * one for one in qkv(16, dtype=torch.float64)]
    scale = 168**-0.5
    said = attention(*inputs, is_causal=True, scale=scale, explain=True)
    assert said.startswith("bmm for scaled_dot@scale=0.0771")
    torch.testing.assert_close(
        attention(*inputs, is_causal=True, scale=scale), real(*inputs, is_causal=True, scale=scale)
    )
    for other in (0.0773, None):
        assert attention(*inputs, is_causal=True, scale=other, explain=True).startswith("torch's function: ")


def test_gradients_are_those_of_torch_and_have_a_choice_of_their_own(attention: Callable[..., Any]) -> None:
    inputs = [one.requires_grad_() for one in qkv(16)]
    assert attention(*inputs, is_causal=True, explain=True).startswith("eager for")
    ours = torch.autograd.grad(attention(*inputs, is_causal=True).square().sum(), inputs)
    theirs = torch.autograd.grad(real(*inputs, is_causal=True).square().sum(), inputs)
    torch.testing.assert_close(ours, theirs)
    with torch.no_grad():
        assert attention(*inputs, is_causal=True, explain=True).startswith("bmm for")


def test_a_mask_that_changes_in_place_is_read_again(attention: Callable[..., Any]) -> None:
    inputs, mask = qkv(12), WINDOW.clone()
    attention(*inputs, attn_mask=mask)
    mask[3, 0] = False
    torch.testing.assert_close(attention(*inputs, attn_mask=mask), real(*inputs, attn_mask=mask))


def test_autocast_and_compiled_code_are_left_to_torch(attention: Callable[..., Any]) -> None:
    inputs = qkv(16)
    with torch.autocast("cpu", torch.bfloat16):
        assert attention(*inputs, is_causal=True).dtype == torch.bfloat16
    compiled = torch.compile(lambda *each: attention(*each, is_causal=True), backend="eager")
    torch.testing.assert_close(compiled(*inputs), real(*inputs, is_causal=True))


def test_a_choice_that_was_measured_cold_serves_and_goes_before_a_hot_one(tmp_path: Path) -> None:
    decode = "B2-H4-Lq1-Lk8-D8/none/float32/cpu/forward"
    path = table_file(tmp_path / "c.toml", (decode, "eager", 0), (f"{decode}/rotating", "bmm", 0))
    q, k = torch.randn(2, 4, 1, 8), torch.randn(2, 4, 8, 8)
    assert attnbench.choice.load(path)(q, k, k, explain=True).startswith("bmm for ")


def test_a_cache_with_room_for_more_is_served_where_one_was_measured(tmp_path: Path) -> None:
    decode = "B2-H4-Lq1-Lk8-D8/none/float32/cpu/forward"
    q, cache, whole = torch.randn(2, 4, 1, 8), torch.randn(2, 4, 32, 8), torch.randn(2, 4, 12, 8)
    with_room = attnbench.choice.load(table_file(tmp_path / "c.toml", (f"{decode}/BHCD", "bmm", 16)))
    for room in (13, 32):
        keys = cache[:, :, :room].clone()[:, :, :12]
        assert with_room(q, keys, keys, explain=True).startswith("bmm for ")
        torch.testing.assert_close(with_room(q, keys, keys), real(q, keys, keys))
    assert "the table has inputs in BHCD" in with_room(q, whole, whole, explain=True)
    without = attnbench.choice.load(table_file(tmp_path / "d.toml", (decode, "bmm", 16)))
    assert without(q, whole, whole, explain=True).startswith("bmm for ")
    first = cache[:, :, :12]
    assert "`attnbench run --layout BHCD` measures this layout" in without(q, first, first, explain=True)
    every_other = cache[:, :, ::2][:, :, :12]
    assert "--layout" not in without(q, every_other, every_other, explain=True)


def test_a_kernel_of_torchs_function_is_chosen_for_its_calls_alone(tmp_path: Path) -> None:
    """Preparing it leaves torch no other kernel, which a program's own calls must not feel."""

    def kernels() -> tuple[bool, bool]:
        return torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled()

    path = table_file(tmp_path / "c.toml", ("B2-H4-Lq16-Lk16-D8/causal/float32/cpu/forward", "sdpa_math", 0))
    attention, before, seen = attnbench.choice.load(path), kernels(), []
    assert before == (True, True)
    inputs = qkv(16)
    assert attention(*inputs, is_causal=True, explain=True).startswith("sdpa_math for ")
    assert kernels() == before

    class Seeing(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(kernels())
            return func(*args, **(kwargs or {}))

    output = attention(*inputs, is_causal=True)
    torch.testing.assert_close(output, real(*inputs, is_causal=True))
    assert kernels() == before
    with Seeing():
        attention(*inputs, is_causal=True)
    assert (False, True) in seen
    assert kernels() == before


def test_a_table_of_another_machine_or_a_broken_one_is_refused(tmp_path: Path) -> None:
    path = table_file(tmp_path / "c.toml", cpu="another processor")
    with pytest.raises(BadInput, match="was made elsewhere: cpu 'another processor' and '"):
        attnbench.choice.load(path)
    with pytest.warns(UserWarning, match="the table has no entry, so torch's function computes every call"):
        assert attnbench.choice.load(path, force=True)
    path.write_text("choices = 3")
    with pytest.raises(BadFile, match="is not a choice of attnbench"):
        attnbench.choice.load(path)
    table_file(path, ("B2-H4-Lq16-Lk16-D8/bool/float32/cpu/forward", "bmm", 0))
    with pytest.raises(BadFile, match="is not a choice of attnbench: 'attention/scaled_dot/B2-"):
        attnbench.choice.load(path)
    with pytest.raises(BadFile, match="No such file"):
        attnbench.choice.load(tmp_path / "none.toml")
    with pytest.raises(BadInput, match="no backend 'bnm'; did you mean 'bmm'"):
        attnbench.choice.load(table_file(path, ("B1-H1-Lq8-Lk8-D8/none/float32/cpu/forward", "bnm", 0)))


def everywhere(path: Path, backend: str) -> Callable[..., Any]:
    """A choice of one backend for all that the tests below call."""
    shapes = ("B2-H4-Lq1-Lk1", "B2-H4-Lq4-Lk4")
    masks = ("none", "causal", "padding:7,16", "window:3")
    return attnbench.choice.load(
        table_file(
            path,
            *[
                (f"{shape}-D8/{mask}/float32/cpu/{pass_}", backend, 64)
                for shape in shapes for mask in masks[:2] for pass_ in ("forward", "both")
            ],
            *[(f"B2-H4-Lq16-Lk16-D8/{mask}/float32/cpu/forward", backend, 0) for mask in masks[2:]],
        )
    )  # fmt: skip


def with_a_learned_mask(attention: Callable[..., Any], q: torch.Tensor) -> Any:
    mask = torch.zeros(16, 16, requires_grad=True)
    attention(q, q, q, mask).square().sum().backward()
    return mask.grad


def with_its_tangent(attention: Callable[..., Any], q: torch.Tensor) -> Any:
    with sdpa_kernel(SDPBackend.MATH):
        return torch.func.jvp(lambda one: attention(one, q, q), (q,), (q,))[1]


def under_a_mode_without_numbers(attention: Callable[..., Any], q: torch.Tensor) -> Any:
    with FakeTensorMode(allow_non_fake_inputs=True):
        attention(q, q, q, is_causal=True)
    return attention(q, q, q, is_causal=True)


def with_nested_tensors(attention: Callable[..., Any], q: torch.Tensor) -> Any:
    nested = torch.nested.nested_tensor([q[0, :, :5], q[1, :, :9]])
    return attention(nested, nested, nested).to_padded_tensor(0.0)


def test_a_layout_that_was_measured_has_a_choice_of_its_own(tmp_path: Path) -> None:
    case = "B2-H4-Lq16-Lk16-D8/none/float32/cpu/forward"
    path = table_file(
        tmp_path / "choice.toml",
        (f"{case}/BLHD", "eager", 0), (f"{case}/BLHD_BHLD_BHLD", "bmm", 0), (f"{case}/BHLD", "chunked", 0),
    )  # fmt: skip
    attention = attnbench.choice.load(path)
    q, k, v = qkv(16)
    turned = tuple(strided(one) for one in (q, k, v))
    for _ in range(2):
        for backend, inputs in (
            ("eager", turned), ("bmm", (turned[0], k, v)), ("chunked", (q, k, v)),
            ("torch's function", (q, turned[1], v)), ("torch's function", [one[:, ::2] for one in qkv(16)]),
        ):  # fmt: skip
            assert attention(*inputs, explain=True).startswith(backend)
            output = attention(*inputs)
            torch.testing.assert_close(output, real(*inputs))
            # Programs merge heads by a view, or take one of heads.
            assert output.stride() == real(*inputs).stride()


def test_axes_of_one_element_lie_in_every_order(tmp_path: Path) -> None:
    case = "B2-H4-Lq1-Lk16-D8/none/float32/cpu/forward/BLHD"
    attention = attnbench.choice.load(table_file(tmp_path / "choice.toml", (case, "eager", 0)))
    q, k, v = qkv(1, 16)
    assert attention(q, strided(k), strided(v), explain=True).startswith("eager")
    assert attention(q, k, v, explain=True).startswith("torch's function")


LEAST = torch.finfo(torch.float32).min
UNIFORM = torch.zeros(2, 1, 1, 16).index_fill_(0, torch.tensor(0), LEAST)
UNUSUAL: dict[str, Callable[[Callable[..., Any], torch.Tensor], Any]] = {
    "a learned mask": with_a_learned_mask,
    "is_causal and a mask": lambda f, q: f(q, q, q, WIDE, is_causal=True),
    "a NaN in a mask": lambda f, q: f(q, q, q, torch.zeros(16, 16).fill_diagonal_(float("nan"))),
    "a row of the least number": lambda f, q: f(q, q, q, UNIFORM),
    "one head for all queries": lambda f, q: f(q, q[:, :1], q[:, :1]),
    "fewer heads of values": lambda f, q: f(q, q, q[:, :1]),
    "a batch of two axes": lambda f, q: f(*[q.unflatten(0, (2, 1))] * 3, WIDE[:, None]),
    "vmap": lambda f, q: torch.vmap(lambda one: f(one, q, q))(torch.stack([q, -q])),
    "vmap of masks": lambda f, q: torch.vmap(lambda m: f(q, q, q, m))(torch.stack([WIDE[0], WIDE[1]])),
    "torch.func.grad": lambda f, q: torch.func.grad(lambda one: f(one, q, q).square().sum())(q),
    "jvp": with_its_tangent,
    "a trace": lambda f, q: torch.jit.trace(lambda one: f(one, q, q), (q.clone(),))(-q),
    "meta tensors": lambda f, q: f(*[q.to("meta")] * 3, WIDE.to("meta")).shape,
    "fake tensors": under_a_mode_without_numbers,
    "nested tensors": with_nested_tensors,
    "a causal bias": lambda f, q: f(q, q, q, causal_upper_left(16, 16)),
    "a scale of torch": lambda f, q: f(q, q, q, scale=torch.tensor(1.0)),
    "a view of the output": lambda f, q: f(*[strided(q)] * 3).transpose(1, 2).view(2, 16, 32),
}
WIDE = (torch.arange(16) < torch.tensor([[7], [16]]))[:, None, None].expand(2, 1, 16, 16)


@pytest.mark.parametrize("backend", ["bmm", "numpy"])
@pytest.mark.parametrize("call", UNUSUAL.values(), ids=UNUSUAL)
@pytest.mark.filterwarnings("ignore")
def test_whatever_torch_computes_is_computed_as_by_torch(
    backend: str, call: Callable[..., Any], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    q = torch.randn(2, 4, 16, 8)
    attention = everywhere(tmp_path / "c.toml", backend)
    try:
        expected = call(real, q)
    except RuntimeError as refused:  # as torch 2.14 does is_causal with a mask
        with pytest.raises(RuntimeError, match=f"^{re.escape(str(refused))}$"):
            call(attention, q)
        return
    torch.testing.assert_close(call(attention, q), expected, equal_nan=True)


def test_a_backend_that_fails_is_replaced_by_torch_and_named(tmp_path: Path) -> None:
    attention = everywhere(tmp_path / "c.toml", "numpy")
    q = torch.randn(2, 4, 16, 8)
    attention(q, q, q)
    negated = torch._neg_view(q)  # NumPy doesn't take it.
    with pytest.warns(
        UserWarning, match=r"torch's function: numpy for scaled_dot/.* failed: Runtime"
    ) as told:
        torch.testing.assert_close(attention(negated, q, q), real(negated, q, q))
    assert told[0].filename == __file__, "the line of the program that called"
    assert "failed" in attention(q, q, q, explain=True)
    torch.testing.assert_close(attention(q, q, q), real(q, q, q))


def test_a_mask_is_not_read_while_a_graph_is_captured(
    attention: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading it would wait for the device, which a capture forbids."""
    inputs = qkv(12)
    assert attention(*inputs, attn_mask=WINDOW, explain=True).startswith("eager for")
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert not attention(*inputs, attn_mask=WINDOW.clone(), explain=True).startswith("eager for")


def test_a_shape_that_is_new_while_a_graph_is_captured_is_left_to_torch_and_found_afterwards(
    attention: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Preparing may wait for the device, which a capture forbids. What is prepared already is used."""
    inputs, longer = qkv(16), qkv(17)
    assert attention(*inputs, is_causal=True, explain=True).startswith("bmm for")
    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "is_cuda", True)
        patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        assert attention(*inputs, is_causal=True, explain=True).startswith("bmm for")
        assert attention(*longer, is_causal=True, explain=True).endswith("before a CUDA graph was captured")
    assert attention(*longer, is_causal=True, explain=True).startswith("bmm for")


def test_a_table_of_another_gpu_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: "A GPU")
    path = table_file(tmp_path / "c.toml", ("B2-H4-Lq16-Lk16-D8/causal/float32/cpu/forward", "bmm", 0))
    attnbench.choice.load(path)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: "Another GPU")
    with pytest.raises(BadInput, match=r"made elsewhere: cuda 'A GPU' and 'Another GPU'"):
        attnbench.choice.load(path)


@pytest.fixture
def threads() -> Iterator[int]:
    """Let a test change torch's threads, and tell it another number than they have."""
    before = torch.get_num_threads()
    yield 1 if before > 1 else 2
    torch.set_num_threads(before)


def test_loading_says_how_many_entries_fit_the_threads_of_this_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, threads: int
) -> None:
    path = table_file(tmp_path / "c.toml", ("B2-H4-Lq16-Lk16-D8/causal/float32/cpu/forward", "bmm", 0))
    caplog.set_level(logging.INFO)
    attnbench.choice.load(path)
    (said,) = caplog.messages
    assert said.startswith("the choice, by threads of torch: ")
    assert ", as now: 1 entry (16 queries and keys)" in said
    torch.set_num_threads(threads)
    with pytest.warns(
        UserWarning, match=r", as now: none.*; no entry fits, so torch's function computes"
    ) as told:
        attention = attnbench.choice.load(path)
    assert f"attnbench run SUITE --threads {threads}" in str(told[0].message)
    assert told[0].filename == __file__
    left = attention(*qkv(16), is_causal=True, explain=True)
    assert left.endswith("differs in threads")
    path.write_text(path.read_text().replace("threads = []", f"threads = [{threads}]"))
    with pytest.warns(UserWarning, match=rf"with {threads} threads? nothing was proved to be faster") as told:
        attnbench.choice.load(path)
    assert "attnbench run" not in str(told[0].message)


def test_the_first_calls_that_are_served_and_left_are_logged_once(
    attention: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    caplog.clear()
    for _ in range(2):
        for length in (16, 17, 65, 66):
            attention(*qkv(length), is_causal=True)
    served, left = caplog.messages
    assert served.startswith("the first call that the choice serves: bmm for scaled_dot/B2-H4-L16-D8/causal")
    assert left.startswith("the first call that the choice leaves: torch's function: no entry is for")
    # A program hears of its decode too, where its prompt was left first.
    attention(qkv(1)[0], *qkv(16)[1:])
    assert caplog.messages[2].startswith("the first call of one query that the choice leaves: torch's")


def test_a_decode_is_told_once_of_a_table_that_has_prompts_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each step has a new length, for which nothing is to be looked up."""
    path = table_file(tmp_path / "c.toml", ("B2-H4-Lq8-Lk8-D8/causal/float32/cpu/forward", "bmm", 0))
    attention = attnbench.choice.load(path)
    caplog.set_level(logging.INFO)
    caplog.clear()
    q = qkv(1)[0]
    for length in (16, 17, 18):
        keys = qkv(length)[1:]
        torch.testing.assert_close(attention(q, *keys), real(q, *keys))
    assert [message.partition(":")[0] for message in caplog.messages] == [
        "the first call of one query that the choice leaves"
    ]
    said = attention(q, *qkv(19)[1:], explain=True)
    assert said == "torch's function: the table has no entry of one query"


def test_a_call_that_was_measured_in_vain_is_not_to_be_measured_again(tmp_path: Path) -> None:
    path = table_file(tmp_path / "c.toml", ("B2-H4-Lq8-Lk8-D8/causal/float32/cpu/forward", "bmm", 0))
    case = f"attention/scaled_dot/B2-H4-Lq16-Lk16-D8/causal/float32/cpu/forward/BLHD{THREADS}"
    path.write_text(path.read_text().replace("stays = []", f'stays = ["{case}"]'))
    attention = attnbench.choice.load(path)
    inputs = [one.transpose(1, 2).contiguous().transpose(1, 2) for one in qkv(16)]
    why = attention(*inputs, is_causal=True, explain=True)
    assert why.startswith("torch's function: nothing was proved to be faster for scaled_dot/B2-H4-L16-D8")
    assert why.endswith(", which was measured")
    assert "which was measured" not in attention(*qkv(16), is_causal=True, explain=True)
    # A decode has a new length in each step, and both ends were measured.
    ends = [f"attention/scaled_dot/B2-H4-Lq1-Lk{n}-D8/none/float32/cpu/forward{THREADS}" for n in (8, 32)]
    path.write_text(path.read_text().replace(f'stays = ["{case}"]', f"stays = {json.dumps(ends)}"))
    attention = attnbench.choice.load(path)
    why = attention(*qkv(1, 20), explain=True)
    assert why.endswith(", between 8 and 32 keys, which were measured")
    assert "measured" not in attention(*qkv(1, 40), explain=True)


def test_a_first_call_of_a_kind_that_no_table_has_says_which(
    attention: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    caplog.clear()
    with torch.autocast("cpu", torch.bfloat16):
        attention(*qkv(16), dropout_p=0.5)
    assert caplog.messages == [
        "the first call that the choice leaves: torch's function: the table has no dropout and no autocast"
    ]


def test_a_change_of_threads_is_noticed_and_what_was_proved_for_others_is_not_served(
    attention: Callable[..., Any], caplog: pytest.LogCaptureFixture, threads: int
) -> None:
    caplog.set_level(logging.INFO)
    inputs, before = qkv(16), torch.get_num_threads()
    assert attention(*inputs, is_causal=True, explain=True).startswith("bmm for")
    caplog.clear()
    torch.set_num_threads(threads)
    with pytest.warns(UserWarning, match="as now: none"):
        assert attention(*inputs, is_causal=True, explain=True).startswith(
            "torch's function: no entry is for"
        )
    torch.set_num_threads(before)
    assert attention(*inputs, is_causal=True, explain=True).startswith("bmm for")
    assert caplog.messages == [], "these threads were told when the choice was loaded"


@pytest.mark.slow
def test_a_program_without_logging_has_it_on_stderr(tmp_path: Path) -> None:
    path = table_file(tmp_path / "c.toml", ("B2-H4-Lq4-Lk4-D8/none/float32/cpu/forward", "eager", 0))
    program = f"""
import logging, torch, attnbench.choice
torch.set_num_threads({torch.get_num_threads()})
q = torch.randn(2, 4, 4, 8)
attnbench.choice.load({str(path)!r})(q, q, q)
logging.getLogger("attnbench").setLevel("WARNING")
attnbench.choice.load({str(path)!r})(q, q, q)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    first, second = done.stderr.splitlines()
    assert first.startswith("attnbench: the choice, by threads of torch: ")
    assert second.startswith(
        "attnbench: the first call that the choice serves: eager for scaled_dot/B2-H4-L4"
    )


def test_a_model_that_holds_the_function_can_be_copied(attention: Callable[..., Any]) -> None:
    layer = torch.nn.Linear(2, 2)
    layer.attention = attention
    assert copy.deepcopy(layer).attention is attention
