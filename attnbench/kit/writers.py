"""Writers of caches in torch: numbers to codes and scales, and new tokens into pages.

They are the plain references of ``quantise`` and ``reshape_and_cache``, whose modules say what is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attnbench.kit.dtypes import case_dtype, softmax_dtype
from attnbench.types.encoding import encoding_name, encoding_of, grain_of
from attnbench.types.operation import operation_of
from attnbench.types.storage import KEYS_OF_RUN

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from attnbench.types.backend import Setup
    from attnbench.types.case import Case

    Write = Callable[..., tuple[Tensor, ...]]

_FLOAT8 = {"fp8_e4m3": ("float8_e4m3fn", 448.0), "fp8_e5m2": ("float8_e5m2", 57344.0)}
_LARGEST = {"int8": 127.0, "int4": 7.0, "uint8": 255.0, "uint4": 15.0} | {
    name: largest for name, (_, largest) in _FLOAT8.items()
}
_SHARED = {
    "head": (2, 3), "token": (3,), "channel": (2,), "block32": (4,), "page32": (3, 4),
    "tensor": (0, 1, 2, 3),
}  # fmt: skip


def quantise(setup: Setup) -> Callable[..., Any]:
    """Return a function of k and v that gives the tensors of the case's encoding."""
    write = writer(setup.case)

    def call(k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        keys, values = write(k), write(v)
        # All codes, then all scales, then all zero points.
        return tuple(x for pair in zip(keys, values, strict=True) for x in pair)

    return call


def writer(case: Case) -> Write:
    """Return a function of numbers (B, H, L, D), and of a scale and a zero point where these are given.

    It gives codes, scale and zero point, as far as the encoding of the case has them.
    """
    name = encoding_name(case)
    if name in ("dtype", "latent"):
        return lambda x: (x.clone(),)
    wide = softmax_dtype(case_dtype(case))
    if name in _BLOCKS:
        blocks = _BLOCKS[name]
        return lambda x: (blocks(x.to(wide)),)
    return lambda x, *given: _scaled(name, grain_of(case), x.to(wide), *given)


def _scaled(name: str, grain: str, x: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
    import torch

    grouped = x
    if grain == "block32":
        grouped = in_blocks(x)
    elif grain == "page32":
        grouped = in_runs(x)
    largest, zeros = _LARGEST[name], name.startswith("u")
    axes = _SHARED[grain]
    if given:
        scale, zero = given[0].to(x), given[1].to(x) if zeros else None
    else:
        # A group of zeros has the scale 1.
        high, low = grouped.amax(axes, keepdim=True), grouped.amin(axes, keepdim=True)
        span = high.clamp_min(0) - low.clamp_max(0) if zeros else torch.maximum(high, -low)
        scale = torch.where(span == 0, 1, span / largest).float()
        zero = (-low.clamp_max(0) / scale).round() if zeros else None
    steps = grouped / scale.to(x)
    if zero is not None:
        steps = (steps.round() + zero).clamp(0, largest)
    # Behind the last key of a short run nothing is written.
    steps = steps.clamp(-largest, largest).reshape(*x.shape[:2], -1, x.shape[3])[:, :, : x.shape[2]]
    parts = [_codes(name, steps)]
    if not given:
        kept = [axis for axis in range(grouped.ndim) if axis not in axes]
        shape = [scale.shape[axis] for axis in kept] or [1]
        parts.append(scale.reshape(shape))
        if zero is not None:
            parts.append(zero.nan_to_num().to(torch.uint8).reshape(shape))
    return tuple(parts)


def in_blocks(x: Tensor) -> Tensor:
    """Return (…, D) as blocks of 32 features, (…, D / 32, 32)."""
    return x.reshape(*x.shape[:-1], x.shape[-1] // 32, 32)


def in_runs(x: Tensor) -> Tensor:
    """Return (B, H, L, D) as runs of 32 keys, (B, H, L / 32, 32, D); a short run ends in zeros."""
    import torch

    full = torch.nn.functional.pad(x, (0, 0, 0, -x.shape[2] % KEYS_OF_RUN))
    return full.reshape(*x.shape[:2], full.shape[2] // KEYS_OF_RUN, KEYS_OF_RUN, x.shape[3])


def _codes(name: str, steps: Tensor) -> Tensor:
    import torch

    if name in _FLOAT8:
        # By way of float32, which float64 rounds to first; the middles between float8 numbers stay apart.
        form: torch.dtype = getattr(torch, _FLOAT8[name][0])
        return steps.float().to(form).view(torch.uint8)
    whole = steps.nan_to_num().round()
    if name == "int8":
        return whole.to(torch.int8)
    if name == "uint8":
        return whole.to(torch.uint8)
    nibbles = whole.to(torch.int16) & 15
    return (nibbles[..., ::2] | (nibbles[..., 1::2] << 4)).to(torch.uint8)


def _q8_0(x: Tensor) -> Tensor:
    import torch

    blocks = in_blocks(x)
    d = blocks.abs().amax(-1, keepdim=True) / 127
    codes = (blocks / torch.where(d == 0, 1, d)).nan_to_num().round().to(torch.int8).view(torch.uint8)
    return _joined(d, codes)


def _q4_0(x: Tensor) -> Tensor:
    import torch

    blocks = in_blocks(x)
    place = blocks.abs().argmax(-1, keepdim=True)
    d = blocks.gather(-1, place) / -8
    steps = (blocks / torch.where(d == 0, 1, d) + 8.5).nan_to_num().floor().clamp(0, 15)
    codes = steps.to(torch.uint8)
    return _joined(d, codes[..., :16] | (codes[..., 16:] << 4))


def _q5_1(x: Tensor) -> Tensor:
    import torch

    blocks = in_blocks(x)
    m = blocks.amin(-1, keepdim=True)
    d = (blocks.amax(-1, keepdim=True) - m) / 31
    steps = ((blocks - m) / torch.where(d == 0, 1, d) + 0.5).nan_to_num().floor().clamp(0, 31)
    codes = steps.to(torch.uint8)
    low = (codes[..., :16] & 15) | ((codes[..., 16:] & 15) << 4)
    places = torch.arange(8, dtype=torch.uint8, device=x.device)
    fifth = ((codes >> 4).reshape(*codes.shape[:-1], 4, 8) << places).sum(-1, dtype=torch.uint8)
    return _joined(torch.cat([d, m], -1), torch.cat([fifth, low], -1))


def _joined(halves: Tensor, codes: Tensor) -> Tensor:
    """Return blocks of bytes, (B, H, L, ·): the scale, and what else is in float16, then codes."""
    import torch

    return torch.cat([halves.half().contiguous().view(torch.uint8), codes], -1).flatten(-2)


_BLOCKS = {"q8_0": _q8_0, "q4_0": _q4_0, "q5_1": _q5_1}
ENCODINGS = (*_LARGEST, *_BLOCKS)
"""The built-in encodings with codes."""


def reshape_and_cache(setup: Setup) -> Callable[..., Any]:
    """Return a function of the new tokens, the cache, scales that are given, and slots.

    It copies the cache, since a call leaves its inputs alone, and returns the copy.
    """
    case, write, grain = setup.case, writer(setup.case), grain_of(setup.case)
    names = [spec.name for spec in operation_of(case).inputs(case, setup.rule)]
    outputs = [spec.name for spec in operation_of(case).outputs(case)]
    whole = {"k": ("key", 0), "v": ("value", 1)}
    if encoding_of(case).shared:
        whole = {"kv": ("key", 0)}

    def call(*inputs: Tensor) -> Any:
        given = dict(zip(names, inputs, strict=True))
        slots = given["slot_mapping"]
        named = slots >= 0
        after = {name: given[name].clone() for name in outputs}
        for side, (source, _) in whole.items():
            scales = [
                _as_group(given[f"{side}_{word}"], grain)
                for word in ("scale", "zero")
                if f"{side}_{word}" in given and f"{side}_{word}" not in outputs
            ]
            tokens = given[source].transpose(0, 1)[None]
            parts = write(tokens, *scales)
            stored = [name for name in (side, f"{side}_scale", f"{side}_zero") if name in outputs]
            for name, part in zip(stored, parts, strict=True):
                flat = after[name].flatten(0, 1)
                flat[slots[named]] = part[0].transpose(0, 1)[named]
        answers = tuple(after[name] for name in outputs)
        return answers if len(answers) > 1 else answers[0]

    return call


def _as_group(scale: Tensor, grain: str) -> Tensor:
    """Return a scale that is given, (1), (Hkv) or (Hkv, D), in a shape that divides (1, Hkv, L, D)."""
    match grain:
        case "head":
            return scale[None, :, None, None]
        case "channel":
            return scale[None, :, None]
        case _:
            return scale
