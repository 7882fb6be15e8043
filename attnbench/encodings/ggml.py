"""q8_0, q4_0 and q5_1: blocks of 32 features in bytes, as llama.cpp holds them: float16 scales, then codes.

The formulas are public: ``ggml-common.h`` and ``ggml-quants.c`` of github.com/ggml-org/ggml. k and v are
bytes, (B, Hkv, L, D/32 · bytes of a block); features 32n to 32n + 31 lie in block n.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnbench.types.encoding import KEPT, Encoding, Written

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from attnbench.types.case import Case
    from attnbench.types.operation import TensorSpec

    Specs = tuple[TensorSpec, ...]
    Wide = NDArray[np.float64]
    Bytes = NDArray[np.uint8]

BLOCK = 32
BLOCKS_AT_ONCE = 1 << 12
"""Of a long cache: so many blocks fit the processor's cache, with what is made of them on the way."""


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


def _q5_1(blocks: Wide) -> tuple[Wide, Bytes]:
    """Return d and m of a block and its 20 bytes: m = the least number, d = (the largest - m) / 31.

    Codes are from 0 to 31. Bit i of the first four bytes is the fifth bit of code i. Of the others byte i has
    the lower bits of code i, and above them those of code i + 16.
    """
    import numpy as np

    m = blocks.min(axis=-1, keepdims=True)
    d = (blocks.max(axis=-1, keepdims=True) - m) / 31
    codes = np.floor((blocks - m) / np.where(d == 0, 1, d) + 0.5).clip(0, 31)
    return np.concatenate([d, m], axis=-1), _in_q5_1(codes)


def _of_q5_1(codes: Bytes) -> Wide:
    import numpy as np

    low = np.concatenate([codes[..., 4:] & 15, codes[..., 4:] >> 4], axis=-1)
    numbers: Wide = low + 16.0 * np.unpackbits(codes[..., :4], axis=-1, bitorder="little")
    return numbers


def _blocks(
    name: str,
    summary: str,
    bytes_of_codes: int,
    write: Callable[[Wide], tuple[Wide, Bytes]],
    read: Callable[[Bytes], Wide],
    *,
    codes_of: Callable[[Wide], Bytes],
    ends: tuple[float, float],
    halves: int = 1,
    keeps: tuple[str, ...] = (*KEPT, "small_values"),
    **more: Any,
) -> Encoding:
    """Make an encoding of blocks that begin with so many float16: the scale, and a number that is added.

    write: gives these of blocks (…, 32), before they are rounded, and the bytes of codes. read: gives the
    steps that bytes mean. codes_of: is its inverse. ends: of these steps.
    """
    head = 2 * halves
    size = head + bytes_of_codes

    def tensors(case: Case, specs: Specs) -> Specs:
        return tuple(
            replace(spec, kind="uint8", shape=(*spec.shape[:3], spec.shape[3] // BLOCK * size))
            for spec in specs
        )

    def joined(front: Any, codes: Bytes) -> Bytes:
        import numpy as np

        scale = np.ascontiguousarray(front.astype(np.float16)).view(np.uint8)
        return np.concatenate([scale, codes], axis=-1)

    def encode(case: Case, specs: Specs, numbers: Sequence[Wide]) -> Sequence[Bytes]:
        import numpy as np

        stored = []
        for spec, array in zip(tensors(case, specs), numbers, strict=True):
            blocks = array.reshape(-1, BLOCK)
            made = np.empty((len(blocks), size), np.uint8)
            for at in _pieces(len(blocks)):
                made[at] = joined(*write(blocks[at]))
            stored.append(made.reshape(spec.shape))
        return stored

    def decode(case: Case, specs: Specs, stored: Sequence[Bytes]) -> Sequence[Wide]:
        import numpy as np

        numbers = []
        for spec, array in zip(specs, stored, strict=True):
            blocks = array.reshape(-1, size)
            made = np.empty((len(blocks), BLOCK))
            for at in _pieces(len(blocks)):
                d, m = _scale_and_least(np.ascontiguousarray(blocks[at, :head]).view(np.float16))
                made[at] = read(np.ascontiguousarray(blocks[at, head:])) * d + m
            numbers.append(made.reshape(spec.shape))
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
            front = np.ascontiguousarray(got[..., :head]).view(np.float16)
            read_back = read(np.ascontiguousarray(got[..., head:]))
            with np.errstate(all="ignore"):
                # By the scale that was stored, or by that before it was rounded, as llama.cpp has it.
                stored_steps, steps = (
                    ((blocks - m) / d).clip(*ends)
                    for d, m in (_scale_and_least(front), _scale_and_least(exact))
                )
                near = [
                    np.abs(read_back - one) <= 0.5 + written.steps + 127 * 2.0**-21
                    for one in (stored_steps, steps)
                ]
                nearest = np.rint(np.nan_to_num(steps))
            d, _ = _scale_and_least(exact)
            codes = np.where(near[0] | near[1] | ~np.isfinite(d), read_back, nearest)
            codes = np.where(d == 0, 0.0, codes)
            whole = joined(_settled_scale(front, exact), codes_of(codes))
            settled.append(whole.reshape(np.shape(given)))
        return settled

    return Encoding(
        name=name,
        summary=summary,
        tensors=tensors,
        encode=encode,
        decode=decode,
        refuses=lambda case: (
            f"D and Dv must be multiples of {BLOCK}" if case.D % BLOCK or case.Dv % BLOCK else None
        ),
        settle=settle,
        baseline="dequantise_sdpa",
        keeps=keeps,
        **more,
    )


def _pieces(count: int) -> Iterator[slice]:
    """Yield where to compute at once, of so many blocks."""
    return (slice(start, start + BLOCKS_AT_ONCE) for start in range(0, count, BLOCKS_AT_ONCE))


def _scale_and_least(halves: NDArray[Any]) -> tuple[Wide, Wide]:
    """Return the scale of each block, and the number that is added: 0 in blocks without one."""
    wide = halves.astype(float)
    return wide[..., :1], wide[..., 1:].sum(axis=-1, keepdims=True)


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


def _in_q5_1(codes: Wide) -> Bytes:
    import numpy as np

    whole = codes.astype(np.uint8)
    low = (whole[..., :16] & 15) | ((whole[..., 16:] & 15) << 4)
    return np.concatenate([np.packbits(whole >> 4, axis=-1, bitorder="little"), low], axis=-1)


Q8_0 = _blocks(
    "q8_0",
    "llama.cpp's blocks of 32 int8 codes, 34 bytes each",
    32,
    _q8_0,
    _of_q8_0,
    codes_of=_in_q8_0,
    ends=(-127.0, 127.0),
    largest=65504.0 * 127,
)
Q4_0 = _blocks(
    "q4_0",
    "llama.cpp's blocks of 32 codes of 4 bits, 18 bytes each",
    16,
    _q4_0,
    _of_q4_0,
    codes_of=_in_q4_0,
    ends=(-8.0, 7.0),
    largest=65504.0 * 7,
    mirrors=False,
)
Q5_1 = _blocks(
    "q5_1",
    "llama.cpp's blocks of 32 codes of 5 bits with their least number, 24 bytes each",
    20,
    _q5_1,
    _of_q5_1,
    codes_of=_in_q5_1,
    ends=(0.0, 31.0),
    halves=2,
    largest=65504.0,
    mirrors=False,
    # A block with a number below 0 does not hold 0 as 0, which one_hot needs.
    keeps=("large_logits", "even", "small_values"),
)
