"""Draw activations and parameters from seeds, in float64, rounded to the dtype of the case."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnbench.types.arithmetic import UNIT
from attnbench.types.case import DTYPES, Case, Dtype, output_shape, rule_parameter_shapes
from attnbench.types.operation import operation_of
from attnbench.types.problem import UPSTREAM, upstreams_of
from attnbench.types.rule import Rule

if TYPE_CHECKING:
    from attnbench.types.operation import Draw

Stored = NDArray[Any]
Wide = NDArray[np.float64]

EPS: dict[Dtype, float] = {dtype: UNIT[dtype] for dtype in DTYPES}
"""The gap between 1 and the next number. Rounding has at most half of it as relative error."""

INPUTS_VERSION = 2
"""The version of what is drawn for the cases of a run; its file says it. In version 1 only drawn masks were
others: each batch element had the same share of the keys in every case, and added numbers had few bits."""

_NUMPY: dict[Dtype, type[np.floating[Any]]] = {
    "float64": np.float64,
    "float32": np.float32,
    "float16": np.float16,
}
_AT_ONCE = 1 << 15  # Chunks that fit a cache take a third of the time.
# bfloat16 keeps 7 of float64's 52 stored bits; below 2**-126 its numbers are multiples of 2**-133.
_DROPPED_BITS = 45
_SMALLEST_NORMAL = 2.0**-126
_ONLY_MULTIPLES_OF_SMALLEST = 1.5 * 2.0 ** (52 - 133)


def store(values: Wide, dtype: Dtype) -> Stored:
    """Round once to a dtype: to nearest, ties to even; overflow gives inf, NaN stays NaN. Keeps the shape."""
    with np.errstate(all="ignore"):
        if dtype != "bfloat16":
            return values.astype(_NUMPY[dtype])
        flat = np.ascontiguousarray(values).reshape(-1)
        stored = np.empty(flat.shape, np.uint16)
        for start in range(0, len(flat), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            stored[part] = _top_half(_rounded_to_bfloat16(flat[part]))
    return stored.reshape(values.shape)


def widen(stored: Stored, dtype: Dtype) -> Wide:
    """Return stored numbers in float64, exactly."""
    if dtype == "bfloat16" and stored.dtype.itemsize == 2:
        flat = stored.reshape(-1)
        wide = np.empty(flat.shape)
        for start in range(0, len(flat), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            wide[part] = (flat[part].astype(np.uint32) << 16).view(np.float32)
        return wide.reshape(stored.shape)
    return stored.astype(np.float64)


def rounded(values: Wide, dtype: Dtype) -> Wide:
    """Return the nearest numbers of a dtype, in float64."""
    return widen(store(values, dtype), dtype)


def _rounded_to_bfloat16(values: Wide) -> Wide:
    """Return the nearest bfloat16 numbers, in float64. Rounding by way of float32 would round twice."""
    bits = values.view(np.uint64)
    half = np.uint64((1 << (_DROPPED_BITS - 1)) - 1)
    last = (bits >> np.uint64(_DROPPED_BITS)) & np.uint64(1)
    rounded = ((bits + half + last) >> np.uint64(_DROPPED_BITS) << np.uint64(_DROPPED_BITS)).view(np.float64)
    small, lost = np.abs(values) < _SMALLEST_NORMAL, np.isnan(values)
    # Most chunks have neither, and a long cache has thousands of them.
    if small.any():
        # Adding a number whose last bit is worth 2**-133 rounds to its multiples, ties to even.
        tiny = (values + _ONLY_MULTIPLES_OF_SMALLEST) - _ONLY_MULTIPLES_OF_SMALLEST
        rounded[small] = np.copysign(tiny, values)[small]
    if lost.any():
        rounded[lost] = np.nan
    return rounded


def _top_half(values: Wide) -> NDArray[np.uint16]:
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


@dataclass(frozen=True)
class Parameters:
    """The parameters of a case: those of the rule, and those of the operation as ``projections``.

    Both are by name, in the shapes of :mod:`attnbench.types.case`, as storage arrays or widened to float64.
    """

    rule: Mapping[str, NDArray[Any]]
    projections: Mapping[str, NDArray[Any]]


def draw_inputs(
    case: Case, rule: Rule, entropy: int, index: int, draw: Draw | None = None
) -> dict[str, Stored]:
    """Draw inputs number ``index`` of a case as its operation draws them; return stored arrays by name.

    draw: in place of the operation's own.

    One array that serves twice (x, or a context) is the same object under both names.

    entropy: the seed, together with the case's sizes; ``case.seed`` is not used here.

    Raises:
        ValueError: the operation draws another shape than it declares.
    """
    operation = operation_of(case)
    specs = operation.inputs(case, rule)
    draw = draw or operation.draw or _standard_normal
    drawn = draw(case, rule, lambda word: stream(case, "activations", entropy, index, word))
    stored: dict[int, Stored] = {}
    for spec in specs:
        array = drawn[spec.name]
        if array.shape != spec.shape:
            raise ValueError(
                f"operation {case.operation!r} draws {spec.name!r} of shape {array.shape}; "
                f"it declares {spec.shape}"
            )
        if id(array) not in stored:
            stored[id(array)] = (
                store(array, case.dtype) if spec.kind == "float" else array.astype(spec.kind, casting="safe")
            )
    return {spec.name: stored[id(drawn[spec.name])] for spec in specs}


def widen_inputs(case: Case, rule: Rule, inputs: Mapping[str, Stored]) -> dict[str, Any]:
    """Return inputs by name as an operation's ``solve`` takes them: floats in float64, others as they are."""
    kinds = {spec.name: spec.kind for spec in operation_of(case).inputs(case, rule)}
    return {
        name: widen(array, case.dtype) if kinds[name] == "float" else array for name, array in inputs.items()
    }


