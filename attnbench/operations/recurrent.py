"""Recurrent attention: a state for each head, which each step updates and reads.

The words are those of ONNX's operator LinearAttention (opset 27), whose reference this follows: the state
(D, Dv) is updated by the step's key, value, decay and beta, then read with its query times 1/√D.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import sqrt
from typing import TYPE_CHECKING, Any

from attnbench.types.batch import parse_batch
from attnbench.types.operation import Kind, Operation, Problem, TensorSpec, refuses_width
from attnbench.types.problem import UPSTREAM, upstream_name
from attnbench.types.rule import Rule, Update

if TYPE_CHECKING:
    import numpy as np

    from attnbench.types.backend import Setup
    from attnbench.types.case import Case
    from attnbench.types.rule import Array

    Stream = Callable[[str], np.random.Generator]
    Named = Mapping[str, Any]

FORGETS = -20.0
"""A decay e^-20 leaves nothing of a state in float32. A kernel may still form sums of many of them."""
SUMMED = 256
"""Decays of so many steps are summed up by kernels that take a chunk of steps at once: 64 of delta rules,
256 of Mamba-2's."""
SLOWEST, FASTEST = 1e-3, 0.3
"""The typical decay of a step, -g, in the head that forgets least and the one that forgets most."""

ADVICE = {
    "same_key": (
        "Equal keys in all steps give a wrong output: large terms cancel. Solve the system of a chunk row by "
        "row, not by powers of its matrix. Multiply the state by the matrix of each step, and not these "
        "matrices by each other as a parallel scan does; or take longer products in float64."
    ),
    "no_decay": (
        "Decays of 0 give a wrong output: e^0 is 1, so a step keeps the whole state. Divide by no decay."
    ),
    "forgets": (
        "Decays of e^-20 give a wrong output: form e^(G_i - G_j) from the difference of two sums of decays. "
        "e^G_i / e^G_j loses its digits or overflows. Clamp no decay."
    ),
    "beta_ends": (
        "A beta of 0 or 1 gives a wrong output: divide by neither beta nor 1 - beta, and take no logarithm "
        "of them."
    ),
    "b_ends": "Features of b that are 0 or those of -a give a wrong output: divide by no feature of a or b.",
}
"""Advice for kinds of inputs that show a failure which ordinary ones do not show."""


def _update(rule: Rule) -> Update:
    assert rule.update is not None, "recurrent has only rules with an update"
    return rule.update


def _wide(case: Case) -> Kind:
    """Return the kind of a state and of decays: float32 at least."""
    return "float" if case.dtype == "float64" else "float32"


def _inputs(case: Case, rule: Rule) -> tuple[TensorSpec, ...]:
    """Return q, k, v, what the rule has of decay, dt, rate, beta, a and b, and the state before all steps.

    H counts heads of v and of the state, Hkv those of q and k: one of q and k serves H / Hkv next to each
    other.
    """
    update, steps = _update(rule), (case.B, case.H, case.Lq)
    specs = [
        TensorSpec("q", (case.B, case.Hkv, case.Lq, case.D), axes="bgid"),
        TensorSpec("k", (case.B, case.Hkv, case.Lq, case.D), axes="bgid"),
        TensorSpec("v", (*steps, case.Dv), axes="bhie"),
    ]
    if update.decays == "fixed":
        specs.append(TensorSpec("decay", (case.H,), _wide(case), axes="h"))
    elif update.decays == "head":
        specs.append(TensorSpec("decay", steps, _wide(case), axes="bhi"))
    elif update.decays == "channel":
        specs.append(TensorSpec("decay", (*steps, case.D), _wide(case), axes="bhid"))
    elif update.decays == "element":
        specs.append(TensorSpec("dt", (*steps, case.Dv), _wide(case), axes="bhie"))
        specs.append(TensorSpec("rate", (case.H, case.D, case.Dv), _wide(case), axes="hde"))
    if update.corrects:
        specs.append(TensorSpec("beta", steps, axes="bhi"))
    if update.removes:
        specs += [TensorSpec(name, (*steps, case.D), axes="bhid") for name in "ab"]
    return (*specs, _state(case, "past_state"))


