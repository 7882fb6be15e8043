"""What encoded keys and values mean, in torch: codes and scales to tensors of the dtype of the case.

The tensors are those of docs/serving.md, ``k, v, k_scale, v_scale`` with ``k_zero, v_zero`` where there are
zero points.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnbench.kit.dtypes import case_dtype, softmax_dtype
from attnbench.types.encoding import encoding_name, grain_of
from attnbench.types.storage import KEYS_OF_RUN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch
    from torch import Tensor

    from attnbench.types.case import Case

    Read = Callable[..., tuple[Tensor, Tensor]]


def dequantiser(case: Case) -> Read:
    """Return a function of a case's encoded tensors, without q, that gives k and v in its dtype.

    Products of codes and scales are in float32, in float64 cases in float64, and rounded once.
    """
    dtype = case_dtype(case)
    wide = softmax_dtype(dtype)
    name, grain = encoding_name(case), grain_of(case)
    if name == "latent":
        return lambda kv: (kv, kv[..., : case.Dv])
    read = _CODES[name]

    def dequantise(k: Tensor, v: Tensor, *others: Tensor) -> tuple[Tensor, Tensor]:
        # k_scale, k_zero; then those of v.
        keys, values = (
            _numbers(read(x).to(wide), grain, *others[place::2]).to(dtype) for place, x in enumerate((k, v))
        )
        return keys, values

    return dequantise


def has_tokens(case: Case, place: int) -> bool:
    """Return whether an encoded tensor has an axis of tokens: codes, and scales that tokens don't share."""
    return place < 2 or grain_of(case) in ("token", "block32")


def has_runs(case: Case, place: int) -> bool:
    """Return whether an encoded tensor has an axis of runs of keys: scales of the grain ``page32``."""
    return place >= 2 and grain_of(case) == "page32"


def of_tokens(case: Case, encoded: Sequence[Tensor], tokens: slice) -> tuple[Tensor, ...]:
    """Return dense encoded tensors of some tokens alone. Scales that all tokens share stay as they are; those
    of runs become one for each token."""

    def own(x: Tensor, place: int) -> Tensor:
        x = _by_key(x, case.Lk) if has_runs(case, place) else x
        return x[:, :, tokens] if has_tokens(case, place) or has_runs(case, place) else x

    return tuple(own(x, place) for place, x in enumerate(encoded))


def _by_key(scale: Tensor, keys: int) -> Tensor:
    """Return a scale for each key from those of runs; from those of keys themselves."""
    return scale if scale.shape[2] == keys else scale.repeat_interleave(KEYS_OF_RUN, 2)[:, :, :keys]


def _numbers(codes: Tensor, grain: str, *scale_and_zero: Tensor) -> Tensor:
    """Return codes (B, Hkv, L, D) times their scales, without their zero points."""
    if not scale_and_zero:
        return codes
    grouped = codes.reshape(*codes.shape[:-1], codes.shape[-1] // 32, 32) if grain == "block32" else codes
    scale, *zero = (_spread(x, grain, codes.shape[2]) for x in scale_and_zero)
    if zero:
        grouped = grouped - zero[0]
    return (grouped * scale).reshape(codes.shape)


def _spread(scale: Tensor, grain: str, keys: int) -> Tensor:
    """Return scales in a shape that multiplies codes of so many keys."""
    match grain:
        case "head":
            return scale[:, :, None, None]
        case "channel":
            return scale[:, :, None]
        case "token" | "block32":
            return scale[..., None]
        case "page32":
            return _by_key(scale, keys)[..., None]
        case _:
            return scale


def _two_in_a_byte(codes: Tensor) -> Tensor:
    import torch

    return torch.stack([codes & 15, codes >> 4], dim=-1).flatten(-2)


def _signed(codes: Tensor) -> Tensor:
    # From -8 to 7: the sign stands for -8.
    return (_two_in_a_byte(codes).char() ^ 8) - 8


def _float8(name: str) -> Callable[[Tensor], Tensor]:
    import torch

    form: torch.dtype = getattr(torch, name)
    return lambda codes: codes.view(form)


def _blocks(codes: Tensor, size: int, read: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the numbers of llama.cpp's blocks: a float16 scale, then bytes."""
    import torch

    blocks = codes.reshape(*codes.shape[:-1], codes.shape[-1] // size, size)
    scale = blocks[..., :2].contiguous().view(torch.float16).float()
    numbers: Tensor = (read(blocks[..., 2:]).float() * scale).flatten(-2)
    return numbers


def _q8_0(codes: Tensor) -> Tensor:
    import torch

    return _blocks(codes, 34, lambda x: x.view(torch.int8))


def _q4_0(codes: Tensor) -> Tensor:
    import torch

    return _blocks(codes, 18, lambda x: torch.cat([x & 15, x >> 4], dim=-1).char() - 8)


def _q5_1(codes: Tensor) -> Tensor:
    import torch

    blocks = codes.reshape(*codes.shape[:-1], codes.shape[-1] // 24, 24)
    halves = blocks[..., :4].contiguous().view(torch.float16).float()
    low = torch.cat([blocks[..., 8:] & 15, blocks[..., 8:] >> 4], dim=-1)
    bits = torch.arange(8, dtype=torch.uint8, device=codes.device)
    fifth = ((blocks[..., 4:8, None] >> bits) & 1).flatten(-2)
    numbers: Tensor = ((low + 16 * fifth).float() * halves[..., :1] + halves[..., 1:]).flatten(-2)
    return numbers


_CODES: dict[str, Callable[[Tensor], Tensor]] = {
    "int8": lambda codes: codes,
    "int4": _signed,
    "uint8": lambda codes: codes,
    "uint4": _two_in_a_byte,
    "fp8_e4m3": lambda codes: _float8("float8_e4m3fn")(codes),
    "fp8_e5m2": lambda codes: _float8("float8_e5m2")(codes),
    "q8_0": _q8_0,
    "q4_0": _q4_0,
    "q5_1": _q5_1,
}
ENCODINGS = (*_CODES, "latent")
"""The built-in encodings that :func:`dequantiser` reads."""