def draw_activations(case: Case, rule: Rule, entropy: int, index: int) -> tuple[Stored, Stored, Stored]:
    """Draw as :func:`draw_inputs`, for attention: q, k, v, or the sources of queries, keys and values."""
    first, second, third = draw_inputs(case, rule, entropy, index).values()
    return first, second, third


def _standard_normal(
    case: Case, rule: Rule, stream_of: Callable[[str], np.random.Generator]
) -> dict[str, Wide]:
    """Draw standard normal numbers; inputs that share memory are one array."""
    made: dict[str, Wide] = {}
    drawn: dict[str, Wide] = {}
    for spec in operation_of(case).inputs(case, rule):
        if spec.kind != "float":
            raise ValueError(f"the input {spec.name!r} is of kind {spec.kind}: the operation must draw it")
        memory = spec.tensor
        if memory not in made:
            made[memory] = stream_of(memory).standard_normal(spec.shape)
        drawn[spec.name] = made[memory]
    return drawn


def draw_upstream(case: Case, entropy: int, index: int) -> Stored:
    """Draw the gradient of the output: standard normal, in the output's shape."""
    values = stream(case, "upstream", entropy, index).standard_normal(output_shape(case))
    return store(values, case.dtype)


def draw_upstreams(case: Case, entropy: int, index: int) -> dict[str, Stored]:
    """Draw the gradients of all outputs that have one, by name; the first as :func:`draw_upstream`."""
    drawn = {UPSTREAM: draw_upstream(case, entropy, index)}
    for spec in upstreams_of(case):
        if spec.name not in drawn:
            values = stream(case, spec.name, entropy, index).standard_normal(spec.shape)
            drawn[spec.name] = store(values, spec.dtype(case))
    return drawn


def draw_parameters(case: Case, rule: Rule) -> Parameters:
    """Draw the rule's parameters, and those of the operation as it scales them.

    A constant of the case replaces the parameter of its name in all heads.

    Raises:
        ValueError: the rule draws another shape than it declares.
    """
    drawn: dict[str, Stored] = {}
    shapes, constants = rule_parameter_shapes(case, rule), dict(case.constants)
    for parameter in rule.parameters(case):
        rng = stream(case, "rule", case.seed, parameter.name)
        values = np.asarray(parameter.draw(rng, case.H, parameter.shape), dtype=np.float64)
        if parameter.name in constants:
            values = np.full_like(values, constants[parameter.name])
        if values.shape != shapes[parameter.name]:
            raise ValueError(
                f"rule {rule.name!r} draws {parameter.name!r} of shape {values.shape}; "
                f"it declares {shapes[parameter.name]}"
            )
        drawn[parameter.name] = store(values, case.dtype)
    projections: dict[str, Stored] = {}
    for spec in operation_of(case).parameters(case, rule):
        values = stream(case, "projection", case.seed, spec.name).standard_normal(spec.shape)
        projections[spec.name] = store(values * spec.scale, case.dtype)
    return Parameters(drawn, projections)


def widened(parameters: Parameters, case: Case) -> Parameters:
    """Return drawn parameters in float64, exactly."""
    return Parameters(
        rule={name: widen(array, case.dtype) for name, array in parameters.rule.items()},
        projections={name: widen(array, case.dtype) for name, array in parameters.projections.items()},
    )


def stream(case: Case, *parts: object) -> np.random.Generator:
    """Return random numbers for one purpose, seeded by all fields that shape the values and by ``parts``."""
    layer = case.layer
    words = (
        *("attnbench inputs 1", case.operation, case.rule),
        *(case.B, case.H, case.Hkv, case.Lq, case.Lk, case.D, case.Dv),
        *(() if layer is None else (layer.E, layer.bias, layer.out, layer.cross)),
        *(f"{name}{value}" for name, value in case.operation_sizes),
        *(case.dtype, *parts),
    )
    digest = hashlib.sha256("\n".join(map(str, words)).encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))