def _outputs(case: Case) -> tuple[TensorSpec, ...]:
    return (TensorSpec("out", (case.B, case.H, case.Lq, case.Dv), axes="bhie"), _state(case, "state"))


def _state(case: Case, name: str) -> TensorSpec:
    return TensorSpec(name, (case.B, case.H, case.D, case.Dv), _wide(case), axes="bhde")


def _draw(case: Case, rule: Rule, stream: Stream) -> dict[str, Any]:
    """Draw keys of lengths from 1/2 to 1, and states that are not zero; heads forget at different speeds.

    Models make keys of length 1, but a kernel that does so itself would be right only for them.
    """
    import numpy as np

    drawn = {spec.name: stream(spec.name).standard_normal(spec.shape) for spec in _inputs(case, rule)}
    lengths = stream("lengths").uniform(0.5, 1, (*drawn["k"].shape[:-1], 1))
    drawn["k"] *= lengths / np.linalg.norm(drawn["k"], axis=-1, keepdims=True)
    if "decay" in drawn:
        typical = np.geomspace(SLOWEST, FASTEST, case.H).reshape(-1, *[1] * (drawn["decay"].ndim - 2))
        drawn["decay"] = -typical * np.exp(drawn["decay"] / 2)
    if "rate" in drawn:
        # Features of the key forget at different speeds, and those of v take steps of their own.
        typical = np.geomspace(SLOWEST, FASTEST, case.D)[:, None]
        drawn["rate"] = -2 * typical * np.exp(drawn["rate"] / 4)
        drawn["dt"] = np.exp(drawn["dt"] / 2) / 2
    if "beta" in drawn:
        drawn["beta"] = 1 / (1 + np.exp(-drawn["beta"]))
    if "a" in drawn:
        # What is found along a is taken away along it, by features more or less.
        drawn["a"] /= np.linalg.norm(drawn["a"], axis=-1, keepdims=True)
        drawn["b"] = -drawn["a"] / (1 + np.exp(-drawn["b"]))
    return _stored(case, drawn)


def _stored(case: Case, drawn: dict[str, Any]) -> dict[str, Any]:
    """Return drawn inputs with those of the kind float32 rounded to it."""
    import numpy as np

    single = {"decay", "dt", "rate", "past_state"} if _wide(case) == "float32" else ()
    return {name: array.astype(np.float32) if name in single else array for name, array in drawn.items()}


def _stress(case: Case, rule: Rule) -> dict[str, Callable[[Case, Rule, Stream], Named]]:
    """Return kinds of inputs by name: the ends of what decays and betas can be, and one key for all steps."""
    update = _update(rule)
    kinds: dict[str, Callable[[dict[str, Any], np.random.Generator], None]] = {"same_key": _same_key}
    if update.decays:
        kinds |= {"no_decay": _no_decay, "forgets": _forgets}
    if update.corrects:
        kinds["beta_ends"] = _beta_ends
    if update.removes:
        kinds["b_ends"] = _b_ends
    return {name: partial(_draw_changed, change=change) for name, change in kinds.items()}


def _draw_changed(
    case: Case,
    rule: Rule,
    stream: Stream,
    change: Callable[[dict[str, Any], np.random.Generator], None],
) -> Named:
    drawn = _draw(case, rule, lambda word: stream(f"stress {word}"))
    change(drawn, stream("change"))
    return drawn


def _same_key(drawn: dict[str, Any], rng: np.random.Generator) -> None:
    """Have one key of length 1 in all steps: a delta rule then forgets nothing of what lies across it."""
    import numpy as np

    first = drawn["k"][:, :, :1]
    drawn["k"][:] = first / np.linalg.norm(first, axis=-1, keepdims=True)


