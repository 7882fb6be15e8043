"""Recording in a process: attention functions that count their calls."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial, wraps
from inspect import signature
from pathlib import Path
from time import perf_counter_ns, thread_time_ns
from types import ModuleType
from typing import TYPE_CHECKING, Any

from attnbench.cases.layouts import layout_of, strides_of
from attnbench.programs.begin import BATCHED, FLEX, functions_in, mark_lost
from attnbench.programs.classify import ClassifiedMask, MaskReader, check_readable, mask_words
from attnbench.programs.facts import call_of, computes_nothing, layout_between, sizes_of, torch_here
from attnbench.programs.ragged import READ_RAGGED, read_jagged
from attnbench.programs.recurrences import READ_RECURRENCES
from attnbench.programs.tally import RECORDING_NS, Call, CallTally, Kind, Unclassified

if TYPE_CHECKING:
    from torch import Tensor

Function = Callable[..., Any]
Read = Callable[..., Kind | None]
"""Takes the arguments of a call and returns what it is; None for nothing of interest."""

_REFUSALS = (RuntimeError, TypeError, ValueError)
"""The errors that torch raises for a call that it can't compute."""
_HERE = str(Path(__file__).parent)


class Watch:
    """The functions that were replaced in this process, and the tally of their calls.

    folder: for the files of a tally. steps: how many steps of optimizers to record; None for all. Whatever
    fails later than here, the program goes on, and the folder gets a mark.

    Raises:
        OSError: there is no room for the files.
    """

    def __init__(self, folder: Path, steps: int | None = None) -> None:
        self.folder, self.most = folder, steps
        self.tally = CallTally(folder)
        self._before: list[CallTally] = []
        self.on = True
        self._undo = ExitStack()
        self._inside = _Inside()
        self._masks = MaskReader()

    def after_fork(self) -> None:
        """Count the calls of a forked process in files of its own."""
        # The end of a mapping closes a descriptor, whose number may be of a file of the program by now.
        self._before.append(self.tally)
        try:
            self.tally = CallTally(self.folder)
        except OSError as failure:
            self._lose(failure)

    def _lose(self, failure: Exception) -> None:
        """Record no more."""
        self.on = False
        mark_lost(self.folder, failure)

    def patch(self, module: ModuleType) -> None:
        """Replace the attention functions of a module that was just imported."""
        try:
            if module.__name__ == "torch":
                self._patch_torch(module)
            elif module.__name__ == FLEX:
                self._replace(module, "flex_attention", self._flex)
            else:
                for name in functions_in(module.__name__):
                    if not hasattr(module, name):
                        continue
                    real = getattr(module, name)
                    if module.__name__ in BATCHED:
                        self._put(module, name, real, self._batched(real))
                    else:
                        self._replace(module, name, _reader(real, name), attention=False)
        except Exception as failure:  # As where a file of the program has a library's name.
            self._lose(failure)

    def restore(self) -> None:
        """Put the functions and settings back."""
        self.on = False
        self._undo.close()

    def _patch_torch(self, torch: Any) -> None:
        functional = torch.nn.functional
        sdpa = functional.scaled_dot_product_attention
        counting = knows_biases(self._counting(sdpa, self._sdpa, attention=True))
        self._put(functional, "scaled_dot_product_attention", sdpa, counting)
        self._replace(functional, "multi_head_attention_forward", self._multihead, attention=False)
        self._replace(torch, "softmax", _softmax, attention=False)
        self._replace(torch.Tensor, "softmax", _softmax, attention=False)
        knows_scripts(counting)
        knows_scripts(torch.softmax)
        # Kernels for a whole layer hide its attention, and compiled code hides everything.
        mha = torch.backends.mha
        self._undo.callback(mha.set_fastpath_enabled, mha.get_fastpath_enabled())
        mha.set_fastpath_enabled(False)
        compiling = torch.compile

        @wraps(compiling)
        def compile(*args: Any, **kwargs: Any) -> Any:
            if self.on:
                stance = torch.compiler.set_stance("force_eager")
                self._undo.callback(stance.__exit__, None, None, None)
            return compiling(*args, **kwargs)

        self._put(torch, "compile", compiling, compile)
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self._undo.callback(register_optimizer_step_post_hook(self._stepped).remove)

    def _stepped(self, *_: object) -> None:
        if self.on and self.tally.step() == self.most:
            self.on = False

    def _replace(self, owner: Any, name: str, read: Read, *, attention: bool = True) -> None:
        real = getattr(owner, name)
        self._put(owner, name, real, self._counting(real, read, attention=attention))

    def _put(self, owner: Any, name: str, real: Function, new: Function) -> None:
        """Replace a function, also where other modules than torch's have imported it by its name."""
        places = [(owner, name)]
        named = _named_functions()
        for name in [name for name, value in named.items() if value is real]:
            self._undo.callback(named.__setitem__, name, real)
            named[name] = new
        for module in list(sys.modules.values()):
            if isinstance(module, ModuleType) and not module.__name__.startswith("torch"):
                places += [(module, own) for own, value in list(vars(module).items()) if value is real]
        for place, attribute in places:
            self._undo.callback(setattr, place, attribute, real)
            setattr(place, attribute, new)

    def _batched(self, real: Function) -> Function:
        """Return a function of transformers that counts calls with cumulative lengths, and none within."""
        inside = self._inside

        @wraps(real)
        def alone(*args: Any, **kwargs: Any) -> Any:
            inside.muted += 1
            try:
                return real(*args, **kwargs)
            finally:
                inside.muted -= 1

        counting = self._counting(alone, _reader(real, real.__name__), attention=True)

        @wraps(real)
        def batched(*args: Any, **kwargs: Any) -> Any:
            return (real if kwargs.get("cu_seq_lens_q") is None else counting)(*args, **kwargs)

        return batched

    def _counting(self, real: Function, read: Read, *, attention: bool) -> Function:
        """Return a function that calls ``real``, and counts the call as what ``read`` makes of its arguments.

        attention: also within another call, as of a layer. A call that made counted ones isn't counted.
        """
        import torch

        inside = self._inside

        @wraps(real)
        def counting(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or not self.on or inside.muted:
                return real(*args, **kwargs)
            inside.depth += 1
            before, output, refused = inside.counted, None, False
            begun_ns = perf_counter_ns()
            try:
                output = real(*args, **kwargs)
                return output
            except _REFUSALS:
                refused = True
                raise
            finally:
                # Also after another exception: checkpoint ends a call so when it computed what it needs.
                ended_ns = perf_counter_ns()
                inside.depth -= 1
                if not refused and inside.counted == before and (attention or not inside.depth):
                    start = thread_time_ns()
                    try:
                        self._count(real.__name__, read, output, (begun_ns, ended_ns), args, kwargs)
                    except Exception as failure:
                        self._lose(failure)
                    self.tally.add(RECORDING_NS, thread_time_ns() - start)

        # torch.jit.script compiles what is called, not what counts.
        vars(counting).update({"__script_if_tracing_wrapper": True, "__original_fn": real})
        return counting

    def _count(
        self, name: str, read: Read, output: Any, times_ns: tuple[int, int], args: Any, kwargs: Any
    ) -> None:
        tally = self.tally
        try:
            kind = read(*args, **kwargs)
            if kind is None:
                return
            place = tally.place(kind)
        except OSError:
            raise
        except Exception as failure:  # The program goes on; the call is told as one that wasn't read.
            kind = Unclassified(name, f"{type(failure).__name__}: {failure}")
            place = tally.place(kind)
        self._inside.counted += 1
        tally.add(place)
        if isinstance(kind, Call) or not kind.by_hand:
            # Of attention by hand only the softmax is seen.
            tally.took(*times_ns)
        first = output[0] if isinstance(output, tuple) else output
        node = getattr(first, "grad_fn", None)
        if isinstance(kind, Call) and node is not None:
            # Not a hook of the tensor, which a program would be warned of when it saves it.
            node.register_prehook(lambda _: tally.add(place + 1) if self.on else None)

    def _sdpa(
        self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
        dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Kind | None:  # fmt: skip
        if computes_nothing(query):
            return None
        if query.is_nested:
            return read_jagged(query, key, value, attn_mask, dropout_p, is_causal, scale)
        if is_causal and attn_mask is not None:
            return Unclassified("scaled_dot_product_attention", "is_causal and a mask at once")
        sizes = sizes_of(query, key, value)
        mask = ClassifiedMask("causal") if is_causal else self._words(attn_mask, sizes)
        layout = layout_between(query, key, value)
        return call_of("scaled_dot_product_attention", query, sizes, layout, mask, scale, dropout_p)

    def _flex(
        self, query: Tensor, key: Tensor, value: Tensor, score_mod: Any = None, block_mask: Any = None,
        scale: float | None = None, enable_gqa: bool = False, *_: Any, **__: Any,
    ) -> Kind | None:  # fmt: skip
        if score_mod is not None:
            return Unclassified("flex_attention", f"{score_mod.__name__} changes the scores")
        sizes = sizes_of(query, key, value)
        mask = ClassifiedMask("none")
        if block_mask is not None:
            from torch.nn.attention.flex_attention import create_mask

            (B, H), lengths = block_mask.shape[:2], (sizes["Lq"], sizes["Lk"])

            def made() -> ClassifiedMask:
                check_readable(query)
                kept = create_mask(block_mask.mask_mod, B, H, *lengths, device=query.device)
                return mask_words(kept, sizes["B"], sizes["H"], *lengths)

            mask = self._masks.made(block_mask, lengths, made)
        return call_of("flex_attention", query, sizes, layout_between(query, key, value), mask, scale, 0.0)

    def _multihead(
        self, query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int,
        in_proj_weight: Any, in_proj_bias: Any, bias_k: Any, bias_v: Any, add_zero_attn: bool,
        dropout_p: float, out_proj_weight: Any, out_proj_bias: Any, training: bool = True,
        key_padding_mask: Tensor | None = None, need_weights: bool = True, attn_mask: Tensor | None = None,
        *_: Any, **__: Any,
    ) -> Kind | None:  # fmt: skip
        """Read a layer that returns its weights, and so calls no attention function."""
        if bias_k is not None or add_zero_attn:
            return Unclassified("multi_head_attention_forward", "it adds a key")
        Lq, B = query.shape[0], query.shape[1] if query.dim() == 3 else 1
        heads, Lk, D = num_heads, key.shape[0], embed_dim_to_check // num_heads
        sizes = {"B": B, "H": heads, "Hkv": heads, "Lq": Lq, "Lk": Lk, "D": D, "Dv": D}
        if attn_mask is not None or key_padding_mask is not None:
            check_readable(query)
        mask, padded = _added(attn_mask), _added(key_padding_mask)
        if mask is not None and mask.dim() == 3:
            mask = mask.reshape(B, heads, Lq, Lk)
        if padded is not None:
            padded = padded.reshape(B, 1, 1, Lk)
            mask = padded if mask is None else mask + padded
        words = ClassifiedMask("none") if mask is None else mask_words(mask, B, heads, Lq, Lk)
        # It makes queries, keys and values of its own, from positions that come before the batch.
        shapes = [(B, heads, Lq, D), (B, heads, Lk, D), (B, heads, Lk, D)]
        layout = layout_of(shapes, [strides_of("LBHD", shape, 0) for shape in shapes]) or ""
        dropout = dropout_p if training else 0.0
        return call_of("multi_head_attention_forward", query, sizes, layout, words, None, dropout)

    def _words(self, mask: Tensor | None, sizes: dict[str, int]) -> ClassifiedMask:
        if mask is None:
            return ClassifiedMask("none")
        return self._masks.words(mask, *(sizes[name] for name in ("B", "H", "Lq", "Lk")))


class _Inside(threading.local):
    """Of this thread: how many counting functions are under way, how many calls it counted, and how many
    functions it is in whose calls do not count."""

    depth = 0
    counted = 0
    muted = 0


def _named_functions() -> dict[str, Any]:
    """Return the table in which transformers finds attention functions by name, if it is imported."""
    interface = getattr(sys.modules.get("transformers.modeling_utils"), "AttentionInterface", None)
    named = getattr(interface, "_global_mapping", None)
    return named if isinstance(named, dict) else {}


def _added(dropped: Tensor | None) -> Tensor | None:
    """Return the mask of a layer, whose True drops a pair, as one that is added."""
    import torch

    if dropped is None or dropped.dtype != torch.bool:
        return dropped
    return torch.zeros(dropped.shape, device=dropped.device).masked_fill_(dropped, float("-inf"))


def knows_biases(attention: Function) -> Function:
    """Return a function in place of torch's that takes its causal biases, which know it by identity."""
    from torch.nn import functional
    from torch.overrides import handle_torch_function

    @wraps(attention)
    def knowing(*args: Any, **kwargs: Any) -> Any:
        # By its name: importing the class takes seconds.
        bias = [one for one in (*args, *kwargs.values()) if type(one).__name__ == "CausalBias"]
        if bias:
            return handle_torch_function(functional.scaled_dot_product_attention, bias, *args, **kwargs)
        return attention(*args, **kwargs)

    return knowing


def knows_scripts(function: Function) -> None:
    """Have torch.jit.script take a function for the one of torch with its name; it knows that by identity."""
    torch_here().jit._builtins._register_builtin(function, f"aten::{function.__name__}")


def _reader(real: Function, name: str) -> Read:
    """Return what reads the calls of a library's function, by the names of its arguments."""
    read = READ_RAGGED.get(name) or READ_RECURRENCES.get(name)
    if read is None:
        return partial(_named, name)
    parameters = signature(real)

    def reading(*args: Any, **kwargs: Any) -> Kind | None:
        return read(name, parameters.bind(*args, **kwargs).arguments)

    return reading


def _named(name: str, *_: object, **__: object) -> Kind:
    return Unclassified(name, "attnbench counts its calls, but does not read their inputs")


def _softmax(scores: Tensor, dim: int | None = None, *_: Any, **rest: Any) -> Kind | None:
    """Read a softmax over the last of four axes, or over squares, as of scores that a program made."""
    axis = rest.get("axis", dim)
    if scores.dim() < 3 or axis not in (-1, scores.dim() - 1):
        return None
    square = scores.shape[-1] == scores.shape[-2] > 1
    if scores.dim() == 3 and not square:
        return None
    return Unclassified("softmax", f"at {_caller()}", by_hand=True)


def _caller() -> str:
    """Return the line of the program that called, outside of torch."""
    frame = sys._getframe(1)
    own = (_HERE, str(Path(torch_here().__file__).parent))
    while frame.f_back is not None and frame.f_code.co_filename.startswith(own):
        frame = frame.f_back
    where = Path(frame.f_code.co_filename)
    return f"{'/'.join(where.parts[-2:])}:{frame.f_lineno}"
