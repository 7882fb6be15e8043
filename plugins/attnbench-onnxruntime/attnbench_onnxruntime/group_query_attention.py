"""onnxruntime_gqa: the operator com.microsoft.GroupQueryAttention, from a cache of numbers or of codes.

A call appends no keys: the cache holds all of them, and its new keys have the length 0. It then writes
nothing, so the cache that it returns is bound to the memory of the cache that it reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnbench import Backend, Case, Mask, Rule, Setup
from attnbench.kit.dtypes import case_dtype
from attnbench.kit.masks import plus_bias, softmax_mask
from attnbench.kit.scores import form_of, map_keys, map_queries
from attnbench.types.encoding import encoding_name, grain_of, is_encoded
from attnbench_onnxruntime.operator_call import finite, refuse_scale
from attnbench_onnxruntime.session import CONTRIB, model_of, numpy_type, open_session

if TYPE_CHECKING:
    from torch import Tensor

PLACES = (
    "q", "new_k", "new_v", "k", "v", "last", "total", "", "", "", "added", "sink", "k_scale", "v_scale",
)  # fmt: skip
"""The operator's inputs in their order; "" for those of rotations, which are not given."""


class Attention:
    """The prepared function of q and a cache."""

    def __init__(self, setup: Setup) -> None:
        import torch

        case, scoring, dtype = setup.case, setup.scoring, case_dtype(setup.case)
        if dtype is torch.bfloat16:
            # The operator has none; codes and their scales are the same in each dtype.
            dtype = torch.float32
        assert scoring.dot is not None
        self.case, self.dot, self.dtype = case, scoring.dot, dtype
        # Its window counts the keys that a query sees, as attnbench's.
        own = Mask(causal="lower_right", window=case.mask.window)
        self.by_itself = case.mask == own and scoring.bias is None
        added, self.empty = (None, None) if self.by_itself else softmax_mask(setup, dtype)
        added = plus_bias(added, scoring, slice(0, case.Lq), slice(0, case.Lk), dtype)
        new = torch.empty(case.B, 0, case.Hkv * case.D, dtype=dtype)
        self.prepared: dict[str, Tensor] = {
            "new_k": new,
            "new_v": new,
            "last": torch.full((case.B,), case.Lk - 1, dtype=torch.int32),
            "total": torch.tensor([case.Lk], dtype=torch.int32),
        }
        if added is not None:
            self.prepared["added"] = finite(added)
        if scoring.sink is not None:
            self.prepared["sink"] = scoring.sink.detach().to(dtype).contiguous()
        self.out = (case.B, case.Lq, case.H * case.D)
        self.session = self._opened()
        self.binding = self.session.io_binding()
        for name, x in self.prepared.items():
            self._bind(name, x)

    def _opened(self) -> Any:
        """Open a session of the operator alone."""
        import torch
        from onnx import helper

        case, bits = self.case, {"int8": 8, "int4": 4}.get(encoding_name(self.case))
        features = case.D // 2 if bits == 4 else case.D
        cache = (case.B, case.Hkv, case.Lk, features)
        shapes: dict[str, tuple[int, ...]] = {"q": self.out, "k": cache, "v": cache}
        dtypes = {"last": torch.int32, "total": torch.int32}
        how: dict[str, Any] = {}
        if bits is not None:
            code = {8: torch.int8, 4: torch.uint8}[bits]
            dtypes |= {"k": code, "v": code, "k_after": code, "v_after": code}
            dtypes |= {"k_scale": torch.float32, "v_scale": torch.float32}
            scales = (1,) if grain_of(case) == "tensor" else (1, case.Hkv, 1, case.D)
            shapes |= {"k_scale": scales, "v_scale": scales}
            grain = "PER_TENSOR" if len(scales) == 1 else "PER_CHANNEL"
            how = {"kv_cache_bit_width": bits, "k_quant_type": grain, "v_quant_type": grain}
        shapes |= {name: tuple(x.shape) for name, x in self.prepared.items()}
        self.given = {name: shapes[name] for name in PLACES if name in shapes}
        node = helper.make_node(
            "GroupQueryAttention",
            [name if name in shapes else "" for name in PLACES],
            ["out", "k_after", "v_after"],
            domain=CONTRIB,
            num_heads=case.H,
            kv_num_heads=case.Hkv,
            causal=int(self.by_itself),
            local_window_size=(self.by_itself and case.mask.window) or -1,
            scale=self.dot.scale,
            softcap=self.dot.cap or 0.0,
            **how,
        )
        outputs = {"out": self.out, "k_after": cache, "v_after": cache}
        model = model_of(node, self.given, outputs, self.dtype, dtypes)
        return open_session(model, case.threads)

    def _bind(self, name: str, x: Tensor) -> None:
        self.binding.bind_input(name, "cpu", 0, numpy_type(x.dtype), self.given[name], x.data_ptr())

    def convert(self, cache: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return codes of 4 bits as the operator has them, more by 8, and scales for each channel."""
        case, found = self.case, dict(cache)
        if encoding_name(case) == "int4":
            # Of both codes of a byte: in two's complement, 8 more is another sign bit.
            found |= {name: cache[name] ^ 0x88 for name in ("k", "v")}
        if grain_of(case) == "head":
            shape = (1, case.Hkv, 1, case.D)
            scales = ("k_scale", "v_scale")
            found |= {name: cache[name].view(1, -1, 1, 1).expand(shape).contiguous() for name in scales}
        return found

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *scales: Tensor) -> Tensor:
        """Attend, (B, H, Lq, D)."""
        import torch

        case = self.case
        queries = map_queries(self.dot, q).transpose(1, 2).to(self.dtype).contiguous()
        k = k if scales else map_keys(self.dot, k).contiguous()
        out = torch.empty(self.out, dtype=self.dtype)
        for name, x in zip(("q", "k", "v", "k_scale", "v_scale"), (queries, k, v, *scales), strict=False):
            self._bind(name, x)
        for name, x in (("out", out), ("k_after", k), ("v_after", v)):
            shape = self.out if name == "out" else self.given["k"]
            self.binding.bind_output(name, "cpu", 0, numpy_type(x.dtype), shape, x.data_ptr())
        self.session.run_with_iobinding(self.binding)
        heads = out.view(case.B, case.Lq, case.H, case.D).transpose(1, 2).to(q.dtype)
        return heads if self.empty is None else heads.masked_fill_(self.empty, 0)


def supports(case: Case, rule: Rule) -> str | None:
    """Return the reason why the operator can't compute a case, or None."""
    if case.Dv != case.D:
        return f"D and Dv must be equal; here they are {case.D} and {case.Dv}"
    if case.D % 8:
        return f"takes heads of a multiple of 8 features, not {case.D}"
    if case.Lq > case.Lk:
        return f"takes no more queries than keys; here {case.Lq} and {case.Lk}"
    if case.B > 1 and case.Lq > 1:
        return "takes one query of each sequence, or one sequence"
    if is_encoded(case):
        dot = form_of(case, rule).dot
        if dot is not None and dot.map_k is not None:
            return f"maps no encoded keys, as {rule.name} does"
        if grain_of(case) not in ("tensor", "channel", "head"):
            return f"has a scale for a tensor or for each channel, not for each {grain_of(case)}"
        if case.B > 1 and grain_of(case) != "tensor":
            return "has the same scales for all sequences"
    return refuse_scale(case, rule)


ONNXRUNTIME_GQA = Backend(
    name="onnxruntime_gqa",
    summary="ONNX Runtime's GroupQueryAttention, from a cache of numbers",
    prepare=Attention,
    supports=supports,
    needs_dot_form=True,
    dtypes=("float32", "float16"),
    devices=("cpu",),
    requires=("onnxruntime", "onnx"),
    needs_contiguous=True,
    quadratic_copies=1,
)

ONNXRUNTIME_GQA_CODES = replace(
    ONNXRUNTIME_GQA,
    name="onnxruntime_gqa_codes",
    summary="ONNX Runtime's GroupQueryAttention, from a cache of int8 or int4",
    dtypes=("float32", "bfloat16", "float16"),
    encodings=("int8", "int4"),
    converts=("k", "v", "k_scale", "v_scale"),
)