def _no_decay(drawn: dict[str, Any], rng: np.random.Generator) -> None:
    drawn["decay" if "decay" in drawn else "rate"][:] = 0


def _forgets(drawn: dict[str, Any], rng: np.random.Generator) -> None:
    """Let about every tenth step forget all that was before; with rates, every tenth element in each step."""
    if "rate" in drawn:
        drawn["rate"][rng.random(drawn["rate"].shape) < 0.1] = 2 * FORGETS
        return
    steps = rng.random(drawn["decay"].shape[:3]) < 0.1
    drawn["decay"][steps] = FORGETS


def _beta_ends(drawn: dict[str, Any], rng: np.random.Generator) -> None:
    drawn["beta"][:] = rng.integers(0, 2, drawn["beta"].shape)


def _b_ends(drawn: dict[str, Any], rng: np.random.Generator) -> None:
    """Let each feature of b be 0 or that of -a."""
    drawn["b"][:] = -drawn["a"] * rng.integers(0, 2, drawn["b"].shape)


def _read_scale(case: Case) -> float:
    return float(case.D**-0.5)


def _steps(case: Case, given: Mapping[str, Array]) -> Iterator[tuple[Array, Array, Array, Array]]:
    """Yield for each step its query, key, value and what the state is multiplied by, of widened inputs.

    Shapes: (B, H, D), (B, H, D), (B, H, Dv) and (B, H, D or 1, Dv or 1).
    """
    import numpy as np

    q, k = (np.repeat(given[name], case.group, axis=1) for name in ("q", "k"))
    kept = np.exp(given["decay"]) if "decay" in given else np.ones((case.B, case.H, case.Lq))
    if kept.ndim == 1:
        kept = np.broadcast_to(kept[:, None], (case.B, case.H, case.Lq))
    kept = kept[..., None, None] if kept.ndim == 3 else kept[..., None]
    for i in range(case.Lq):
        if "rate" in given:
            dt = given["dt"][:, :, i]
            yield q[:, :, i], k[:, :, i], dt * given["v"][:, :, i], np.exp(dt[..., None, :] * given["rate"])
        else:
            yield q[:, :, i], k[:, :, i], given["v"][:, :, i], kept[:, :, i]


def _widest(problem: Problem) -> dict[str, Array]:
    """Return the inputs in float64, in longdouble where the case is in float64 itself."""
    import numpy as np

    wide = np.longdouble if problem.case.dtype == "float64" else np.float64
    return {name: np.asarray(x, wide) for name, x in problem.inputs.items()}


def _solve(problem: Problem) -> dict[str, Array]:
    """Take one step after the other in float64, or wider."""
    import numpy as np

    case, update, given = problem.case, _update(problem.rule), _widest(problem)
    state = given["past_state"]
    out = np.zeros((case.B, case.H, case.Lq, case.Dv), state.dtype)
    for i, (q, k, v, kept) in enumerate(_steps(case, given)):
        before, state = state, kept * state
        if update.removes:
            found = np.einsum("bhd,bhde->bhe", given["a"][:, :, i], before)
            state = state + given["b"][:, :, i, :, None] * found[..., None, :]
        if update.corrects:
            v = given["beta"][:, :, i, None] * (v - np.einsum("bhd,bhde->bhe", k, state))
        state = state + k[..., None] * v[..., None, :]
        out[:, :, i] = _read_scale(case) * np.einsum("bhd,bhde->bhe", q, state)
    return {"out": out, "state": state}


def _trivial(problem: Problem) -> dict[str, dict[str, Array]]:
    """Return answers of kernels that lack one half: what was before the first step, or all but one step."""
    import numpy as np

    case, given = problem.case, _widest(problem)
    state = given["past_state"]
    first: list[Array] = []
    own: list[Array] = []
    last = np.zeros_like(state)
    for q, k, v, _ in _steps(case, given):
        first.append(np.einsum("bhd,bhde->bhe", q, state))
        last = k[..., None] * v[..., None, :]
        own.append(np.einsum("bhd,bhde->bhe", q, last))
    scale = _read_scale(case)
    return {
        "the initial state alone": {"out": scale * np.stack(first, 2), "state": state},
        "each step's own key and value alone": {"out": scale * np.stack(own, 2), "state": last},
    }


