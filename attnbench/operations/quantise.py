"""quantise: keys and values in the dtype to codes and scales, as the encoding of the case has them.

Several codes can be right: at the middle between two numbers either, and a scale that a kernel rounds in
another way moves these middles. So an answer is compared with the right one that is nearest to it
(:attr:`attnbench.types.encoding.Encoding.settle`), and nothing may differ from that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from attnbench.types.encoding import Written, encoding_of, names_encoding
from attnbench.types.operation import Operation, Problem, TensorSpec, refuses_width
from attnbench.types.rule import Rule

if TYPE_CHECKING:
    import numpy as np

    from attnbench.types.backend import Setup
    from attnbench.types.case import Case
    from attnbench.types.operation import Arrays

    Stream = Callable[[str], np.random.Generator]
    Named = Mapping[str, Any]
    Change = Callable[[Case, Any, np.random.Generator], None]

SPREAD = 2.0
"""Numbers of a head, a token and a channel differ in size by powers of two with exponents up to this."""
ONE_IN = 7
"""Of the tokens, one in so many is special in a kind of inputs that has special numbers."""


def _inputs(case: Case, rule: Rule) -> tuple[TensorSpec, ...]:
    return (
        TensorSpec("k", (case.B, case.Hkv, case.Lk, case.D), axes="bgjd"),
        TensorSpec("v", (case.B, case.Hkv, case.Lk, case.Dv), axes="bgje"),
    )


def _outputs(case: Case) -> tuple[TensorSpec, ...]:
    return encoding_of(case).tensors(case, _specs(case))


def _specs(case: Case) -> tuple[TensorSpec, ...]:
    return (
        TensorSpec("k", (case.B, case.Hkv, case.Lk, case.D), axes="bgjd"),
        TensorSpec("v", (case.B, case.Hkv, case.Lk, case.Dv), axes="bgje"),
    )


def spread_numbers(shape: Sequence[int], rng: np.random.Generator) -> Any:
    """Draw numbers (B, H, L, D) whose heads, tokens and channels differ in size, so that scales do too."""
    import numpy as np

    numbers = rng.standard_normal(shape)
    for axis in range(1, len(shape)):
        sizes = [1] * len(shape)
        sizes[axis] = shape[axis]
        numbers = numbers * np.exp2(rng.uniform(-SPREAD, SPREAD, sizes))
    return numbers


def written_as(case: Case) -> Written:
    """Return what a right writer of a case may do."""
    return Written(steps=int(case.constant("steps", 0)))


def largest_number(case: Case) -> float:
    """Return the largest number that the dtype and the encoding of a case can hold."""
    by_dtype = {"float16": 65504.0, "bfloat16": 3.3e38, "float32": 3.4e38, "float64": 3.4e38}[case.dtype]
    most = encoding_of(case).largest
    return min(by_dtype, most) if most else by_dtype


def specials(case: Case) -> dict[str, Change]:
    """Return changes of drawn numbers (…, tokens, features) by the name of the kind of inputs they make."""
    changes: dict[str, Change] = {"zeros": _zeros, "largest": _largest}
    return changes | ({"nan": _nan} if case.constant("nan", 0) else {})


def _some_tokens(numbers: Any, rng: np.random.Generator) -> Any:
    """Return which tokens are special, (…, L, 1): one in :data:`ONE_IN`, and at least one of all."""
    chosen = rng.random((*numbers.shape[:-1], 1)) < 1 / ONE_IN
    chosen.reshape(-1)[rng.integers(chosen.size)] = True
    return chosen


def _zeros(case: Case, numbers: Any, rng: np.random.Generator) -> None:
    """Let some tokens be zeros, some of them with a sign."""
    import numpy as np

    signs = np.copysign(0.0, rng.standard_normal(numbers.shape))
    numbers[:] = np.where(_some_tokens(numbers, rng), signs, numbers)


def _largest(case: Case, numbers: Any, rng: np.random.Generator) -> None:
    """Let some tokens have the largest number in a place, with either sign."""
    import numpy as np

    place = np.arange(numbers.shape[-1]) == rng.integers(numbers.shape[-1])
    most = np.where(rng.random(numbers.shape) < 0.5, -1.0, 1.0) * largest_number(case)
    numbers[:] = np.where(_some_tokens(numbers, rng) & place, most, numbers)


def _nan(case: Case, numbers: Any, rng: np.random.Generator) -> None:
    """Let some tokens have NaN in a place."""
    import numpy as np

    place = np.arange(numbers.shape[-1]) == rng.integers(numbers.shape[-1])
    numbers[:] = np.where(_some_tokens(numbers, rng) & place, np.nan, numbers)


def _draw(case: Case, rule: Rule, stream: Stream) -> dict[str, Any]:
    return {spec.name: spread_numbers(spec.shape, stream(spec.name)) for spec in _inputs(case, rule)}


def _draw_special(case: Case, rule: Rule, stream: Stream, change: Change) -> dict[str, Any]:
    drawn = _draw(case, rule, lambda word: stream(f"special {word}"))
    for name, numbers in drawn.items():
        change(case, numbers, stream(f"change {name}"))
    return drawn


def _stress(case: Case, rule: Rule) -> dict[str, Callable[[Case, Rule, Stream], Named]]:
    return {name: partial(_draw_special, change=change) for name, change in specials(case).items()}


def _solve(problem: Problem) -> Arrays:
    """Return the codes and scales as the encoding makes them."""
    import numpy as np

    zeros = {
        spec.name: np.zeros(spec.shape, np.float64 if spec.is_floating else spec.kind)
        for spec in _outputs(problem.case)
    }
    return _settle(problem, zeros)


def _settle(problem: Problem, answer: Named) -> Arrays:
    """Return the right codes and scales that are nearest to an answer."""
    import numpy as np

    case, specs = problem.case, _specs(problem.case)
    settle = encoding_of(case).settle
    assert settle is not None, "the check of the case asks for an encoding with codes"
    names = [spec.name for spec in _outputs(case)]
    numbers = [np.asarray(problem.inputs[spec.name], np.float64) for spec in specs]
    settled = settle(case, specs, numbers, [answer[name] for name in names], written_as(case))
    return {name: np.asarray(array, np.float64) for name, array in zip(names, settled, strict=True)}


def _check(case: Case) -> str | None:
    if width := refuses_width(case):
        return width
    if not names_encoding(case) or encoding_of(case).settle is None:
        return "quantise writes codes: name an encoding that has them, as kv=int8:token"
    return refuses_queries(case, "quantise") or only_keys(case)


def refuses_queries(case: Case, name: str) -> str | None:
    """Return why a writer can't have the heads or the mask of a case, or None."""
    if case.Hkv != case.H:
        return f"{name} reads no queries: give the heads of k and v alone, as H{case.Hkv}"
    return None if case.mask.is_none else f"{name} has no mask: it writes each token"


def only_keys(case: Case) -> str | None:
    """Return why a case has other lengths than those of its keys, or None."""
    if case.Lq == case.Lk:
        return None
    return f"quantise reads no queries: Lq = {case.Lq} and Lk = {case.Lk} must be equal, as L{case.Lk}"


def writer_flops(case: Case, numbers: int) -> float:
    """Count the operations of writing so many numbers: a comparison, a product and a rounding of each."""
    return 3.0 * numbers


def _flops(case: Case, rule: Rule, pairs: int) -> float:
    return writer_flops(case, case.B * case.Hkv * case.Lk * (case.D + case.Dv))


def _plain(setup: Setup) -> Callable[..., Any]:
    """Prepare the plain reference. It is imported here because it needs torch."""
    from attnbench.kit.writers import quantise

    return quantise(setup)


QUANTISE = Operation(
    name="quantise",
    summary="k and v to the codes and scales of an encoding",
    inputs=_inputs,
    outputs=_outputs,
    flops=_flops,
    solve=_solve,
    draw=_draw,
    check=_check,
    reference=_plain,
    rounds=True,
    baseline="torch_quantise",
    stress=_stress,
    settle=_settle,
)
