"""Mistakes in reading encoded keys and values: each gives other keys and values than the stored tensors mean.

A right kernel then attends to these. So a mistake is a function of the stored tensors, and needs no kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnbench.inputs.draw import widen
from attnbench.types.encoding import encoding_name, encoding_of, grain_of
from attnbench.types.problem import encoded_specs
from attnbench.types.storage import RUN

if TYPE_CHECKING:
    from attnbench.types.case import Case
    from attnbench.types.operation import TensorSpec
    from attnbench.types.rule import Rule

Numbers = tuple[NDArray[np.float64], NDArray[np.float64]]
Tensors = dict[str, NDArray[Any]]

_SCALES = "a number is its code times the scale that it shares: docs/serving.md has the shapes"
_GRAIN = f"look at the grain of case.kv: {_SCALES}"
_ZERO = "a number is (code - zero) · scale: subtract the zero point before the product"
_BYTES = "two codes lie in a byte, the first of two neighbours in the low bits; in q4_0 and q5_1 i and i + 16"
_SIGN = "read the code by its kind: int8 and int4 have a sign in two's complement, uint8 and uint4 have none"
_BLOCK = "each block of 32 features has its own scale, float16, in front of its codes"
_FIFTH = "bit i of the four bytes behind m is the fifth bit of code i"
_LATENT = "the keys are all D features of kv, the values its first Dv"
HEAD_OF = {"q8_0": (2, 34), "q4_0": (2, 18), "q5_1": (4, 24)}
"""The bytes of a block in front of its codes, and all of them, by encoding."""
WITH_ZEROS = ("uint8", "uint4")
"""The encodings with zero points."""


@dataclass(frozen=True)
class StoredTensors:
    """The stored tensors of an input by name, with what reads them."""

    case: Case
    specs: tuple[TensorSpec, ...]
    """Of k and v, as the operation has them."""
    tensors: Tensors
    letters: dict[str, str]
    """A letter for each axis of the tensors, by name."""

    def read(self, **changed: NDArray[Any]) -> Numbers:
        """Return the keys and values that the tensors mean, with some of them changed."""
        every = self.tensors | changed
        k, v = encoding_of(self.case).decode(self.case, self.specs, list(every.values()))
        return k, v

    def axis(self, name: str, letter: str) -> int:
        """Return the axis of a letter; raises ValueError for a tensor without it."""
        return self.letters[name].index(letter)


def stored_tensors(case: Case, rule: Rule, tensors: Tensors) -> StoredTensors:
    """Return the tensors of a case's encoding; others among these are left out."""
    specs = encoded_specs(case, rule)
    own = encoding_of(case).tensors(case, specs)
    numbers = {
        spec.name: widen(tensors[spec.name], case.dtype) if spec.kind == "float" else tensors[spec.name]
        for spec in own
    }
    return StoredTensors(case, specs, numbers, {spec.name: spec.axes for spec in own})


@dataclass(frozen=True)
class EncodedMistake:
    """A mistake of kernels that read codes.

    name, summary, advice: as of a :class:`attnbench.testing.mistakes.parts.Mistake`. reads: gives the keys
    and values that the kernel takes for the right ones; raises any exception where it can't be made.
    """

    name: str
    summary: str
    advice: str
    reads: Callable[[StoredTensors], Numbers]


def _each(words: str, change: Callable[[NDArray[Any]], NDArray[Any]], sides: str = "kv") -> Any:
    """Change a tensor of each side: codes for "", else "_scale" or "_zero"."""
    return lambda s: s.read(**{f"{x}{words}": change(s.tensors[f"{x}{words}"]) for x in sides})


def _moved(letter: str, which: str, words: tuple[str, ...]) -> Any:
    """Take what belongs to another place of an axis, :func:`from_place`; words: as of :func:`_each`."""

    def reads(s: StoredTensors) -> Numbers:
        names = [f"{side}{word}" for side in "kv" for word in words]
        return s.read(
            **{name: from_place(s.tensors[name], s.axis(name, _own(letter, name)), which) for name in names}
        )

    return reads