def _change(case: Case, rule: Rule, rng: np.random.Generator) -> tuple[Named, Named]:
    """Draw orders of batch elements, heads and features; v, states and output get factors together.

    Gradients of outputs get their inverses, so that those of other inputs stay as they are.
    """
    import numpy as np

    groups = rng.permutation(case.Hkv)
    within = np.stack([rng.permutation(case.group) for _ in range(case.Hkv)])
    orders = {
        "b": rng.permutation(case.B),
        "g": groups,
        "h": (groups[:, None] * case.group + within).ravel(),
        "d": rng.permutation(case.D),
        "e": rng.permutation(case.Dv),
    }
    values = rng.choice([-1.0, 1.0], case.Dv) * np.exp2(rng.integers(0, 3, case.Dv))
    grow, shrink = ("v", "past_state", "state", "out"), (UPSTREAM, upstream_name("state"))
    return orders, dict.fromkeys(grow, ("e", values)) | dict.fromkeys(shrink, ("e", 1 / values))


def _growth(case: Case, rule: Rule, inputs: Named) -> tuple[float, float]:
    """Return in how many roundings of float32 right kernels differ, RMS and at most.

    A state is rounded in each step. Of n steps that it remembers, these errors add up as a random walk does
    (Higham and Mary 2019, A new approach to probabilistic rounding error analysis). They are spread evenly
    over a unit, whose standard deviation is 1 / sqrt(12), so the sum has sqrt(n r / 12) units, where r counts
    the roundings of a step (:func:`_roundings`). Besides, a kernel that takes a chunk at once has
    e^(G_i - G_j) for the decays between two of its steps. G is a sum from the chunk's beginning, so its
    rounding is relative to the sum, and that of the power is absolute: it counts in nats.
    """
    import numpy as np

    if case.Lq == 0:
        return 0.0, 0.0
    decay = np.asarray(inputs.get("decay", 0.0), np.float64)
    if "rate" in inputs:
        # By feature of v, in the elements that forget least and most.
        ends = [(inputs["dt"] * end(inputs["rate"], axis=1)[:, None]) for end in (np.max, np.min)]
        decay = np.stack(ends, axis=-1).astype(np.float64)
    elif decay.ndim == 1:
        decay = np.broadcast_to(decay[:, None], (case.B, case.H, case.Lq))
    elif "decay" not in inputs:
        walk = sqrt(case.Lq * _roundings(case, rule) / 12)
        return walk, walk
    # Squares of what is left of an error are summed, so a head that decays by g a step remembers 1 / 2|g|.
    slowest = np.abs(decay).mean(axis=2).min()
    walk = sqrt(min(case.Lq, 0.5 / slowest if slowest else case.Lq) * _roundings(case, rule) / 12)
    since = np.cumsum(decay, axis=2)
    before = since[:, :, :-SUMMED] if case.Lq > SUMMED else np.zeros_like(since[:, :, :1])
    sums = since[:, :, -before.shape[2] :] - before
    return walk + float(np.sqrt((sums**2).mean())), walk + float(np.abs(sums).max())


def _roundings(case: Case, rule: Rule) -> float:
    """Return how often a step rounds an element of the state.

    Once where the update is added to it. Where a step multiplies the state by a matrix, a kernel may form
    that, as I - beta k kᵀ of delta rules. Each element is then a sum of D products. The one with the element
    itself is as large as the sum, and comes after half of the others on average: the D / 2 additions behind
    it are rounded as the element is. A chunk of C steps at once sums C products of an element, for C steps:
    C / 2 additions in place of C.
    """
    update = _update(rule)
    return 1 + case.D / 2 if update.corrects or update.removes else 1.0


