"""q8_0, q4_0 and q5_1: blocks of 32 features in bytes, as llama.cpp holds them: float16 scales, then codes.

The formulas are public: ``ggml-common.h`` and ``ggml-quants.c`` of github.com/ggml-org/ggml. k and v are
bytes, (B, Hkv, L, D/32 · bytes of a block); features 32n to 32n + 31 lie in block n.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from attnbench.types.encoding import Encoding, Written

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from attnbench.types.case import Case
    from attnbench.types.operation import TensorSpec

    Specs = tuple[TensorSpec, ...]
    Wide = NDArray[np.float64]
    Bytes = NDArray[np.uint8]

BLOCK = 32


def _q8_0(blocks: Wide) -> tuple[Wide, Bytes]:
    """Return the scale and the 32 bytes of a block: d = largest magnitude / 127, codes from -127 to 127."""
    import numpy as np

    d = np.abs(blocks).max(axis=-1, keepdims=True) / 127
    codes = np.rint(blocks / np.where(d == 0, 1, d))
    return d, codes.astype(np.int8).view(np.uint8)


def _of_q8_0(codes: Bytes) -> Wide:
    import numpy as np

    return codes.view(np.int8).astype(float)


def _q4_0(blocks: Wide) -> tuple[Wide, Bytes]:
    """Return the scale and the 16 bytes of each block: d = the number of largest magnitude / -8.

    Codes are from 0 to 15, for -8 to 7. Byte i has number i in its low bits and number i + 16 above.
    """
    import numpy as np

    place = np.abs(blocks).argmax(axis=-1)[..., None]
    d = np.take_along_axis(blocks, place, axis=-1) / -8
    codes = np.floor(blocks / np.where(d == 0, 1, d) + 8.5).clip(0, 15).astype(np.uint8)
    return d, (codes[..., :16] | (codes[..., 16:] << 4)).astype(np.uint8)


def _of_q4_0(codes: Bytes) -> Wide:
    import numpy as np

    return np.concatenate([codes & 15, codes >> 4], axis=-1).astype(float) - 8


def _blocks(
    name: str,
    summary: str,
    bytes_of_codes: int,
    write: Callable[[Wide], tuple[Wide, Bytes]],
    read: Callable[[Bytes], Wide],
    *,
    mirrors: bool,
    codes_of: Callable[[Wide], Bytes],
    ends: tuple[float, float],
) -> Encoding:
    size = 2 + bytes_of_codes

    def tensors(case: Case, specs: Specs) -> Specs:
        return tuple(
            replace(spec, kind="uint8", shape=(*spec.shape[:3], spec.shape[3] // BLOCK * size))
            for spec in specs
        )

    def encode(case: Case, specs: Specs, numbers: Sequence[Wide]) -> Sequence[Bytes]:
        import numpy as np

        stored = []
        for array in numbers:
            d, codes = write(array.reshape(*array.shape[:3], array.shape[3] // BLOCK, BLOCK))
            scale = np.ascontiguousarray(d.astype(np.float16)).view(np.uint8)
            blocks = np.concatenate([scale, codes], axis=-1)
            stored.append(blocks.reshape(*blocks.shape[:3], blocks.shape[3] * size))
        return stored

    def decode(case: Case, specs: Specs, stored: Sequence[Bytes]) -> Sequence[Wide]:
        import numpy as np

        numbers = []
        for spec, array in zip(specs, stored, strict=True):
            blocks = array.reshape(*spec.shape[:3], spec.shape[3] // BLOCK, size)
            d = np.ascontiguousarray(blocks[..., :2]).view(np.float16).astype(float)
            numbers.append((read(np.ascontiguousarray(blocks[..., 2:])) * d).reshape(spec.shape))
        return numbers

    def settle(
        case: Case, specs: Specs, numbers: Sequence[Wide], stored: Sequence[Bytes], written: Written
    ) -> Sequence[Bytes]:
        import numpy as np

        settled = []
        for array, given in zip(numbers, stored, strict=True):
            blocks = array.reshape(*array.shape[:3], array.shape[3] // BLOCK, BLOCK)
            got = np.asarray(given).astype(np.uint8).reshape(*blocks.shape[:4], size)
            exact, _ = write(np.nan_to_num(blocks))
            exact = np.where(np.isnan(blocks).any(-1, keepdims=True), np.nan, exact)
            d = np.ascontiguousarray(got[..., :2]).view(np.float16)
            scale = _settled_scale(d, exact)
            read_back = read(np.ascontiguousarray(got[..., 2:]))
            with np.errstate(all="ignore"):
                # By the scale that was stored, or by that before it was rounded, as llama.cpp has it.
                near = [
                    np.abs(read_back - (blocks / one).clip(*ends)) <= 0.5 + written.steps + 127 * 2.0**-21
                    for one in (d.astype(np.float64), exact)
                ]
                nearest = np.rint(np.nan_to_num(blocks / exact).clip(*ends))
            free = ~np.isfinite(exact) | (exact == 0)
            codes = np.where(near[0] | near[1], read_back, np.where(free, read_back, nearest))
            codes = np.where(exact == 0, 0.0, codes)
            whole = [np.ascontiguousarray(scale).view(np.uint8), codes_of(codes)]
            settled.append(np.concatenate(whole, axis=-1).reshape(np.shape(given)))
        return settled

    return Encoding(
        name=name,
        summary=summary,
        tensors=tensors,
        encode=encode,
        decode=decode,
        mirrors=mirrors,
        refuses=lambda case: (
            f"D and Dv must be multiples of {BLOCK}" if case.D % BLOCK or case.Dv % BLOCK else None
        ),
        settle=settle,
        largest=65504.0 * max(ends),
        baseline="dequantise_sdpa",
    )


def _settled_scale(d: NDArray[np.float16], exact: Wide) -> NDArray[np.float16]:
    """Return scales as they were written where they are right, else the right ones; NaN where NaN is."""
    import numpy as np

    with np.errstate(all="ignore"):
        off = np.abs(d.astype(np.float64) - exact)
        # Half a gap; a little more, since float32 comes before.
        right = off <= np.maximum(1.001 * 2.0**-11 * np.abs(exact), 1.001 * 2.0**-25)
        right |= np.isnan(d) & np.isnan(exact)
        return np.where(right, d, exact.astype(np.float16))


def _in_q8_0(codes: Wide) -> Bytes:
    import numpy as np

    return codes.astype(np.int8).view(np.uint8)


def _in_q4_0(codes: Wide) -> Bytes:
    import numpy as np

    nibbles = (codes + 8).astype(np.uint8)
    return (nibbles[..., :16] | (nibbles[..., 16:] << 4)).astype(np.uint8)


Q8_0 = _blocks(
    "q8_0",
    "llama.cpp's blocks of 32 int8 codes, 34 bytes each",
    32,
    _q8_0,
    _of_q8_0,
    mirrors=True,
    codes_of=_in_q8_0,
    ends=(-127.0, 127.0),
)
Q4_0 = _blocks(
    "q4_0",
    "llama.cpp's blocks of 32 codes of 4 bits, 18 bytes each",
    16,
    _q4_0,
    _of_q4_0,
    mirrors=False,
    codes_of=_in_q4_0,
    ends=(-8.0, 7.0),
)


Q5_1_BYTES = 24
"""A scale d, the least number m, a bit of each code, and 16 bytes with the lower four bits of codes."""


def _tensors_of_q5_1(case: Case, specs: Specs) -> Specs:
    return tuple(
        replace(spec, kind="uint8", shape=(*spec.shape[:3], spec.shape[3] // BLOCK * Q5_1_BYTES))
        for spec in specs
    )


def _write_q5_1(case: Case, specs: Specs, numbers: Sequence[Wide]) -> Sequence[Bytes]:
    """Return blocks with m = the least number and d = (the largest - m) / 31; codes from 0 to 31.

    Byte i has the lower bits of code i, and above them those of code i + 16. Bit i of the four bytes before
    is the fifth bit of code i.
    """
    import numpy as np

    stored = []
    for array in numbers:
        blocks = array.reshape(*array.shape[:3], array.shape[3] // BLOCK, BLOCK)
        m = blocks.min(-1, keepdims=True)
        d = (blocks.max(-1, keepdims=True) - m) / 31
        codes = np.floor((blocks - m) / np.where(d == 0, 1, d) + 0.5).clip(0, 31).astype(np.uint8)
        fifth = np.packbits(codes >> 4, axis=-1, bitorder="little")
        low = (codes[..., :16] & 15) | ((codes[..., 16:] & 15) << 4)
        halves = np.ascontiguousarray(np.concatenate([d, m], -1).astype(np.float16)).view(np.uint8)
        whole = np.concatenate([halves, fifth, low.astype(np.uint8)], -1)
        stored.append(whole.reshape(*blocks.shape[:3], blocks.shape[3] * Q5_1_BYTES))
    return stored


def _read_q5_1(case: Case, specs: Specs, stored: Sequence[Bytes]) -> Sequence[Wide]:
    import numpy as np

    numbers = []
    for spec, array in zip(specs, stored, strict=True):
        blocks = array.reshape(*spec.shape[:3], spec.shape[3] // BLOCK, Q5_1_BYTES)
        halves = np.ascontiguousarray(blocks[..., :4]).view(np.float16).astype(float)
        low = np.concatenate([blocks[..., 8:] & 15, blocks[..., 8:] >> 4], -1)
        codes = low + 16.0 * np.unpackbits(blocks[..., 4:8], axis=-1, bitorder="little")
        numbers.append((codes * halves[..., :1] + halves[..., 1:]).reshape(spec.shape))
    return numbers


Q5_1 = Encoding(
    name="q5_1",
    summary="llama.cpp's blocks of 32 codes of 5 bits with their least number, 24 bytes each",
    tensors=_tensors_of_q5_1,
    encode=_write_q5_1,
    decode=_read_q5_1,
    mirrors=False,
    # A block with a number below 0 does not hold 0 as 0, which one_hot needs.
    keeps=("large_logits", "even"),
    refuses=lambda case: (
        f"D and Dv must be multiples of {BLOCK}" if case.D % BLOCK or case.Dv % BLOCK else None
    ),
    baseline="dequantise_sdpa",
)
