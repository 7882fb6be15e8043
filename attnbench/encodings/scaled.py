"""Codes with scales in tensors of their own: a number is its code times the scale that it shares.

The codes of k and v have their shapes, or half as many bytes along the features where a byte holds two codes.
``k_scale`` and ``v_scale`` are float32. With zero points ``k_zero`` and ``v_zero`` follow, uint8 in the shape
of the scales: a number is (code - zero) · scale.

In a batch the grain ``tensor`` is a scale of the whole cache, one for all sequences, as engines have it that
calibrate once. It is there before any number is, so it follows from none, and is drawn with its zero point;
numbers beyond the largest code are held as the largest.

The least codes of two's complement, -128 and -8, are left out: minus them is no code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from attnbench.types.encoding import KEPT, Encoding, Written, grain_of, is_encoded
from attnbench.types.operation import Kind, TensorSpec
from attnbench.types.problem import ProblemCase
from attnbench.types.storage import KEYS_OF_RUN, RUN, sizes_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from attnbench.types.case import Case

    Specs = tuple[TensorSpec, ...]
    Wide = NDArray[np.float64]

BLOCK = 32
ROUNDED = 2.0**-22
"""A writer in float32 may be off by as much of a number: two gaps, of a scale, a quotient and a product."""
SHARED: dict[str, tuple[int, ...]] = {
    "head": (2, 3), "token": (3,), "channel": (2,), "block32": (4,), "page32": (3, 4),
    "tensor": (0, 1, 2, 3),
}  # fmt: skip
"""The axes over which numbers share a scale, by grain: of (B, Hkv, L, D), of blocks (B, Hkv, L, D/32, 32), of
runs of keys (B, Hkv, L/32, 32, D)."""
_ONE_NUMBER = "-"
"""The letter of the axis of a scale of a whole cache."""
OF_CACHE = ((0.12, 0.2), (0.25, 0.45))
"""Where the scales of a whole cache lie, one for keys and one for values: unlike, and far from 1. float8_e4m3
then ends at 54 or beyond, which ordinary numbers hardly reach."""
ENDS_OF_BITS = {8: 250.0, 4: 100.0}
"""Integers end at so many times these numbers, 30 to 112 or 12 to 45; a scale is an end over the largest
code. Few bits have a smaller error where they cut the largest numbers off."""
ZERO_OF_CACHE = ((0.3, 0.42), (0.58, 0.7))
"""Where zero points of a whole cache lie, as shares of the largest code: unlike, and none in the middle."""


def _of_cache(case: ProblemCase, code: NumberCode, side: str) -> tuple[float, float]:
    """Return the scale and the zero point of all keys, or of all values, of a draw."""
    import numpy as np

    rng = np.random.default_rng(case.cache_seed)
    end, zero = (
        [rng.uniform(*ends) for ends in rng.permutation(each)]["kv".index(side)]
        for each in (OF_CACHE, ZERO_OF_CACHE)
    )
    if code.order:
        return end, 0.0
    # With a zero point codes span both signs.
    span = (1 + code.zeros) * ENDS_OF_BITS[8 // code.in_a_byte] * end
    return span / code.largest, zero * code.largest * code.zeros


def _has_scale_of_cache(case: Case) -> bool:
    """Return whether a case is a sequence whose scale is that of the whole cache."""
    return isinstance(case, ProblemCase) and grain_of(case) == "tensor"


def _grouped(case: Case, shape: Sequence[int], axes: str) -> tuple[tuple[int, ...], str]:
    """Return a shape and its letters with what shares a scale apart: blocks of features, or runs of keys."""
    B, heads, keys, features = shape
    match grain_of(case):
        case "block32":
            return (B, heads, keys, features // BLOCK, BLOCK), f"{axes[:3]}n{axes[3]}"
        case "page32":
            runs = -(-keys // KEYS_OF_RUN)
            return (B, heads, runs, KEYS_OF_RUN, features), f"{axes[:2]}{RUN}{axes[2:]}"
        case _:
            return tuple(shape), axes


def _in_groups(case: Case, array: Wide) -> Wide:
    """Return numbers (B, Hkv, L, D) in the shape of :func:`_grouped`; a short run ends in zeros."""
    import numpy as np

    shape, _ = _grouped(case, array.shape, "bgjd")
    if grain_of(case) == "page32" and array.shape[2] % KEYS_OF_RUN:
        array = np.pad(array, [(0, 0), (0, 0), (0, -array.shape[2] % KEYS_OF_RUN), (0, 0)])
    return array.reshape(shape)


def _ungrouped(spec: TensorSpec, grouped: NDArray[Any]) -> NDArray[Any]:
    """Undo :func:`_in_groups`."""
    B, heads, keys, features = spec.shape
    return grouped.reshape(B, heads, -1, features)[:, :, :keys]


def _shape_of_scales(case: Case, spec: TensorSpec) -> tuple[int, ...]:
    """Return the shape of scales that multiplies grouped numbers."""
    shape, _ = _grouped(case, spec.shape, spec.axes)
    shared = SHARED[grain_of(case)]
    return tuple(1 if axis in shared else size for axis, size in enumerate(shape))


def scale_spec(case: Case, spec: TensorSpec, name: str, kind: Kind) -> TensorSpec:
    """Return a tensor with a number for each group, as the scales: without the axes that share one."""
    (shape, axes), shared = _grouped(case, spec.shape, spec.axes), SHARED[grain_of(case)]
    kept = [axis for axis in range(len(shape)) if axis not in shared]
    sizes = tuple(shape[axis] for axis in kept) or (1,)
    letters = "".join(axes[axis] for axis in kept) or _ONE_NUMBER
    return TensorSpec(f"{spec.name}_{name}", sizes, kind, axes=letters)


@dataclass(frozen=True)
class NumberCode:
    """A code of one number. The functions are of whole arrays."""

    kind: Kind
    largest: float
    """The largest number that a code stands for. The smallest is minus that, or 0 with zero points."""
    write: Callable[[Wide], NDArray[Any]]
    """The nearest codes of numbers between these two."""
    read: Callable[[NDArray[Any]], Wide]
    in_a_byte: int = 1
    """How many codes a byte holds, one after the other along the features, the first in the low bits."""
    zeros: bool = False
    """Whether there are zero points."""
    order: Callable[[NDArray[Any]], Wide] | None = None
    """Numbers codes in the order of what they stand for, by steps of 1; None where they do so themselves."""

    def scale_and_zero(self, grouped: Wide, shared: tuple[int, ...]) -> tuple[Wide, Wide]:
        """Return the scale of each group and its zero point, not rounded; of zeros the scale is 1."""
        import numpy as np

        highest = grouped.max(axis=shared, keepdims=True, initial=0.0)
        lowest = grouped.min(axis=shared, keepdims=True, initial=0.0)
        span = highest - lowest if self.zeros else np.maximum(highest, -lowest)
        scale = np.where(span == 0, 1, span / self.largest)
        return scale, -lowest / scale if self.zeros else np.zeros_like(scale)

    def clipped(self, steps: Wide) -> Wide:
        """Return numbers of steps as the nearest that a code can stand for, in their own memory."""
        import numpy as np

        return np.clip(steps, 0.0 if self.zeros else -self.largest, self.largest, out=steps)


def encoding(name: str, summary: str, code: NumberCode) -> Encoding:
    """Make an encoding of a code."""

    def tensors(case: Case, specs: Specs) -> Specs:
        shapes = [(*spec.shape[:3], spec.shape[3] // code.in_a_byte) for spec in specs]
        codes = [
            replace(spec, kind=code.kind, shape=shape) for spec, shape in zip(specs, shapes, strict=True)
        ]
        scales = [scale_spec(case, spec, "scale", "float32") for spec in specs]
        zeros = [scale_spec(case, spec, "zero", "uint8") for spec in specs] if code.zeros else []
        return (*codes, *scales, *zeros)

    def encode(case: Case, specs: Specs, numbers: Sequence[Wide]) -> Sequence[Any]:
        import numpy as np

        codes, scales, zeros = [], [], []
        for spec, array in zip(specs, numbers, strict=True):
            grouped = _in_groups(case, array)
            wide, zero = code.scale_and_zero(grouped, SHARED[grain_of(case)])
            if isinstance(case, ProblemCase) and _has_scale_of_cache(case):
                wide, zero = (np.full_like(wide, one) for one in _of_cache(case, code, spec.name))
            scale = wide.astype(np.float32)
            steps = grouped / scale.astype(np.float64)
            if code.zeros:
                zero = np.rint(zero * wide / scale.astype(np.float64))
                np.rint(steps, out=steps)
                steps += zero
                zeros.append(zero.astype(np.uint8).reshape(scale_spec(case, spec, "zero", "uint8").shape))
            codes.append(code.write(_ungrouped(spec, code.clipped(steps))))
            scales.append(scale.reshape(scale_spec(case, spec, "scale", "float32").shape))
        return [*codes, *scales, *zeros]

    def decode(case: Case, specs: Specs, stored: Sequence[Any]) -> Sequence[Any]:
        count = len(specs)
        codes, scales, zeros = stored[:count], stored[count : 2 * count], stored[2 * count :]
        numbers = []
        for place, spec in enumerate(specs):
            shape = _shape_of_scales(case, spec)
            steps = _in_groups(case, code.read(codes[place]))
            if code.zeros:
                steps -= zeros[place].reshape(shape).astype(float)
            steps *= scales[place].reshape(shape).astype(float)
            numbers.append(_ungrouped(spec, steps))
        return numbers

    def settle(
        case: Case, specs: Specs, numbers: Sequence[Wide], stored: Sequence[Any], written: Written
    ) -> Sequence[Any]:
        import numpy as np

        count = len(specs)
        codes: list[Any] = []
        scales: list[Any] = []
        zeros: list[Any] = []
        for place, (spec, array) in enumerate(zip(specs, numbers, strict=True)):
            of_scales, grouped = _shape_of_scales(case, spec), _in_groups(case, array)
            wide, low = code.scale_and_zero(grouped, SHARED[grain_of(case)])
            scale = np.asarray(stored[count + place]).reshape(of_scales).astype(np.float64)
            settled = scale
            if not written.given:
                empty = np.asarray(~grouped.any(SHARED[grain_of(case)], keepdims=True))
                settled = settled_scale(scale, wide, empty=empty)
            scales.append(settled.astype(np.float32).reshape(np.shape(stored[count + place])))
            # Codes are those of the scale and zero point that stand there, or of the right ones, so that a
            # wrong scale is told of alone.
            used = np.where(np.isfinite(scale) & (scale > 0), scale, settled)
            zero = right = np.zeros_like(used)
            if code.zeros:
                zero = np.asarray(stored[2 * count + place]).reshape(of_scales).astype(np.float64)
                with np.errstate(all="ignore"):
                    right = zero if written.given else settled_zero(zero, low * wide / used)
                zeros.append(right.astype(np.uint8).reshape(np.shape(stored[2 * count + place])))
            given = np.asarray(stored[place]).astype(code.kind)
            near = []
            for one, middle in ((used, zero), (settled, right)):
                with np.errstate(all="ignore"):
                    steps = _ungrouped(spec, grouped / one + middle)
                # What a scale of NaN multiplies is NaN whatever the code.
                lost = _ungrouped(spec, np.isnan(grouped) & np.isfinite(one))
                near.append(_settled_codes(code, given, steps, lost, written.steps))
            codes.append(np.where(near[1] == given, given, near[0]))
        return [*codes, *scales, *zeros]

    def refuses(case: Case) -> str | None:
        if grain_of(case) == "tensor" and case.batch and not is_encoded(case):
            return "sequences of unlike lengths have a scale each: take the grain head"
        page = sizes_of(case).get("page", KEYS_OF_RUN)
        if grain_of(case) == "page32" and page != KEYS_OF_RUN:
            return f"{KEYS_OF_RUN} keys share a scale: take pages of {KEYS_OF_RUN}, not of {page}"
        least = BLOCK if grain_of(case) == "block32" else code.in_a_byte
        if case.D % least or case.Dv % least:
            return f"D and Dv must be multiples of {least}"
        return None

    return Encoding(
        name=name,
        summary=summary,
        tensors=tensors,
        encode=encode,
        decode=decode,
        grains=tuple(SHARED),
        mirrors=not code.zeros,
        keeps=(*KEPT, "small_values"),
        runs=lambda case: grain_of(case) == "page32",
        given=_has_scale_of_cache,
        refuses=refuses,
        settle=settle,
        # The span of numbers of both signs is a float32 number too.
        largest=3e38 if not code.zeros else 1.5e38,
        baseline="dequantise_sdpa",
    )


def settled_scale(scale: Wide, exact: Wide, *, empty: NDArray[Any]) -> Wide:
    """Return scales as they were written where they are right, else the right ones; NaN for groups with NaN.

    exact: before they are rounded. empty: the groups of zeros, which may have any scale that is finite.
    """
    import numpy as np

    with np.errstate(all="ignore"):
        right = np.abs(scale - exact) <= np.maximum(ROUNDED * np.abs(exact), 2.0**-149)
    right |= (np.isnan(scale) & np.isnan(exact)) | (empty & np.isfinite(scale) & (scale >= 0))
    return np.where(right, scale, exact)


def settled_zero(zero: Wide, exact: Wide) -> Wide:
    """Return zero points as they were written where they are the nearest, else the nearest."""
    import numpy as np

    nearest = np.rint(np.nan_to_num(exact).clip(0, 255))
    free = ~np.isfinite(exact)
    return np.where(free | (np.abs(zero - exact) <= 0.5 + 255 * ROUNDED), zero, nearest)


def _settled_codes(
    code: NumberCode, given: NDArray[Any], steps: Wide, lost: NDArray[np.bool_], further: int
) -> NDArray[Any]:
    """Return codes as they were written where they are right, else the nearest.

    steps: numbers over their scales, with their zero points; NaN where any code is right. lost: the NaN among
    numbers, which float8 has codes for. further: how many steps from the nearest a code may be.
    """
    import numpy as np

    known = np.isfinite(steps)
    wanted = code.clipped(np.where(known, steps, 0))
    wanted = np.where(np.isinf(steps), code.clipped(np.nan_to_num(steps)), wanted)
    best = code.write(np.rint(wanted) if code.zeros else wanted)
    order = code.order or code.read
    with np.errstate(invalid="ignore"):
        slack = ROUNDED * np.abs(wanted) + (255 * ROUNDED if code.zeros else 0)
        off, least = np.abs(code.read(given) - wanted), np.abs(code.read(best) - wanted)
        right = (off <= least + 2 * slack) | (np.abs(order(given) - order(best)) <= further)
    free = np.isnan(steps)
    if code.order:
        best = np.where(lost, 0x7F, best).astype(best.dtype)
        free &= ~lost | np.isnan(code.read(given))
        right &= ~lost
    right |= free
    if code.in_a_byte == 1:
        return np.where(right, given, best)
    low, high = right[..., ::2], right[..., 1::2]
    return np.where(low, given & 15, best & 15) | np.where(high, given & 0xF0, best & 0xF0)


def _integers(kind: str, numbers: Wide) -> NDArray[Any]:
    import numpy as np

    return np.rint(numbers).astype(kind)


def _wide(codes: NDArray[Any]) -> Wide:
    wide: Wide = codes.astype(float)
    return wide


def _two_in_a_byte(numbers: Wide) -> NDArray[Any]:
    import numpy as np

    nibbles = np.rint(numbers).astype(np.int16) & 15
    return (nibbles[..., ::2] | (nibbles[..., 1::2] << 4)).astype(np.uint8)


def _nibbles(codes: NDArray[Any]) -> Wide:
    """Return codes from 0 to 15, twice as many."""
    import numpy as np

    pairs = np.stack([codes & 15, codes >> 4], axis=-1).astype(float)
    return pairs.reshape(*codes.shape[:-1], 2 * codes.shape[-1])


def _signed_nibbles(codes: NDArray[Any]) -> Wide:
    unsigned = _nibbles(codes)
    return unsigned - 16 * (unsigned >= 8)


Float8 = Literal["e4m3", "e5m2"]


@cache
def float8_numbers(form: Float8) -> Wide:
    """Return the finite numbers of the codes from 0 on, in ascending order: those without a sign.

    Micikevicius and others, FP8 formats for deep learning, 2022. ``e4m3`` has no infinity, and one NaN; its
    largest number is 448. ``e5m2`` is as the formats of IEEE 754; its largest number is 57344.
    """
    import numpy as np

    bits, bias, count = (3, 7, 0x7F) if form == "e4m3" else (2, 15, 0x7C)
    codes = np.arange(count)
    exponent, fraction = codes >> bits, (codes & ((1 << bits) - 1)) / (1 << bits)
    whole = (exponent > 0) + fraction
    numbers: Wide = np.ldexp(whole, np.maximum(exponent, 1) - bias)
    return numbers


def write_float8(form: Float8, numbers: Wide) -> NDArray[Any]:
    """Return the codes of the nearest numbers, ties to the even code."""
    import numpy as np

    there = float8_numbers(form)
    middles = (there[1:] + there[:-1]) / 2
    size = np.abs(numbers)
    below = np.searchsorted(middles, size)
    tied = middles.take(below, mode="clip") == size
    codes = below + (tied & (below % 2 == 1))
    written: NDArray[Any] = (codes | np.where(np.signbit(numbers), 0x80, 0)).astype(np.uint8)
    return written


def read_float8(form: Float8, codes: NDArray[Any]) -> Wide:
    """Return the numbers of codes."""
    import numpy as np

    finite = float8_numbers(form)
    beyond = [np.inf, np.nan, np.nan, np.nan] if form == "e5m2" else [np.nan]
    size = np.concatenate([finite, beyond])[codes & 0x7F]
    numbers: Wide = size * (1 - 2 * (codes >> 7).astype(float))
    return numbers


def _order_of_float8(codes: NDArray[Any]) -> Wide:
    import numpy as np

    size = (codes & 0x7F).astype(float)
    return np.where(codes >> 7, -size, size)


def _float8(form: Float8, largest: float) -> NumberCode:
    return NumberCode(
        "uint8",
        largest,
        lambda numbers: write_float8(form, numbers),
        lambda codes: read_float8(form, codes),
        order=_order_of_float8,
    )


INT8 = encoding(
    "int8",
    "int8 codes from -127 to 127, float32 scales",
    NumberCode("int8", 127.0, lambda numbers: _integers("int8", numbers), _wide),
)
INT4 = encoding(
    "int4",
    "codes from -7 to 7, two in a byte, float32 scales",
    NumberCode("uint8", 7.0, _two_in_a_byte, _signed_nibbles, in_a_byte=2),
)
UINT8 = encoding(
    "uint8",
    "codes from 0 to 255 with a zero point, float32 scales",
    NumberCode("uint8", 255.0, lambda numbers: _integers("uint8", numbers), _wide, zeros=True),
)
UINT4 = encoding(
    "uint4",
    "codes from 0 to 15 with a zero point, two in a byte, float32 scales",
    NumberCode("uint8", 15.0, _two_in_a_byte, _nibbles, in_a_byte=2, zeros=True),
)
FP8_E4M3 = encoding("fp8_e4m3", "bytes of float8_e4m3fn, float32 scales", _float8("e4m3", 448.0))
FP8_E5M2 = encoding("fp8_e5m2", "bytes of float8_e5m2, float32 scales", _float8("e5m2", 57344.0))
