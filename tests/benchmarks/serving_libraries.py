"""Libraries as they are, for tests/benchmarks/serving_contracts.py: a plugin.

Each backend declines only what its function has no words for, so faults show that the backends of attnbench
decline. A function without a batch of unlike lengths gets sequences in its own way:

- padded to the longest, with lengths (jax, ONNX Runtime) or with a float mask (OpenVINO). Keys in pages are
  copied behind each other, with what the slots without a key hold;
- as one sequence with a mask that keeps sequences apart (ggml), as llama.cpp calls it. All slots of all pages
  are its keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from attnbench import Backend, Case, Rule, Setup, hookimpl
from attnbench.backends.nested import jagged
from attnbench.backends.padded_sdpa import padded_mask, padded_places
from attnbench.kit.dtypes import case_dtype
from attnbench.kit.masks import additive_mask
from attnbench.kit.problems import problem_setups
from attnbench.kit.scores import form_of
from attnbench.types.batch import parse_batch
from attnbench.types.case import PASSES
from attnbench.types.encoding import grain_of, is_encoded
from attnbench.types.problem import call_inputs, is_empty

if TYPE_CHECKING:
    from torch import Tensor

    Attend = Callable[[Tensor, Tensor, Tensor], Any]
    Tell = Callable[[Tensor], None]

Parts = tuple[str, ...]


def lengths_of(case: Case) -> tuple[tuple[int, int], ...]:
    """Return the queries and keys of each sequence."""
    return tuple(parse_batch(case.batch))


def lacks(case: Case, rule: Rule, has: Parts = ()) -> str | None:
    """Return the step of a rule that a function has no word for, or None. has: sink, cap."""
    form = form_of(case, rule)
    dot = form.dot
    if form.bias is not None or (dot is not None and (dot.map_q or dot.map_k)):
        return "no bias, no maps"
    if form.sink is not None and "sink" not in has:
        return "no sink"
    if dot is not None and dot.cap is not None and "cap" not in has:
        return "no cap"
    return None


def masks_lower_right(case: Case) -> bool:
    """Return whether the mask is none, or causal from the lower right with or without a window."""
    return case.mask.is_none or case.mask.causal == "lower_right"


def prepare_vllm(setup: Setup, *, clears: bool) -> Any:
    """Prepare vLLM's kernel. clears: let its cache hold 0 where a slot without a key holds NaN."""
    from attnbench_vllm.backend import Attention

    call = Attention(setup)
    if not clears:
        call.cleared = lambda x: x
    return call


def vllm_has(case: Case, rule: Rule) -> str | None:
    """Return what the function has no word for, or None."""
    if case.Dv != case.D:
        return "keys and values share a tensor"
    if is_encoded(case) and grain_of(case) != "tensor":
        return "one scale for all keys and one for all values"
    return lacks(case, rule, ("sink", "cap")) or (None if masks_lower_right(case) else "no such mask")


class Nested:
    """torch's jagged tensors with all that its function takes."""

    def __init__(self, setup: Setup) -> None:
        assert setup.scoring.dot is not None
        self.causal = setup.case.mask.causal is not None
        self.scale, self.gqa = setup.scoring.dot.scale, setup.case.group > 1

    def renew(self, ahead: Mapping[str, Tensor]) -> None:
        """Read where sequences begin."""
        self.queries, self.keys = (ahead[f"cu_seqlens_{of}"].long() for of in "qk")

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *lengths: Tensor) -> Tensor:
        """Attend."""
        import torch
        from torch.nn.functional import scaled_dot_product_attention as sdpa

        with torch.inference_mode(q.is_inference()):
            inputs = jagged(q, self.queries), jagged(k, self.keys), jagged(v, self.keys)
            found = sdpa(*inputs, scale=self.scale, is_causal=self.causal, enable_gqa=self.gqa)
            return found.transpose(1, 2).values().contiguous()


def nested_has(case: Case, rule: Rule) -> str | None:
    """Return what the function has no word for, or None."""
    square = all(one == other for one, other in lengths_of(case))
    if case.mask.is_none or (case.mask.is_only_causal and square):
        return lacks(case, rule)
    return "no mask but causal from the upper left"