def from_place(array: NDArray[Any], axis: int, which: str) -> NDArray[Any]:
    """Return at each place of an axis what the next or the previous place has, or the first for all.

    Raises:
        ValueError: there is one place alone.
    """
    if array.shape[axis] == 1:
        raise ValueError("there is one place alone")
    if which == "first":
        return np.broadcast_to(np.take(array, [0], axis), array.shape)
    return np.roll(array, 1 if which == "previous" else -1, axis)


def _own(letter: str, name: str) -> str:
    """Return the letter of features of a side."""
    return "e" if letter == "d" and name.startswith("v") else letter


def _exchanged(*words: str) -> Any:
    return lambda s: s.read(
        **{f"{x}{word}": s.tensors[f"{y}{word}"] for x, y in ("kv", "vk") for word in words}
    )


def _one_side(side: str, words: str) -> Any:
    return lambda s: s.read(**{f"{x}{words}": s.tensors[f"{side}{words}"] for x in "kv"})


def _times(power: int) -> Any:
    """Multiply by scales to some power in place of the first, by numbers that the codes stand for."""

    def reads(s: StoredTensors) -> Numbers:
        return s.read(**{f"{x}_scale": s.tensors[f"{x}_scale"].astype(np.float64) ** power for x in "kv"})

    return reads


def _values_are_keys(s: StoredTensors) -> Numbers:
    k, v = s.read()
    return k, k[..., : v.shape[-1]]


def _keys_are_values(s: StoredTensors) -> Numbers:
    k, v = s.read()
    if v.shape != k.shape:
        raise ValueError("values have another shape")
    return v, v


PLACES = (
    ("g", "head", "key head"),
    ("b", "batch_element", "batch element"),
    ("j", "token", "token"),
    ("n", "block", "block of 32 features"),
    (RUN, "run", "run of 32 keys"),
    ("d", "channel", "channel"),
)
"""What may have a scale of its own: its axis, its name and its words."""
OTHERS = ("next", "previous", "first")


def from_words(what: str, which: str, place: str) -> str:
    """Say that something is read from another place, as :func:`from_place` does."""
    return f"the {what} of the {which} {place}" + (" for all" if which == "first" else "")


def _of_places(what: str, words: tuple[str, ...]) -> Iterator[EncodedMistake]:
    """Yield the mistakes that read something from another place; words: as of :func:`_each`."""
    for letter, name, place in PLACES:
        for which in OTHERS:
            yield EncodedMistake(
                f"{what.replace(' ', '_')}_of_the_{which}_{name}",
                from_words(what, which, place),
                _GRAIN,
                _moved(letter, which, words),
            )


SCALES: tuple[EncodedMistake, ...] = (
    EncodedMistake("scales_ignored", "codes without their scales", _SCALES, _times(0)),
    EncodedMistake("scales_squared", "the scale is applied twice", f"apply it once: {_SCALES}", _times(2)),
    EncodedMistake("scales_inverted", "codes divided by their scales", _SCALES, _times(-1)),
    EncodedMistake(
        "scale_of_k_ignored",
        "keys without their scale",
        _SCALES,
        _each("_scale", np.ones_like, "k"),
    ),
    EncodedMistake(
        "scale_of_v_ignored", "values without their scale", _SCALES, _each("_scale", np.ones_like, "v")
    ),
    EncodedMistake(
        "scales_exchanged",
        "the scale of k for v, and that of v for k",
        "k_scale belongs to k, v_scale to v",
        _exchanged("_scale"),
    ),
    EncodedMistake(
        "scale_of_k_for_both", "the scale of k for v too", "v has v_scale", _one_side("k", "_scale")
    ),
    EncodedMistake(
        "scale_of_v_for_both", "the scale of v for k too", "k has k_scale", _one_side("v", "_scale")
    ),
    *_of_places("scale", ("_scale",)),
    EncodedMistake(
        "scale_is_the_first_number",
        "one number of the scales for all",
        f"the scales are no scalar here: {_GRAIN}",
        _each("_scale", lambda x: np.broadcast_to(x.reshape(-1)[0], x.shape)),
    ),
)
"""Of encodings with scales in tensors of their own."""


def _zeros_of(change: Callable[[Numbers, Numbers, StoredTensors], Numbers]) -> Any:
    """Make keys and values from the right ones and from those without zero points."""
    return lambda s: change(
        s.read(), s.read(k_zero=s.tensors["k_zero"] * 0, v_zero=s.tensors["v_zero"] * 0), s
    )


