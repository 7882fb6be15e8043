"""A plugin for encoded keys and values: for each encoding a right kernel, and planted mistakes.

What codes and scales mean is written here once more in NumPy, from the table in docs/serving.md. A mistake is
what a wrong kernel takes for the tensors that it got.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from attnbench import Backend, hookimpl

if TYPE_CHECKING:
    from torch import Tensor

    Array = np.ndarray[Any, Any]
    Arrays = dict[str, Array]
    Wrong = Callable[[Arrays], Arrays]


def both(name: str, change: Callable[[Array], Array]) -> Wrong:
    """Change a tensor of k and of v: the codes, "_scale" or "_zero"."""
    return lambda t: t | {f"{x}{name}": change(t[f"{x}{name}"]) for x in "kv"}


def one(name: str, change: Callable[[Array], Array]) -> Wrong:
    return lambda t: t | {name: change(t[name])}


def next_one(axis: int, name: str = "_scale") -> Wrong:
    return both(name, lambda s: np.roll(s, 1, axis))


def with_zeros(change: Callable[[Array], Array]) -> Wrong:
    """Change scales and zero points alike."""
    return lambda t: both("_zero", change)(both("_scale", change)(t))


def exchanged(name: str) -> Wrong:
    return lambda t: t | {f"k{name}": t[f"v{name}"], f"v{name}": t[f"k{name}"]}


def nibbles(codes: Array) -> tuple[Array, Array]:
    return codes & 15, codes >> 4


def swapped(codes: Array) -> Array:
    low, high = nibbles(codes)
    return high | (low << 4)


def halves_first(codes: Array) -> Array:
    """Pack again as if low bits were the first half of the features, and high bits the second."""
    whole = np.concatenate(nibbles(codes), -1)
    return whole[..., ::2] | (whole[..., 1::2] << 4)


def as_float8(form: str, codes: Array) -> Array:
    import torch

    return torch.from_numpy(codes).view(getattr(torch, form)).float().numpy().astype(np.float64)


def read_codes(name: str, codes: Array) -> Array:
    if name.startswith("fp8"):
        return as_float8({"fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2"}[name], codes)
    if name in ("int4", "uint4"):
        whole = np.empty((*codes.shape[:-1], 2 * codes.shape[-1]))
        whole[..., ::2], whole[..., 1::2] = nibbles(codes)
        return np.where(whole > 7, whole - 16, whole) if name == "int4" else whole
    return codes.astype(np.float64)


def halves(block: Array) -> Array:
    """Read bytes as float16."""
    return np.frombuffer(block.tobytes(), "<f2").astype(np.float64).reshape(*block.shape[:-1], -1)


def read_blocks(name: str, stored: Array) -> Array:
    numbers = []
    for start in range(0, stored.shape[-1], BLOCKS[name]):
        block = stored[..., start : start + BLOCKS[name]]
        d, codes = halves(block[..., :2]), block[..., 2:]
        if name == "q8_0":
            numbers.append(d * np.where(codes > 127, codes - 256.0, codes))
        elif name == "q4_0":
            numbers.append(d * (np.concatenate(nibbles(codes), -1) - 8.0))
        else:
            low = np.concatenate(nibbles(codes[..., 6:]), -1)
            fifth = [codes[..., 2 + i // 8] >> i % 8 & 1 for i in range(32)]
            numbers.append(d * (low + 16.0 * np.stack(fifth, -1)) + halves(codes[..., :2]))
    return np.concatenate(numbers, -1)


def read(word: str, t: Mapping[str, Array], x: str) -> Array:
    """Return k or v in float64."""
    name, _, grain = word.partition(":")
    if not grain:
        return read_blocks(name, t[x])
    steps, scale = read_codes(name, t[x]), t[f"{x}_scale"].astype(np.float64)
    zero = t[f"{x}_zero"].astype(np.float64) if f"{x}_zero" in t else np.zeros_like(scale)
    if grain == "block32":
        scale, zero = (np.repeat(s, 32, -1) for s in (scale, zero))
    if grain == "page32":
        scale, zero = (np.repeat(s, 32, 2)[:, :, : steps.shape[2]] for s in (scale, zero))
    at = {
        "tensor": (None,) * 3, "head": (..., None, None), "token": (..., None),
        "channel": (slice(None), slice(None), None), "block32": (...,),
        "page32": (..., None),
    }[grain]  # fmt: skip
    return (steps - zero[at]) * scale[at]


BLOCKS = {"q8_0": 34, "q4_0": 18, "q5_1": 24}
"""Bytes of a block of 32 features."""
IGNORED, SQUARED, INVERTED = (lambda s: s * 0 + 1), np.square, np.reciprocal
SCALED: dict[str, Wrong] = {
    "scales ignored": both("_scale", IGNORED),
    "scale of k ignored": one("k_scale", IGNORED),
    "scale of v ignored": one("v_scale", IGNORED),
    "scales squared": both("_scale", SQUARED),
    "scales inverted": both("_scale", INVERTED),
    "scales of k and v exchanged": exchanged("_scale"),
    "scale of k for both": lambda t: t | {"v_scale": t["k_scale"]},
    "v read as k": lambda t: t | {name: t[name.replace("v", "k", 1)] for name in t},
}
BY_AXIS = {"batch element": "head token channel block32", "head": "head token channel block32"}
NIBBLES: dict[str, Wrong] = {
    "nibbles swapped": both("", swapped),
    "halves taken for pairs": both("", halves_first),
    "high nibbles left out": both("", lambda x: x & 15),
}
ZEROS: dict[str, Wrong] = {
    "zero points left out": both("_zero", lambda z: z * 0),
    "sign of zero points": both("_zero", lambda z: -z.astype(np.int32)),
    "zero points of k and v exchanged": exchanged("_zero"),
    "zero point of v left out": one("v_zero", lambda z: z * 0),
    "scales and zero points of k and v exchanged": lambda t: exchanged("_zero")(exchanged("_scale")(t)),
    "zero points in units of the scale": lambda t: (
        t | {f"{x}_zero": t[f"{x}_zero"] / t[f"{x}_scale"] for x in "kv"}
    ),
}


def of_blocks(size: int, change: Callable[[Array], Array]) -> Wrong:
    """Change blocks (…, blocks, bytes)."""
    return both("", lambda x: change(x.reshape(*x.shape[:-1], -1, size)).reshape(x.shape))


def scale_bytes(change: Callable[[Array], Array], count: int = 2) -> Callable[[Array], Array]:
    return lambda x: np.concatenate([change(x[..., :count]), x[..., count:]], -1)


def flushed(d: Array) -> Array:
    """Return float16 as bytes (…, 2) with 0 for subnormal numbers."""
    return np.where(d[..., 1:] & 0x7C, d, 0)


def codes_of(change: Callable[[Array], Array], first: int = 2) -> Callable[[Array], Array]:
    return lambda x: np.concatenate([x[..., :first], change(x[..., first:])], -1)


def fifth_bits(change: Callable[[Array], Array]) -> Wrong:
    """Change the fifth bits of q5_1, (…, 32) of 0 and 1."""

    def changed(x: Array) -> Array:
        bits = change(np.unpackbits(x[..., 4:8], axis=-1, bitorder="little"))
        return np.concatenate([x[..., :4], np.packbits(bits, axis=-1, bitorder="little"), x[..., 8:]], -1)

    return of_blocks(24, changed)


def in_pairs(x: Array) -> Array:
    """Pack 16 bytes again as if each held two neighbours."""
    low, high = nibbles(x)
    pairs = np.stack([low, high], -1).reshape(*x.shape[:-1], 32)
    return pairs[..., :16] | (pairs[..., 16:] << 4)


def blocks(name: str) -> dict[str, Wrong]:
    unit, size = np.frombuffer(np.float16(1).tobytes(), np.uint8), BLOCKS[name]
    # A block of q5_1 is that of its scale and its least number.
    head = 4 if name == "q5_1" else 2
    return {
        "scales ignored": of_blocks(size, scale_bytes(lambda d: d * 0 + unit)),
        "subnormal scales flushed": of_blocks(size, scale_bytes(flushed)),
        "scale of the next block": of_blocks(size, scale_bytes(lambda d: np.roll(d, 1, -2), head)),
        "scale of the next token": of_blocks(size, scale_bytes(lambda d: np.roll(d, 1, -3), head)),
        "scale of the next head": of_blocks(size, scale_bytes(lambda d: np.roll(d, 1, 1), head)),
        "first block's scale for all": of_blocks(
            size, scale_bytes(lambda d: np.broadcast_to(d[..., :1, :], d.shape), head)
        ),
        "codes in reverse": of_blocks(size, codes_of(lambda c: c[..., ::-1], head)),
        "v read as k": lambda t: t | {"v": t["k"]},
    }


def ungrouped(word: str) -> dict[str, Wrong]:
    """Return the mistakes of an encoding whose scales are tensors of their own."""
    name, _, grain = word.partition(":")
    found = dict(SCALED)
    axes = {"head": 2, "token": 3, "channel": 3, "block32": 4, "page32": 3}.get(grain, 0)
    for axis, what in enumerate(("batch element", "head", grain, "block")[:axes]):
        found[f"scale of the next {what}"] = next_one(axis)
        found[f"scale of the first {what} for all"] = both(
            "_scale", lambda s, a=axis: np.broadcast_to(s.take([0], a), s.shape)
        )
        if name.startswith("uint"):
            found[f"zero point of the next {what}"] = next_one(axis, "_zero")
            found[f"scale and zero point of the next {what}"] = with_zeros(
                partial(np.roll, shift=1, axis=axis)
            )
    if name in ("int4", "uint4"):
        found |= NIBBLES
    if name.startswith("uint"):
        found |= ZEROS
        if grain == "token":
            # Of coarser grains it adds the same to all scores of a row, and weights stay as they are.
            found["zero point of k left out"] = one("k_zero", lambda z: z * 0)
            found["zero points subtracted in 8 bits"] = lambda t: (
                t
                | {
                    **{x: t[x] - t[f"{x}_zero"][..., None] for x in "kv"},
                    **{f"{x}_zero": 0 * t[f"{x}_zero"] for x in "kv"},
                }
            )
    if name == "int8":
        found["codes without sign"] = both("", lambda x: x.astype(np.int32) % 256)
        found["codes one too small"] = one("v", lambda x: x - 1)
    if name == "int4":
        found["codes from -8 without their sign"] = both("", lambda x: x ^ 0x88)
    if name.startswith("fp8"):
        found["sign left out"] = both("", lambda x: x & 0x7F)
        found["half of the bits of a fraction"] = both("", lambda x: x & 0xFE)
    return found


MISTAKES: dict[str, dict[str, Wrong]] = {
    **{
        word: ungrouped(word)
        for word in (
            "int8:head", "int8:token", "int8:channel", "int8:block32", "int8:page32", "int8:tensor",
            "int4:token", "int4:block32", "uint8:token", "uint8:head", "uint4:channel", "fp8_e4m3:head",
            "fp8_e4m3:tensor", "fp8_e5m2:token",
        )
    },
    "q8_0": blocks("q8_0") | {"codes without sign": of_blocks(34, codes_of(lambda c: c & 0x7F))},
    "q4_0": blocks("q4_0")
    | {
        "nibbles swapped": of_blocks(18, codes_of(swapped)),
        "neighbours in a byte": of_blocks(18, codes_of(in_pairs)),
        "codes from 1": of_blocks(18, codes_of(lambda c: c | 0x11)),
    },
    "q5_1": blocks("q5_1")
    | {
        "least number ignored": of_blocks(24, lambda x: np.concatenate(
            [x[..., :2], x[..., 2:4] * 0, x[..., 4:]], -1)),
        "fifth bits ignored": fifth_bits(lambda bits: bits * 0),
        "fifth bit of the next code": fifth_bits(lambda bits: np.roll(bits, -1, -1)),
        "neighbours in a byte": of_blocks(24, codes_of(in_pairs, 8)),
        "nibbles swapped": of_blocks(24, codes_of(swapped, 8)),
    },
}  # fmt: skip
"""By the word of an encoding."""


LATENT: dict[str, dict[str, Any]] = {
    "latent right": {},
    "latent with the scale of all features": {"scale": lambda case: case.D**-0.5},
    "latent with the scale squared": {"scale": lambda case: dict(case.constants)["scale"] ** 2},
    "latent without the rotated part": {"scored": lambda kv, case: kv[..., : case.Dv]},
    "latent without the compressed part": {"scored": lambda kv, case: kv[..., case.Dv :]},
    "latent with the rotated part in front": {"scored": lambda kv, case: np.roll(kv, case.D - case.Dv, -1)},
    "latent with the last features as values": {"valued": lambda kv, case: kv[..., -case.Dv :]},
    "latent with every second feature as a value": {
        "valued": lambda kv, case: np.resize(kv[..., ::2], (*kv.shape[:-1], case.Dv))
    },
    "latent of the next batch element": {"scored": lambda kv, case: np.roll(kv, 1, 0)},
    "latent without the last token": {"valued": lambda kv, case: np.where(np.arange(kv.shape[2])[:, None]
        == kv.shape[2] - 1, 0, kv)[..., : case.Dv]},
}  # fmt: skip
"""What a kernel takes for the scale, the keys and the values, where it is not the right one."""


def attend_latent(setup: Any, how: Mapping[str, Any]) -> Any:
    import torch

    case = setup.case
    scale = how["scale"](case) if "scale" in how else dict(case.constants)["scale"]

    def call(q: Tensor, kv: Tensor) -> Tensor:
        queries, latent = q.double().numpy(), kv.double().numpy()
        keys = how["scored"](latent, case) if "scored" in how else latent
        if keys.shape[-1] < case.D:
            first = keys.shape[-1] == case.Dv
            queries = queries[..., : case.Dv] if first else queries[..., case.Dv :]
        values = how["valued"](latent, case) if "valued" in how else latent[..., : case.Dv]
        scores = queries @ keys.swapaxes(-1, -2) * scale
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        return torch.from_numpy(powers / powers.sum(-1, keepdims=True) @ values).to(q.dtype)

    return call


def next_page(scales: Array) -> Array:
    """Without pages all are 0."""
    return np.roll(scales, 1, 0) if scales.ndim > 2 else scales * 0


def next_slot(scales: Array) -> Array:
    return np.roll(scales.reshape(-1, scales.shape[-1]), -1, 0).reshape(scales.shape)


def of_logical_pages(t: Arrays, scales: Array) -> Array:
    """Let page n of each sequence have the scales of page n of the cache; without pages all are 0."""
    if "block_table" not in t:
        return scales * 0
    changed, page = scales.copy(), t["k"].shape[1]
    for row, keys in zip(t["block_table"], t["seqused_k"], strict=True):
        for n in range(-(-int(keys) // page)):
            changed[row[n]] = scales[n]
    return changed


IN_BATCHES: dict[str, dict[str, Wrong]] = {
    "int8:head": {
        "scale of the next sequence": both("_scale", lambda s: np.roll(s, 1, 0)),
        "scale of the first sequence": both("_scale", lambda s: np.broadcast_to(s[:1], s.shape)),
        "scale of the next head": next_one(1),
        "scales of k and v exchanged": exchanged("_scale"),
        "v read as k": lambda t: t | {"v": t["k"], "v_scale": t["k_scale"]},
    },
    "int8:token": {
        # Packed (S, Hkv), or paged (pages, page, Hkv).
        "scale of the next slot": both("_scale", next_slot),
        "scale of the first slot": both("_scale", lambda s: s[:, :1] + 0 * s if s.ndim > 2 else s * 0 + 1),
        "scale of the next head": next_one(-1),
        "scale of the next page": both("_scale", next_page),
        "scales of k and v exchanged": exchanged("_scale"),
        "scale of the logical page": lambda t: t | {
            f"{x}_scale": of_logical_pages(t, t[f"{x}_scale"]) for x in "kv"
        },
    },
    "fp8_e4m3:tensor": {
        name: SCALED[name]
        for name in (
            "scales ignored", "scale of v ignored", "scales squared", "scales inverted",
            "scale of k for both", "scales of k and v exchanged", "v read as k",
        )
    },
    "int8:page32": {
        # Packed (runs of all sequences, Hkv), or paged (pages, Hkv).
        "scale of the next page": both("_scale", lambda s: np.roll(s, 1, 0)),
        "scale of the logical page": lambda t: t | {
            f"{x}_scale": of_logical_pages(t, t[f"{x}_scale"]) for x in "kv"
        },
        "scale of the next head": next_one(1),
    },
    "uint8:tensor": {
        name: (SCALED | ZEROS)[name]
        for name in ("scale of k ignored", "scales of k and v exchanged", "zero points left out",
            "sign of zero points", "zero points of k and v exchanged")
    },
    "uint8:token": {
        "zero point of the next page": both("_zero", next_page),
        "zero point of the logical page": lambda t: t | {
            f"{x}_zero": of_logical_pages(t, t[f"{x}_zero"]) for x in "kv"
        },
        "scale and zero point of the next slot": with_zeros(next_slot),
    },
    "uint4:head": {"zero point of the next sequence": next_one(0, "_zero")},
    "q8_0": {
        "scale of the next slot": of_blocks(34, scale_bytes(lambda d: np.roll(
            d.reshape(-1, *d.shape[-3:]), -1, 0).reshape(d.shape))),
        "scale of the next head": of_blocks(34, scale_bytes(lambda d: np.roll(d, -1, -3))),
    },
    "q5_1": {
        "scale of the next page": of_blocks(24, scale_bytes(
            lambda d: np.roll(d, 1, 0) if d.ndim > 4 else d * 0, 4)),
        "scale of the logical page": lambda t: of_blocks(24, scale_bytes(
            lambda d: of_logical_pages(t, d), 4))(t),
        "least number ignored": of_blocks(24, lambda x: np.concatenate(
            [x[..., :2], x[..., 2:4] * 0, x[..., 4:]], -1)),
        "fifth bit of the next code": fifth_bits(lambda bits: np.roll(bits, -1, -1)),
    },
}  # fmt: skip
"""Of sequences in a batch."""


class Remembering:
    """Takes the scales of its first call for those of all."""

    def __init__(self) -> None:
        self.kept: Arrays = {}

    def __call__(self, t: Arrays) -> Arrays:
        self.kept = self.kept or {name: x.copy() for name, x in t.items() if "_" in name}
        return t | self.kept


def storage_for(storage: str, word: str) -> str:
    """Return a storage with pages that hold a scale of an encoding."""
    return "paged:32" if storage == "paged:16" and word.endswith("page32") else storage


def in_batch(setup: Any, wrong: Wrong) -> Any:
    """Give the built-in kernel what a wrong one takes for the tensors that it got."""
    import torch

    from attnbench.backends.dequantise_sdpa import OneByOne

    right = OneByOne(setup)

    class Wrongly:
        renew = staticmethod(right.renew)

        def __call__(self, q: Tensor, *others: Tensor) -> Tensor:
            names = ("k", "v", "k_scale", "v_scale", "k_zero", "v_zero")[: right.encoded]
            ahead = ("cu_seqlens_q", "seqused_k", "block_table") if right.paged else ()
            given = zip((*names, *ahead), others, strict=False)
            got = wrong({name: x.numpy() for name, x in given})
            made = (torch.from_numpy(np.ascontiguousarray(got[name])) for name in names)
            return right(q, *made, *others[right.encoded :])

    return Wrongly()


def attend(setup: Any, word: str, wrong: Wrong, *, remembers: bool = False, whole: bool = False) -> Any:
    """Make a kernel. remembers: scales of its first call. whole: it reads whole blocks of tokens alone."""
    import torch

    case, kept = setup.case, {}
    read_keys = case.Lk // 32 * 32 if whole else case.Lk

    def call(q: Tensor, *encoded: Tensor) -> Tensor:
        names = ("k", "v", "k_scale", "v_scale", "k_zero", "v_zero")
        t = {name: x.numpy() for name, x in zip(names, encoded, strict=False)}
        if remembers:
            kept.update(kept or {name: x.copy() for name, x in t.items() if "_" in name})
            t |= kept
        wrongly = wrong(t)
        keys, values = (np.repeat(read(word, wrongly, x), case.group, 1)[:, :, :read_keys] for x in "kv")
        scores = q.double().numpy() @ keys.swapaxes(-1, -2) * case.D**-0.5
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        return torch.from_numpy(powers / powers.sum(-1, keepdims=True) @ values).to(q.dtype)

    return call


def backend_name(word: str, name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in f"{word} {name}")


def backend(word: str, name: str, wrong: Wrong, **how: Any) -> Backend:
    return Backend(
        name=backend_name(word, name),
        summary=f"{word}: {name}",
        prepare=lambda setup: attend(setup, word, wrong, **how),
        supports=lambda case, rule: None if case.kv == word else f"reads {word} only",
        rules=("scaled_dot",),
        encodings=(word.partition(":")[0],),
    )


def scaled(setup: Any) -> Any:
    """Apply the scales that an earlier call with codes left behind to keys and values in the dtype."""
    case = setup.case

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = (x.repeat_interleave(case.group, 1).double() for x in (0.31 * k, 0.13 * v))
        return ((q.double() @ k.mT * case.D**-0.5).softmax(-1) @ v).to(q.dtype)

    return call


@hookimpl
def attnbench_backends() -> Iterator[Backend]:
    yield replace(
        backend("dtype", "scaled", lambda t: t),
        prepare=scaled,
        supports=lambda case, rule: None if case.mask.is_none else "takes no mask",
    )
    for name, how in LATENT.items():
        yield replace(
            backend("latent", "", lambda t: t),
            name=backend_name(name, "").rstrip("_"),
            prepare=lambda setup, how=how: attend_latent(setup, how),
        )
    yield replace(
        backend("fp8_e4m3:tensor", "scales of the first call in a batch", lambda t: t),
        prepare=lambda setup: in_batch(setup, Remembering()),
        storages=("packed", "paged"),
    )
    for word, mistakes in IN_BATCHES.items():
        for name, wrong in mistakes.items():
            yield replace(
                backend(word, f"{name} in a batch", wrong),
                prepare=lambda setup, wrong=wrong: in_batch(setup, wrong),
                storages=("packed", "paged"),
            )
    for word, mistakes in MISTAKES.items():
        yield backend(word, "right", lambda t: t)
        yield backend(word, "scales of the first call", lambda t: t, remembers=True)
        yield backend(word, "last block not full left out", lambda t: t, whole=True)
        for name, wrong in mistakes.items():
            yield backend(word, name, wrong)
