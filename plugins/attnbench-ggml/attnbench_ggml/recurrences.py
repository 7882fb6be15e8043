"""ggml_gated_delta_net, ggml_gated_linear_attn, ggml_rwkv_wkv7, ggml_ssm_scan: recurrences with a state.

An operator writes its outputs and then its states into one tensor. Three of them have a state whose first
axis is that of the value, so it is copied on the way in; a transposed view comes out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attnbench import Backend, Case, Rule, Setup
from attnbench_ggml.graph import Graph, other_layout

if TYPE_CHECKING:
    from torch import Tensor

LEAST_DT, SHRUNK = 32.0, 2.0**45
"""``ggml_ssm_scan`` takes the softplus of dt, which is dt itself above 20. So dt is minus the decay times a
large power of two, by which A is smaller, and at least 32: a decay of 0 becomes -2^-40."""

STEP = 32
"""The floats of a head that ``ggml_rwkv_wkv7`` takes at once, without a loop for the rest."""


def prepare_delta(setup: Setup) -> Callable[..., Any]:
    """Return ggml_gated_delta_net as a function of q, k, v, decay, beta and the state.

    It gives q head h % Hkv to v head h, where h // (H / Hkv) is meant. So each head of q and k with its heads
    of v is a sequence of its own to it: strides say that, and only decay, beta and the state are copied.
    """
    import torch

    case, update = setup.case, setup.rule.update
    assert update is not None
    N, L = case.B * case.Hkv, case.Lq
    heads = N, L, case.group, case.Dv

    def laid(*inputs: Tensor) -> tuple[Tensor, ...]:
        q, k, v, *more, beta, state = inputs
        # The graph holds the strides of contiguous inputs.
        q, k = (x.contiguous().view(N, 1, L, case.D).transpose(1, 2) for x in (q, k))
        v = v.contiguous().view(N, case.group, L, case.Dv).transpose(1, 2)
        beta = beta.reshape(N, case.group, L, 1).transpose(1, 2).contiguous()
        decay = torch.zeros_like(beta)
        if more:
            decay = more[0].reshape(N, case.group, L, -1).transpose(1, 2).contiguous()
        return q, k, v, decay, beta, state.reshape(N, case.group, case.D, case.Dv).mT.contiguous()

    graph = _graph(setup, "ggml_gated_delta_net", laid, [1])

    def call(*inputs: Tensor) -> tuple[Tensor, Tensor]:
        out, state = _parts(graph.compute(laid(*inputs)), case)
        # A head of k with its heads of v is one axis more.
        read = out.view(heads).transpose(1, 2).reshape(case.B, case.H, L, case.Dv)
        return read, state.mT

    return call


def prepare_linear(setup: Setup) -> Callable[..., Any]:
    """Return ggml_gated_linear_attn as a function of q, k, v, decay and the state.

    It takes steps before heads, and a factor for each feature of k in place of a decay.
    """
    import torch

    case = setup.case

    def laid(*inputs: Tensor) -> tuple[Tensor, ...]:
        q, k, v, *more, state = inputs
        kept = more[0].exp()[..., None] if more else torch.ones(())
        kept = kept.expand(case.B, case.H, case.Lq, case.D)
        steps = (_steps_first(x, case) for x in (_repeated(k, case), v, _repeated(q, case), kept))
        return (*steps, state.reshape(case.B, -1))

    graph = _graph(setup, "ggml_gated_linear_attn", laid, [float(case.D**-0.5)])
    return lambda *inputs: _read(graph.compute(laid(*inputs)), case)


def prepare_wkv7(setup: Setup) -> Callable[..., Any]:
    """Return ggml_rwkv_wkv7 as a function of q, k, v, what else the rule has, and the state.

    Its update is S ← diag(w) S + b (Sᵀa)ᵀ + k vᵀ. The gated delta rule is that with w = e^g, a = -w k, and
    with beta k for both b and k; without a correction a = 0. It has no scale, which q brings.
    """
    import torch

    case, update = setup.case, setup.rule.update
    assert update is not None

    def laid(*inputs: Tensor) -> tuple[Tensor, ...]:
        q, k, v, *more, state = inputs
        q, k = case.D**-0.5 * _repeated(q, case), _repeated(k, case)
        beta = more.pop()[..., None] if update.corrects else None
        a, b = (more.pop(-2), more.pop()) if update.removes else (torch.zeros_like(k), k)
        kept = more[0].exp() if more else torch.ones(())
        kept = (kept[..., None] if kept.ndim == 3 else kept).expand_as(k)
        if beta is not None:
            a, b, k = -kept * k, beta * k, beta * k
        steps = (_steps_first(x, case) for x in (q, kept, k, v, a, b))
        return (*steps, state.mT.reshape(case.B, -1))

    graph = _graph(setup, "ggml_rwkv_wkv7", laid, [])

    def call(*inputs: Tensor) -> tuple[Tensor, Tensor]:
        out, state = _read(graph.compute(laid(*inputs)), case)
        return out, state.mT

    return call


def prepare_scan(setup: Setup) -> Callable[..., Any]:
    """Return ggml_ssm_scan, the scan of Mamba-2, as a function of q, k, v, decay and the state.

    Its update is S ← e^(dt A) S + dt x Bᵀ, of a state (Dv, D). q is C, with the scale; k is B; v / dt is x.
    dt and A are such that the softplus changes nothing and all products with powers of two are exact.
    """
    import torch

    case = setup.case

    def laid(*inputs: Tensor) -> tuple[Tensor, ...]:
        q, k, v, *more, state = inputs
        dt = (-SHRUNK * more[0]).clamp(min=LEAST_DT) if more else torch.full(v.shape[:3], LEAST_DT)
        rates = torch.full((case.H, 1), -1 / SHRUNK if more else 0.0)
        # A tensor of one step has any stride along it and counts as contiguous to torch, not to ggml.
        x, dt, k, q = (
            one.transpose(1, 2).clone(memory_format=torch.contiguous_format)
            for one in (v / dt[..., None], dt, k, case.D**-0.5 * q)
        )
        ids = torch.arange(case.B, dtype=torch.int32)
        return state.mT.clone(memory_format=torch.contiguous_format), x, dt, rates, k, q, ids

    graph = _graph(setup, "ggml_ssm_scan", laid, [1])

    def call(*inputs: Tensor) -> tuple[Tensor, Tensor]:
        written = graph.compute(laid(*inputs))
        outputs = case.B * case.H * case.Lq * case.Dv
        out = written[:outputs].view(case.B, case.Lq, case.H, case.Dv).transpose(1, 2)
        return out, written[outputs:].view(case.B, case.H, case.Dv, case.D).mT

    return call


def _graph(
    setup: Setup, operator: str, laid: Callable[..., tuple[Tensor, ...]], more: list[int | float]
) -> Graph:
    """Build the graph from tensors that lie as those of calls do."""
    import torch

    from attnbench.types.problem import call_inputs

    graph = Graph()
    tensors = laid(*(torch.zeros(spec.shape) for spec in call_inputs(setup.case, setup.rule)))
    graph.operate(operator, [graph.add(tensor) for tensor in tensors], more)
    graph.finish(setup.case.threads)
    return graph


def _repeated(x: Tensor, case: Case) -> Tensor:
    return x.repeat_interleave(case.group, 1)


def _steps_first(x: Tensor, case: Case) -> Tensor:
    """Return (B, H, L, D) as the steps of all sequences, (B·L, H, D)."""
    return x.transpose(1, 2).reshape(case.B * case.Lq, case.H, x.shape[-1]).contiguous()


def _parts(written: Tensor, case: Case) -> tuple[Tensor, Tensor]:
    """Return the outputs in one axis, and the states (B, H, ·, ·)."""
    outputs = case.B * case.H * case.Lq * case.Dv
    return written[:outputs], written[outputs:].view(case.B, case.H, case.D, case.Dv)


def _read(written: Tensor, case: Case) -> tuple[Tensor, Tensor]:
    """Return the outputs (B, H, L, Dv) and the states, of an operator with steps before heads."""
    out, state = _parts(written, case)
    return out.view(case.B, case.Lq, case.H, case.Dv).transpose(1, 2), state


def _square(case: Case, rule: Rule) -> str | None:
    return None if case.Dv == case.D else "the operator has as many features of v as of k"


def _whole_steps(case: Case, rule: Rule) -> str | None:
    if case.D % STEP:
        return f"the operator reads and writes behind heads whose size is not a multiple of {STEP}"
    return _square(case, rule)


def _backend(name: str, summary: str, prepare: Any, rules: tuple[str, ...], supports: Any) -> Backend:
    return Backend(
        name=name,
        summary=summary,
        prepare=prepare,
        supports=supports,
        available=other_layout,
        operations=("recurrent",),
        rules=rules,
        dtypes=("float32",),
        devices=("cpu",),
        requires=("libggml",),
        quadratic_copies=0,
    )


GGML_GATED_DELTA_NET = _backend(
    "ggml_gated_delta_net",
    "ggml's gated delta net, with a decay for each head or each feature",
    prepare_delta,
    ("delta", "gated_delta", "gated_delta_channels"),
    _square,
)

GGML_GATED_LINEAR_ATTN = _backend(
    "ggml_gated_linear_attn",
    "ggml's gated linear attention",
    prepare_linear,
    ("linear", "gated"),
    _square,
)

GGML_RWKV_WKV7 = _backend(
    "ggml_rwkv_wkv7",
    "ggml's update of RWKV-7, of which the other rules are special cases",
    prepare_wkv7,
    ("linear", "gated", "delta", "gated_delta", "gated_delta_channels", "rwkv7"),
    _whole_steps,
)

GGML_SSM_SCAN = _backend(
    "ggml_ssm_scan",
    "ggml's scan of Mamba-2, with a decay for each head",
    prepare_scan,
    ("linear", "gated"),
    lambda case, rule: None,
)