def _added(right: Numbers, without: Numbers, s: StoredTensors) -> Numbers:
    return 2 * without[0] - right[0], 2 * without[1] - right[1]


def _after_the_scale(right: Numbers, without: Numbers, s: StoredTensors) -> Numbers:
    ones = {f"{x}_scale": np.ones_like(s.tensors[f"{x}_scale"]) for x in "kv"}
    nothing = {f"{x}_zero": s.tensors[f"{x}_zero"] * 0 for x in "kv"}
    codes, less = s.read(**ones, **nothing), s.read(**ones)
    return without[0] - (codes[0] - less[0]), without[1] - (codes[1] - less[1])


def _unsigned(bits: int) -> Any:
    """Read negative codes as codes without a sign."""

    def reads(s: StoredTensors) -> Numbers:
        ones = {f"{x}_scale": np.ones_like(s.tensors[f"{x}_scale"]) for x in "kv"}
        codes, right = s.read(**ones), s.read()
        with np.errstate(invalid="ignore", divide="ignore"):
            k, v = (
                np.where(c < 0, number * (c + (1 << bits)) / np.where(c == 0, 1, c), number)
                for c, number in zip(codes, right, strict=True)
            )
        return k, v

    return reads


ZEROS: tuple[EncodedMistake, ...] = (
    EncodedMistake("zero_points_ignored", "no zero points", _ZERO, _zeros_of(lambda r, without, s: without)),
    EncodedMistake("zero_points_added", "zero points with the other sign", _ZERO, _zeros_of(_added)),
    EncodedMistake(
        "zero_points_after_the_scale",
        "zero points are subtracted after the product with the scale",
        _ZERO,
        _zeros_of(_after_the_scale),
    ),
    EncodedMistake(
        "zero_points_are_the_middle",
        "the middle of the codes for all zero points",
        _ZERO,
        lambda s: s.read(
            **{
                f"{x}_zero": np.full_like(
                    s.tensors[f"{x}_zero"], 8 if encoding_name(s.case) == "uint4" else 128
                )
                for x in "kv"
            }
        ),
    ),
    EncodedMistake(
        "zero_points_exchanged",
        "the zero point of k for v, and that of v for k",
        "k_zero belongs to k, v_zero to v",
        _exchanged("_zero"),
    ),
    EncodedMistake(
        "scales_and_zero_points_exchanged",
        "scale and zero point of k for v, and those of v for k",
        "k_scale and k_zero belong to k, v_scale and v_zero to v",
        _exchanged("_scale", "_zero"),
    ),
    EncodedMistake(
        "zero_points_wrap",
        "code - zero is computed in 8 bits without a sign, so -1 is 255",
        "subtract in a type that has a sign",
        _unsigned(8),
    ),
    *(
        EncodedMistake(
            f"zero_point_of_{side}_ignored",
            f"{'keys' if side == 'k' else 'values'} without their zero point",
            _ZERO,
            _each("_zero", np.zeros_like, side),
        )
        for side in "kv"
    ),
    *_of_places("zero point", ("_zero",)),
    *_of_places("scale and zero point", ("_scale", "_zero")),
)


def _swapped(x: NDArray[Any]) -> NDArray[Any]:
    return ((x >> 4) | (x << 4)).astype(np.uint8)


def _halves_of_a_row(x: NDArray[Any]) -> NDArray[Any]:
    """Return bytes of neighbours from such whose low and high bits hold the two halves of all features."""
    codes = np.concatenate([x & 15, x >> 4], -1)
    return _in_pairs(codes)


def _in_pairs(codes: NDArray[Any]) -> NDArray[np.uint8]:
    """Return codes with two neighbours in a byte, the first in the low bits."""
    return np.asarray(codes[..., ::2] | (codes[..., 1::2] << 4), np.uint8)