class Padded:
    """The prepared function of a library that takes sequences padded to the longest.

    attend: of q (N, H, Lq, D), k (N, Hkv, Lk, D) and v; it returns (N, H, Lq, Dv) and, where the case asks
    for it, the lse (N, H, Lq). tell: gets the keys of each sequence before calls.
    """

    def __init__(self, case: Case, attend: Attend, tell: Tell = lambda keys: None) -> None:
        self.case, self.attend, self.tell = case, attend, tell

    def renew(self, ahead: Mapping[str, Tensor]) -> None:
        """Find the places of tokens among the padded ones."""
        self.queries = padded_places(ahead["cu_seqlens_q"], self.case.Lq)
        if "block_table" in ahead:
            self.table, self.lengths = ahead["block_table"].long(), ahead["seqused_k"]
        else:
            self.keys = padded_places(ahead["cu_seqlens_k"], self.case.Lk)
            self.lengths = ahead["cu_seqlens_k"].diff()
        self.tell(self.lengths)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *lengths: Tensor) -> Any:
        """Pad, attend, and leave out the padding of the outputs."""
        case = self.case
        together = self._of_pages if case.storage == "paged" else self._of_keys
        found = self.attend(_laid(q, self.queries, case.B, case.Lq), together(k), together(v))
        parts = found if isinstance(found, tuple) else (found,)
        own = tuple(part.transpose(1, 2).flatten(0, 1)[self.queries] for part in parts)
        return own if case.returns else own[0]

    def _of_keys(self, x: Tensor) -> Tensor:
        return _laid(x, self.keys, self.case.B, self.case.Lk)

    def _of_pages(self, x: Tensor) -> Tensor:
        size, longest = x.shape[1], self.case.Lk
        whole = x.new_zeros(self.case.B, longest, *x.shape[2:])
        for number, length in enumerate(self.lengths.tolist()):
            slots = x[self.table[number, : -(-length // size)]].flatten(0, 1)[:longest]
            whole[number, : len(slots)] = slots
        return whole.transpose(1, 2)


def _laid(x: Tensor, places: Tensor, sequences: int, longest: int) -> Tensor:
    """Pad (T, heads, D) with zeros to (N, heads, longest, D)."""
    whole = x.new_zeros(sequences * longest, *x.shape[1:])
    return whole.index_copy(0, places, x).view(sequences, longest, *x.shape[1:]).transpose(1, 2)


def prepare_jax(setup: Setup) -> Padded:
    """Prepare jax.nn.dot_product_attention, which takes both lengths."""
    import torch
    from attnbench_jax.bridge import compiled
    from attnbench_jax.process import configure
    from jax.nn import dot_product_attention

    configure()
    case, dot, dtype = setup.case, setup.scoring.dot, case_dtype(setup.case)
    assert dot is not None
    graph = case.pass_ != "forward"
    window = None if case.mask.window is None else (case.mask.window - 1, 0)

    def function(*arrays: Any, part: int = 0, lse: bool = False) -> Any:
        q, k, v, queries, keys = arrays
        found = dot_product_attention(
            q, k, v, scale=dot.scale, is_causal=case.mask.causal is not None, query_seq_lengths=queries,
            key_value_seq_lengths=keys, local_window_size=window, return_residual=lse,
        )  # fmt: skip
        return found[part] if lse else found

    shapes = [(case.B, case.Lq, case.H, case.D), *[(case.B, case.Lk, case.Hkv, d) for d in (case.D, case.Dv)]]
    examples = [torch.empty(shape, dtype=dtype, device="meta", requires_grad=graph) for shape in shapes]
    counts = [torch.tensor(one, dtype=torch.int32) for one in zip(*lengths_of(case), strict=True)]
    through = compiled(function, [*examples, *counts], case)
    sums = compiled(partial(function, part=1, lse=True), [*examples, *counts], case) if case.returns else None

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Any:
        given = [x.transpose(1, 2) for x in (q, k, v)]
        out = through(*given, *counts).transpose(1, 2)
        return out if sums is None else (out, sums(*given, *counts).transpose(1, 2).float())

    return Padded(case, attend)


def jax_has(case: Case, rule: Rule) -> str | None:
    """Return what the function has no word for, or None."""
    square = all(one == other for one, other in lengths_of(case))
    if not (case.mask.is_none or (masks_lower_right(case) and square)):
        return "no mask but causal from the upper left, with a window"
    return lacks(case, rule)


def prepare_onnxruntime(setup: Setup) -> Padded:
    """Prepare GroupQueryAttention with a cache of equal room for each sequence, and its seqlens_k."""
    from attnbench_onnxruntime.group_query_attention import Attention

    dense = replace(setup.case, batch="", storage="dense", sizes=())
    call = Attention(Setup(dense, setup.rule, setup.scoring, setup.rule_parameters, setup.projections))

    def tell(keys: Tensor) -> None:
        call.prepared["last"].copy_(keys - 1)

    return Padded(setup.case, lambda q, k, v: call(q, k.contiguous(), v.contiguous()), tell)


def onnxruntime_has(case: Case, rule: Rule) -> str | None:
    """Return what the function has no word for, or None."""
    if case.Dv != case.D:
        return "keys and values have the same features"
    if case.B > 1 and any(queries != 1 for queries, _ in lengths_of(case)):
        return "one query of each sequence, or one sequence"
    return lacks(case, rule, ("sink", "cap")) or (None if masks_lower_right(case) else "no such mask")


def prepare_openvino(setup: Setup) -> Padded:
    """Prepare OpenVINO's ScaledDotProductAttention, with a float mask for lengths too."""
    from attnbench_openvino.request import bound, compile_attention

    case, dot, dtype = setup.case, setup.scoring.dot, case_dtype(setup.case)
    assert dot is not None
    added = padded_mask(setup).to(dtype).contiguous()
    inputs = {
        "q": (case.B, case.H, case.Lq, case.D),
        "k": (case.B, case.Hkv, case.Lk, case.D),
        "v": (case.B, case.Hkv, case.Lk, case.Dv),
        "added": tuple(added.shape),
    }
    precision: Any = {"float32": "f32", "bfloat16": "bf16"}[case.dtype]
    model = compile_attention(inputs, precision, precision, dot.scale, case.threads)
    call = bound(model, (case.B, case.H, case.Lq, case.Dv), dtype, added)
    return Padded(case, lambda q, k, v: call(q.contiguous(), k.contiguous(), v.contiguous()))


class OneSequence:
    """ggml's attention of all queries and all keys as one sequence, with a mask of what belongs together."""

    def __init__(self, setup: Setup) -> None:
        import torch
        from attnbench_ggml.graph import Graph

        case, dot, sink = setup.case, setup.scoring.dot, setup.scoring.sink
        assert dot is not None
        self.setup, self.graph, dtype = setup, Graph(), case_dtype(case)
        q, k, v, *_ = (torch.empty(spec.shape, dtype=dtype) for spec in call_inputs(case, setup.rule))
        self.own = [
            None if is_empty(one.case) else additive_mask(one.case, torch.float16, "cpu", one.scoring)
            for one in problem_setups(setup)
        ]
        self.mask = torch.empty(1, 1, len(q), self._laid(k).shape[2], dtype=torch.float16)
        tensors = [self._laid(q).float(), self._laid(k), self._laid(v), self.mask]
        added = [self.graph.add(x) for x in tensors]
        self.graph.operate("ggml_flash_attn_ext", added, [dot.scale, 0.0, dot.cap or 0.0])
        self.sinks = [] if sink is None else [sink.float()]
        for one in self.sinks:
            self.graph.give("ggml_flash_attn_ext_add_sinks", self.graph.add(one))
        self.graph.finish(case.threads)

    def _laid(self, x: Tensor) -> Tensor:
        """Return (tokens, heads, D), or pages of them, as one sequence (1, heads, tokens, D)."""
        return (x.flatten(0, 1) if x.ndim == 4 else x).transpose(0, 1)[None]

    def renew(self, ahead: Mapping[str, Tensor]) -> None:
        """Write the mask: each query keeps keys of its own sequence alone."""
        import torch

        self.mask.fill_(-torch.inf)
        rows = ahead["cu_seqlens_q"].tolist()
        for number, ((_, keys), own) in enumerate(zip(lengths_of(self.setup.case), self.own, strict=True)):
            at = torch.arange(keys)
            if "block_table" in ahead:
                size = dict(self.setup.case.sizes)["page"]
                slots = ahead["block_table"][number].long()[at // size] * size + at % size
            else:
                slots = ahead["cu_seqlens_k"][number] + at
            kept = 0.0 if own is None else own[0, 0]
            self.mask[0, 0, rows[number] : rows[number + 1]].index_put_(
                (torch.arange(rows[number + 1] - rows[number])[:, None], slots),
                torch.as_tensor(kept, dtype=torch.float16),
            )

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *lengths: Tensor) -> Tensor:
        """Attend, (T, H, Dv)."""
        case = self.setup.case
        tensors = [self._laid(q.float()), self._laid(k), self._laid(v), self.mask, *self.sinks]
        return self.graph.compute(tensors).view(len(q), case.H, case.Dv).to(q.dtype)


class Clearing:
    """A prepared function whose cache holds 0 where a slot without a key holds NaN."""

    def __init__(self, prepare: Callable[[Setup], Any], setup: Setup) -> None:
        self.call = prepare(setup)
        self.renew = self.call.renew

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *lengths: Tensor) -> Any:
        """Attend."""
        import torch

        k, v = (x.nan_to_num(0.0, torch.inf, -torch.inf) for x in (k, v))
        return self.call(q, k, v, *lengths)


@hookimpl
def attnbench_backends() -> Iterable[Backend]:
    """Bring the libraries."""
    common: dict[str, Any] = {
        "summary": "a library as it is",
        "needs_dot_form": True,
        "needs_contiguous": True,
    }
    half = {"dtypes": ("float32", "bfloat16", "float16")}
    for name, clears in (("raw_vllm", True), ("raw_vllm_nan", False)):
        prepare = partial(prepare_vllm, clears=clears)
        yield Backend(
            name, prepare=prepare, supports=vllm_has, storages=("paged",), converts=("k", "v"),
            encodings=("dtype", "fp8_e4m3", "fp8_e5m2"), **half, **common,
        )  # fmt: skip
    yield Backend(
        "raw_nested", prepare=Nested, supports=nested_has, storages=("packed",), passes=PASSES, **common
    )
    without_pages = (
        Backend(
            "raw_jax", prepare=prepare_jax, supports=jax_has, passes=PASSES, returns=("lse",), forkable=False,
            requires=("jax",), **half, **common,
        ),
        Backend(
            "raw_onnxruntime", prepare=prepare_onnxruntime, supports=onnxruntime_has,
            requires=("onnxruntime",), dtypes=("float32", "float16"), **common,
        ),
        Backend(
            "raw_openvino", prepare=prepare_openvino, supports=lacks, masks=("any",), requires=("openvino",),
            dtypes=("float32", "bfloat16"), **common,
        ),
        Backend(
            "raw_ggml", prepare=OneSequence, supports=partial(lacks, has=("sink", "cap")), masks=("any",),
            requires=("libggml",), **half, **common,
        ),
    )  # fmt: skip
    for one in without_pages:
        yield replace(one, storages=("packed",))
        paged = replace(one, name=f"{one.name}_nan", storages=("paged",), passes=("forward",))
        yield paged
        yield replace(paged, name=f"{one.name}_pages", prepare=partial(Clearing, one.prepare))
    yield from caches()


def caches() -> Iterable[Backend]:
    """Bring those that read caches of one length, in all dtypes."""
    if find_spec("attnbench_ggml") is not None:
        from attnbench_ggml.attention import GGML_FLASH_ATTN, GGML_FLASH_ATTN_BLOCKS, refuse_maps

        yield replace(GGML_FLASH_ATTN, name="raw_ggml_numbers", supports=refuse_maps)
        yield replace(GGML_FLASH_ATTN_BLOCKS, name="raw_ggml_blocks")
