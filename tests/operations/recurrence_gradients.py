"""A plugin with a backward pass written by hand: the steps backwards, and mistakes of honest authors."""

from __future__ import annotations

import torch

from attnbench import Backend, hookimpl
from attnbench.kit.dtypes import case_dtype
from attnbench.kit.recurrence import named_inputs
from attnbench.types.case import PASSES

MISTAKES = {
    "q_without_the_scale": "q",
    "q_of_the_first_head_alone": "q",
    "q_by_the_state_before": "q",
    "state_dropped": "k",
    "decay_left_out_backwards": "k",
    "decay_twice_backwards": "k",
    "k_without_the_correction": "k",
    "k_by_the_value_alone": "k",
    "correction_left_out_backwards": "k",
    "v_without_beta": "v",
    "v_of_the_last_chunk_dropped": "v",
    "decay_dropped": "decay",
    "decay_by_the_state_after": "decay",
    "decay_by_the_state_before": "decay",
    "beta_without_the_correction": "beta",
    "beta_dropped": "beta",
    "past_state_dropped": "past_state",
    "past_state_transposed": "past_state",
    "past_state_before_the_first_decay": "past_state",
}
"""By name, the first gradient that is wrong."""

CHUNK = 16


class Reversed(torch.autograd.Function):
    """Steps of a gated delta rule. q, k: (B, H, L, D); decay, beta: (B, H, L, 1); state: (B, H, D, Dv)."""

    @staticmethod
    def forward(ctx, mistake, scale, group, q, k, v, decay, beta, state):
        before, read = [], []
        for i in range(q.shape[2]):
            before.append(state)
            state = decay[:, :, i, :, None].exp() * state
            own = beta[:, :, i] * (v[:, :, i] - (k[:, :, i, None] @ state)[:, :, 0])
            state = state + k[:, :, i, :, None] * own[:, :, None]
            read.append(scale * (q[:, :, i, None] @ state)[:, :, 0])
        ctx.save_for_backward(q, k, v, decay, beta, *before, state)
        ctx.given = mistake, scale, group
        return torch.stack(read, 2), state

    @staticmethod
    def backward(ctx, d_out, d_state):
        mistake, scale, group = ctx.given
        q, k, v, decay, beta, *states = ctx.saved_tensors
        dq, dk, dv, dg, db = (torch.zeros_like(x) for x in (q, k, v, decay, beta))
        ds = torch.zeros_like(d_state) if mistake == "state_dropped" else d_state
        for i in reversed(range(q.shape[2])):
            key, kept = k[:, :, i, :, None], decay[:, :, i, :, None].exp()
            decayed, after = kept * states[i], states[i + 1]
            lack = v[:, :, i, None] - key.mT @ decayed
            written = beta[:, :, i, None] * lack
            ds = ds + scale * q[:, :, i, :, None] * d_out[:, :, i, None]
            asked = states[i] if mistake == "q_by_the_state_before" else after
            dq[:, :, i] = (asked @ d_out[:, :, i, :, None])[..., 0]
            dq[:, :, i] *= 1 if mistake == "q_without_the_scale" else scale
            du = key.mT @ ds
            dr = du if mistake == "v_without_beta" else beta[:, :, i, None] * du
            own = v[:, :, i, None] if mistake == "k_by_the_value_alone" else written
            dk[:, :, i] = (ds @ own.mT)[..., 0]
            if mistake != "k_without_the_correction":
                dk[:, :, i] -= (decayed @ (beta[:, :, i, None] * du).mT)[..., 0]
            last = q.shape[2] - q.shape[2] % CHUNK
            if mistake != "v_of_the_last_chunk_dropped" or i < last:
                dv[:, :, i] = dr[:, :, 0]
            if mistake != "beta_dropped":
                known = v[:, :, i, None] if mistake == "beta_without_the_correction" else lack
                db[:, :, i] = (du * known).sum(-1)
            if mistake != "correction_left_out_backwards":
                ds = ds - key * (beta[:, :, i, None] * du)
            if mistake != "decay_dropped":
                by = {"decay_by_the_state_after": after, "decay_by_the_state_before": states[i]}
                each = (ds * by.get(mistake, decayed)).sum(-1)
                dg[:, :, i] = each if dg.shape[-1] > 1 else each.sum(-1, keepdim=True)
            if mistake == "past_state_before_the_first_decay" and i == 0:
                break
            if mistake != "decay_left_out_backwards":
                ds = (kept**2 if mistake == "decay_twice_backwards" else kept) * ds
        if mistake == "q_of_the_first_head_alone":
            dq = dq.unflatten(1, (-1, group))
            dq = torch.cat([dq[:, :, :1], torch.zeros_like(dq[:, :, 1:])], 2).flatten(1, 2)
        if mistake == "past_state_dropped":
            ds = torch.zeros_like(ds)
        if mistake == "past_state_transposed":
            ds = ds.mT.contiguous()
        return None, None, None, dq, dk, dv, dg, db, ds


def prepare(setup, mistake=""):
    case, named = setup.case, named_inputs(setup)

    def call(*inputs):
        given = named(*inputs)
        own = (given[name] for name in ("q", "k", "v", "decay", "beta", "past_state"))
        out, state = Reversed.apply(mistake, case.D**-0.5, case.group, *own)
        return out.to(case_dtype(case)), state

    return call


def prepare_at_once(setup):
    """Compute all steps of a gated rule at once: gradients of decays are sums over all later steps."""
    case, named = setup.case, named_inputs(setup)

    def call(*inputs):
        given = named(*inputs)
        q, k, v, state = (given[name] for name in ("q", "k", "v", "past_state"))
        since = given["decay"].cumsum(2)
        between = (since - since.mT).tril().exp().tril()
        out = (q @ k.mT * between) @ v + (since.exp() * q) @ state
        last = since[:, :, -1:]
        after = last.exp() * state + ((last - since).exp() * k).mT @ v
        return (case.D**-0.5 * out).to(case_dtype(case)), after

    return call


@hookimpl
def attnbench_backends():
    for name in ("steps_backwards", *MISTAKES):
        mistake = name if name in MISTAKES else ""
        yield Backend(
            name=name, summary=name, prepare=lambda setup, mistake=mistake: prepare(setup, mistake),
            operations=("recurrent",), rules=("gated_delta", "gated_delta_channels"), passes=PASSES,
        )  # fmt: skip
    yield Backend(
        name="at_once", summary="all steps at once", prepare=prepare_at_once,
        operations=("recurrent",), rules=("gated",), passes=PASSES,
    )  # fmt: skip