def _halves(x: NDArray[Any]) -> NDArray[Any]:
    """Return bytes of neighbours from such whose low and high bits hold the two halves of a block."""
    low, high = x & 15, x >> 4
    block = 16 if x.shape[-1] % 16 == 0 else x.shape[-1]
    cut = (*x.shape[:-1], x.shape[-1] // block, block)
    codes = np.concatenate([low.reshape(cut), high.reshape(cut)], -1)
    return _in_pairs(codes).reshape(x.shape)


NIBBLES: tuple[EncodedMistake, ...] = (
    EncodedMistake(
        "nibbles_swapped", "the first of two codes is read from the high bits", _BYTES, _each("", _swapped)
    ),
    EncodedMistake(
        "nibbles_as_halves",
        "low bits hold the first half of 32 features, as in q4_0",
        _BYTES,
        _each("", _halves),
    ),
    EncodedMistake(
        "nibbles_as_halves_of_a_row",
        "low bits hold the first half of the features, high bits the second",
        _BYTES,
        _each("", _halves_of_a_row),
    ),
    EncodedMistake("high_nibbles_left_out", "codes in high bits are 0", _BYTES, _each("", lambda x: x & 15)),
)


SIGNS = {
    "int8": EncodedMistake(
        "codes_without_sign", "negative codes are read as 128 to 255", _SIGN, _unsigned(8)
    ),
    "int4": EncodedMistake("codes_without_sign", "negative codes are read as 8 to 15", _SIGN, _unsigned(4)),
}


def _as_float8(form: str) -> Any:
    def reads(s: StoredTensors) -> Numbers:
        import torch

        ones = {f"{x}_scale": np.ones_like(s.tensors[f"{x}_scale"]) for x in "kv"}
        meant, right = s.read(**ones), s.read()
        found = []
        for side, own, number in zip("kv", meant, right, strict=True):
            codes = torch.from_numpy(np.ascontiguousarray(s.tensors[side]))
            other = codes.view(getattr(torch, form)).double().numpy()
            found.append(np.where(own == 0, 0, number / np.where(own == 0, 1, own)) * other)
        return found[0], found[1]

    return reads


def _float8(name: str) -> Iterator[EncodedMistake]:
    other = "e5m2" if name == "fp8_e4m3" else "e4m3fn"
    advice = f"the bytes of {name} are those of torch.float8_{'e4m3fn' if name == 'fp8_e4m3' else 'e5m2'}"
    yield EncodedMistake(
        f"float8_read_as_{other}", f"bytes are read as float8_{other}", advice, _as_float8(f"float8_{other}")
    )
    yield EncodedMistake(
        "float8_without_sign", "the sign of float8 is lost", advice, _each("", lambda x: x & 0x7F)
    )


def _blocks(s: StoredTensors, name: str) -> NDArray[Any]:
    array, (_, size) = s.tensors[name], HEAD_OF[encoding_name(s.case)]
    return array.reshape(*array.shape[:-1], array.shape[-1] // size, size)


def _of_blocks(change: Callable[[NDArray[Any], NDArray[Any]], tuple[NDArray[Any], NDArray[Any]]]) -> Any:
    """Change the scales (…, 1) in float16, and the bytes of codes, of all blocks."""

    def reads(s: StoredTensors) -> Numbers:
        changed = {}
        for name in "kv":
            blocks = _blocks(s, name)
            d = np.ascontiguousarray(blocks[..., :2]).view(np.float16)
            scales, codes = change(d, blocks[..., 2:])
            whole = [np.ascontiguousarray(scales.astype(np.float16)).view(np.uint8), codes.astype(np.uint8)]
            changed[name] = np.concatenate(whole, -1).reshape(s.tensors[name].shape)
        return s.read(**changed)

    return reads


def _with_heads(s: StoredTensors, change: Callable[[NDArray[Any], str], NDArray[Any]]) -> Numbers:
    """Change the bytes in front of the codes of all blocks, (…, 2) or (…, 4); change gets the side too."""
    head, _ = HEAD_OF[encoding_name(s.case)]
    changed = {}
    for name in "kv":
        blocks = _blocks(s, name)
        whole = np.concatenate([change(blocks[..., :head], name), blocks[..., head:]], -1)
        changed[name] = whole.reshape(s.tensors[name].shape)
    return s.read(**changed)


def _block_heads_moved(axis: int, which: str) -> Any:
    return lambda s: _with_heads(s, lambda heads, _: from_place(heads, axis, which))


def _scales_of_the_other_side(s: StoredTensors) -> Numbers:
    if s.tensors["k"].shape != s.tensors["v"].shape:
        raise ValueError("keys and values have other shapes")
    head, _ = HEAD_OF[encoding_name(s.case)]
    return _with_heads(s, lambda _, name: _blocks(s, "v" if name == "k" else "k")[..., :head])


def _from_0(s: StoredTensors) -> Numbers:
    """Read codes of q4_0 as 0 to 15: each number is 8 scales larger."""
    k, v = s.read()
    added = [
        8 * np.ascontiguousarray(_blocks(s, name)[..., :2]).view(np.float16).astype(float) for name in "kv"
    ]
    return k + np.repeat(added[0][..., 0], 32, -1), v + np.repeat(added[1][..., 0], 32, -1)


def _bytes_from_0(s: StoredTensors) -> Numbers:
    """Read codes of q8_0 without their sign."""
    found = []
    for name, number in zip("kv", s.read(), strict=True):
        blocks = _blocks(s, name)
        d = np.ascontiguousarray(blocks[..., :2]).view(np.float16).astype(float)
        negative = 256 * (blocks[..., 2:] > 127) * d
        found.append(number + negative.reshape(number.shape))
    return found[0], found[1]


def _without_the_last_block(s: StoredTensors) -> Numbers:
    k, v = (x.copy() for x in s.read())
    k[..., -32:] = 0
    v[..., -32:] = 0
    return k, v


def _zeroed(c: NDArray[Any], first: int, end: int) -> NDArray[Any]:
    """Return bytes of blocks with some of them 0."""
    changed = c.copy()
    changed[..., first:end] = 0
    return changed


def _behind(first: int, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Any:
    """Change the bytes of blocks from so many behind d on."""
    return _of_blocks(lambda d, c: (d, np.concatenate([c[..., :first], change(c[..., first:])], -1)))


def _fifth_bits_moved(step: int) -> Any:
    """Give each code of q5_1 the fifth bit of one so many places before it."""

    def change(c: NDArray[Any]) -> NDArray[Any]:
        bits = np.roll(np.unpackbits(c[..., :4], axis=-1, bitorder="little"), step, -1)
        return np.concatenate([np.packbits(bits, axis=-1, bitorder="little"), c[..., 4:]], -1)

    return _behind(2, change)


def _neighbours(c: NDArray[Any]) -> NDArray[Any]:
    """Return a block whose reader takes features 2i and 2i + 1 from byte i, as this order gives them."""
    pairs = np.stack([c & 15, c >> 4], -1).reshape(*c.shape[:-1], 32)
    return np.asarray(pairs[..., :16] | (pairs[..., 16:] << 4), np.uint8)


def _in_bytes(first: int) -> Iterator[EncodedMistake]:
    """Yield mistakes in reading two codes of a byte, in blocks whose such bytes begin there behind d."""
    for name, summary, change in (
        ("nibbles_swapped", "the first half of a block is read from the high bits", _swapped),
        ("nibbles_as_neighbours", "neighbours lie in a byte, as in int4", _neighbours),
    ):
        yield EncodedMistake(name, summary, _BYTES, _behind(first, change))


BLOCKS: tuple[EncodedMistake, ...] = (
    EncodedMistake(
        "scales_ignored",
        "codes without the scales of their blocks",
        _BLOCK,
        _of_blocks(lambda d, c: (d * 0 + 1, c)),
    ),
    EncodedMistake(
        "scales_squared", "the scale of a block is applied twice", _BLOCK, _of_blocks(lambda d, c: (d * d, c))
    ),
    *(
        EncodedMistake(
            f"scale_of_the_{which}_{name}",
            from_words("scale", which, place),
            _BLOCK,
            _block_heads_moved("bgjn".index(letter) - 5, which),
        )
        for letter, name, place in PLACES[:4]
        for which in OTHERS
    ),
    EncodedMistake(
        "scales_exchanged", "the scales of k for v, and those of v for k", _BLOCK, _scales_of_the_other_side
    ),
    EncodedMistake(
        "last_block_dropped",
        "no features of the last block of 32",
        "read all D / 32 blocks of a row",
        _without_the_last_block,
    ),
)

OF_BLOCKS: dict[str, tuple[EncodedMistake, ...]] = {
    "q8_0": (
        EncodedMistake(
            "codes_without_sign",
            "negative codes are read as 128 to 255",
            "codes of q8_0 are int8",
            _bytes_from_0,
        ),
    ),
    "q4_0": (
        EncodedMistake(
            "codes_from_0", "codes are 0 to 15, not -8 to 7", "subtract 8 from the codes of q4_0", _from_0
        ),
        *_in_bytes(0),
    ),
    "q5_1": (
        EncodedMistake(
            "least_number_ignored",
            "codes times their scale, without the least number of the block",
            "a number is code · d + m",
            _of_blocks(lambda d, c: (d, _zeroed(c, 0, 2))),
        ),
        EncodedMistake(
            "fifth_bits_ignored",
            "codes of 4 bits, without the fifth",
            _FIFTH,
            _of_blocks(lambda d, c: (d, _zeroed(c, 2, 6))),
        ),
        *(
            EncodedMistake(
                f"fifth_bits_of_the_{which}_code",
                f"the fifth bit of the {which} code",
                _FIFTH,
                _fifth_bits_moved(step),
            )
            for which, step in (("next", -1), ("previous", 1))
        ),
        *_in_bytes(6),
    ),
}


def _latent(
    keys: Callable[[NDArray[Any], int], NDArray[Any]], values: Callable[[NDArray[Any], int], NDArray[Any]]
) -> Any:
    def reads(s: StoredTensors) -> Numbers:
        kv, first = s.read()[0], s.case.Dv
        return keys(kv, first), values(kv, first)

    return reads


def _kept(features: slice, kv: NDArray[Any]) -> NDArray[Any]:
    found = np.zeros_like(kv)
    found[..., features] = kv[..., features]
    return found


LATENT: tuple[EncodedMistake, ...] = (
    EncodedMistake(
        "rotated_part_left_out",
        "scores without the features behind the first Dv",
        _LATENT,
        _latent(lambda kv, n: _kept(slice(n), kv), lambda kv, n: kv[..., :n]),
    ),
    EncodedMistake(
        "compressed_part_left_out",
        "scores of the features behind the first Dv alone",
        _LATENT,
        _latent(lambda kv, n: _kept(slice(n, None), kv), lambda kv, n: kv[..., :n]),
    ),
    EncodedMistake(
        "rotated_part_in_front",
        "the features behind the first Dv are taken for the first",
        _LATENT,
        _latent(lambda kv, n: np.roll(kv, kv.shape[-1] - n, -1), lambda kv, n: kv[..., :n]),
    ),
    EncodedMistake(
        "values_are_the_last_features",
        "the values are the last Dv features",
        _LATENT,
        _latent(lambda kv, n: kv, lambda kv, n: kv[..., -n:]),
    ),
)


def _scaled_by_all_features(s: StoredTensors) -> Numbers:
    k, v = s.read()
    return k * (s.case.D**-0.5 / dict(s.case.constants)["scale"]), v


LATENT += (
    EncodedMistake(
        "scale_of_all_features",
        "scores are divided by √D of the latent head",
        "the scale is that of the heads before absorption: setup.scoring.dot.scale",
        _scaled_by_all_features,
    ),
)

SIDES: tuple[EncodedMistake, ...] = (
    EncodedMistake(
        "values_read_as_keys",
        "the keys are read in the place of the values",
        "v holds the values",
        _values_are_keys,
    ),
    EncodedMistake(
        "keys_read_as_values",
        "the values are read in the place of the keys",
        "k holds the keys",
        _keys_are_values,
    ),
)


def encoded_mistakes(case: Case) -> Iterator[EncodedMistake]:
    """Yield the mistakes in reading what a case encodes. Some can't be made in it, and then raise."""
    name = encoding_name(case)
    if name == "latent":
        yield from LATENT
        return
    if name in HEAD_OF:
        yield from (*BLOCKS, *OF_BLOCKS[name], *SIDES)
        return
    if not grain_of(case):
        return
    if name in WITH_ZEROS:
        yield from ZEROS
    if name in ("int4", "uint4"):
        yield from NIBBLES
    if name in SIGNS:
        yield SIGNS[name]
    if name.startswith("fp8"):
        yield from _float8(name)
    yield from (*SCALES, *SIDES)