def _gradient_growth(
    case: Case, rule: Rule, inputs: Named, gradients: Named
) -> dict[str, tuple[float, float]]:
    """Return in how many roundings of float32 two gradients differ, beside those of outputs.

    A kernel that sums decays to G has their gradients as sums of those of G over the steps that follow. That
    of G is q·dq - k·dk (Yang et al. 2024, Gated Linear Attention Transformers, appendix C), whose rounding is
    relative to the two terms. These errors add up as a random walk does.

    The gradient of the first state is that of a later one less what the delta rule takes away in each step,
    beta k kᵀ of it. A kernel that takes a chunk at once rounds this sum relative to its terms: the gradients
    of the states along their keys, which are dv / beta.
    """
    import numpy as np

    if case.Lq == 0:
        return {}
    more: dict[str, tuple[float, float]] = {}
    beta, first = inputs.get("beta"), np.abs(gradients["past_state"])
    if beta is not None and first.any():
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.abs(gradients["v"] / beta[..., None])[:, :, :SUMMED]
        # A beta of 0 takes nothing away.
        of_states = np.nan_to_num(terms, posinf=0.0).max(axis=2)
        more["past_state"] = (
            float(np.sqrt((of_states**2).mean() / (first**2).mean())),
            float(of_states.max() / first.max()),
        )
    if "decay" not in inputs:
        return more
    products = [inputs[name] * gradients[name] for name in "qk"]
    if inputs["decay"].ndim < 4:
        products = [product.sum(-1) for product in products]
    sums = np.hypot(*products)
    exact, walk = np.asarray(gradients["decay"]), sqrt(min(case.Lq, SUMMED))
    rms, largest = np.sqrt((exact**2).mean()), np.abs(exact).max()
    if not rms:
        return more
    return more | {
        "decay": (walk * float(np.sqrt((sums**2).mean()) / rms), walk * float(sums.max() / largest))
    }


def _flops(case: Case, rule: Rule, pairs: int) -> float:
    """Count the operations of the steps: a decay, what the state has for the key, its sum, its reading."""
    update = _update(rule)
    # A rate is multiplied by dt, and the power of the product is that of each element alone.
    each = (
        4
        + {"": 0, "element": 3}.get(update.decays, 1)
        + (2 if update.corrects else 0)
        + (4 if update.removes else 0)
    )
    return float(case.B * case.H * case.Lq * each * case.D * case.Dv)


def _check(case: Case) -> str | None:
    if width := refuses_width(case):
        return width
    lengths = parse_batch(case.batch) if case.batch else ()
    if unlike := [pair for pair in lengths if pair[0] != pair[1]]:
        steps, keys = unlike[0]
        return (
            "recurrent reads each step with its own query, so a sequence has one length: "
            f"write q{steps}, not q{steps}s{keys}"
        )
    if case.Lq != case.Lk:
        return (
            f"recurrent reads each step with its own query: Lq = {case.Lq} and Lk = {case.Lk} must be equal"
        )
    return None if case.mask.is_none else "recurrent has no mask: each step sees all steps before it"


def _plain(setup: Setup) -> Callable[..., Any]:
    """Prepare the plain reference. It is imported here because it needs torch."""
    from attnbench.kit.recurrence import prepare

    return prepare(setup)


RECURRENT = Operation(
    name="recurrent",
    summary="a state for each head: q, k, v and a state to (B, H, L, Dv) and the state after the last step",
    inputs=_inputs,
    outputs=_outputs,
    flops=_flops,
    solve=_solve,
    draw=_draw,
    check=_check,
    reference=_plain,
    updates=True,
    graded=("out", "state"),
    lengths=("steps",),
    baseline="recurrent_loop",
    stress=_stress,
    advice=ADVICE.get,
    trivial=_trivial,
    growth=_growth,
    gradient_growth=_gradient_growth,
    change=_change,
)
