"""A plugin with gated and differential attention: right ones in another way, and mistakes."""

from __future__ import annotations

from attnbench import Backend, hookimpl
from attnbench.kit.masks import keep_mask

GATED = "gated_output/scaled_dot/B3-H4-Hkv2-Lq17-Lk29-D8-Dv8/causal:lower_right/{}"
DIFFERENTIAL = "differential/scaled_dot/B3-H8-Hkv4-Lq17-Lk29-D8-Dv16/causal:lower_right/{}"

ROTATED = "rotated/scaled_dot/B3-H4-Hkv2-Lq17-Lk29-D8-Dv8/causal:lower_right/{}"

MISTAKES = {
    "gate_without_the_sigmoid": GATED,
    "gate_as_silu": GATED,
    "gate_before_the_sum": GATED,
    "gate_of_the_next_head": GATED,
    "gate_of_the_first_feature": GATED,
    "gate_forgotten": GATED,
    "gate_on_the_scores": GATED,
    "lambda_forgotten": DIFFERENTIAL,
    "lambda_added": DIFFERENTIAL,
    "lambda_on_the_first_half": DIFFERENTIAL,
    "lambda_one": DIFFERENTIAL,
    "lambda_before_the_softmax": DIFFERENTIAL,
    "heads_next_to_each_other": DIFFERENTIAL,
    "halves_exchanged": DIFFERENTIAL,
    "one_softmax_of_the_difference": DIFFERENTIAL,
    "scaled_by_one_less_lambda": DIFFERENTIAL,
    "norm_after_the_turn": ROTATED,
    "norm_of_all_heads": ROTATED,
    "norm_forgotten": ROTATED,
    "norm_without_its_weights": ROTATED,
    "norms_exchanged": ROTATED,
    "norm_with_the_mean_taken_away": ROTATED,
    "turned_in_neighbours": ROTATED,
    "turned_the_other_way": ROTATED,
    "queries_count_from_0": ROTATED,
    "keys_count_from_1": ROTATED,
    "keys_not_turned": ROTATED,
    "angles_of_all_features": ROTATED,
}


def prepare(setup, mistake=""):
    import torch

    case = setup.case
    kept = keep_mask(case, "cpu")
    dropped = torch.zeros(1, 1, case.Lq, case.Lk, dtype=torch.bool) if kept is None else ~kept

    def weights_of(q, k):
        scores = q @ k.repeat_interleave(case.group, 1).mT * case.D**-0.5
        return scores.masked_fill(dropped, -torch.inf)

    def gated(q, k, v, gate):
        if mistake == "gate_of_the_next_head":
            gate = gate.roll(-1, 1)
        if mistake == "gate_of_the_first_feature":
            gate = gate[..., :1]
        opened = {"gate_without_the_sigmoid": gate, "gate_as_silu": torch.nn.functional.silu(gate)}.get(
            mistake, gate.sigmoid()
        )
        v = v.repeat_interleave(case.group, 1)
        scores = weights_of(q, k)
        if mistake == "gate_on_the_scores":
            return (scores * opened.mean(-1, keepdim=True)).softmax(-1) @ v
        if mistake == "gate_before_the_sum":
            return scores.softmax(-1) @ (v * opened[:, :, :1])
        out = scores.softmax(-1) @ v
        return out if mistake == "gate_forgotten" else out * opened

    def differential(q, k, v, lam):
        if mistake == "heads_next_to_each_other":
            order = torch.arange(case.H).view(-1, 2).T.flatten()
            q = q[:, order]
        scores = weights_of(q, k)
        first, second = scores.chunk(2, 1)
        values = v.repeat_interleave(case.group, 1)
        if mistake == "halves_exchanged":
            first, second = second, first
        if mistake == "one_softmax_of_the_difference":
            return (first - lam * second.masked_fill(second.isneginf(), 0)).softmax(-1) @ values
        if mistake == "lambda_before_the_softmax":
            return (first.softmax(-1) - (lam * second).softmax(-1)) @ values
        first, second = first.softmax(-1) @ values, second.softmax(-1) @ values
        return {
            "lambda_forgotten": first - 0.8 * second,
            "lambda_added": first + lam * second,
            "lambda_on_the_first_half": lam * first - second,
            "lambda_one": first - second,
            "scaled_by_one_less_lambda": (first - lam * second) * (1 - lam),
        }.get(mistake, first - lam * second)

    def turned(x, first):
        count, D = x.shape[2:]
        pairs = D if mistake == "angles_of_all_features" else D // 2
        angles = torch.arange(first, first + count)[:, None] * 10000.0 ** (-torch.arange(D // 2) / pairs)
        if mistake == "turned_the_other_way":
            angles = -angles if first else angles
        turn = torch.polar(torch.ones_like(angles), angles)
        if mistake == "turned_in_neighbours":
            a = torch.complex(x[..., ::2].contiguous(), x[..., 1::2].contiguous()) * turn
            return torch.stack([a.real, a.imag], -1).flatten(-2)
        a = torch.complex(x[..., : D // 2].contiguous(), x[..., D // 2 :].contiguous()) * turn
        return torch.cat([a.real, a.imag], -1)

    def normed(x, weights):
        if mistake == "norm_forgotten":
            return x * weights
        if mistake == "norm_with_the_mean_taken_away":
            x = x - x.mean(-1, keepdim=True)
        axes = (1, 3) if mistake == "norm_of_all_heads" else (3,)
        x = x / (x.square().mean(axes, keepdim=True) + 1e-6).sqrt()
        return x if mistake == "norm_without_its_weights" else x * weights

    def rotated(q, k, v, norm_q, norm_k):
        dtype, (q, k, norm_q, norm_k) = v.dtype, (x.float() for x in (q, k, norm_q, norm_k))
        if mistake == "norms_exchanged":
            norm_q, norm_k = norm_k, norm_q
        begin = 0 if mistake == "queries_count_from_0" else case.Lk - case.Lq
        first = 1 if mistake == "keys_count_from_1" else 0
        if mistake == "norm_after_the_turn":
            q, k = normed(turned(q, begin), norm_q), normed(turned(k, first), norm_k)
        else:
            q, k = turned(normed(q, norm_q), begin), normed(k, norm_k)
            k = k if mistake == "keys_not_turned" else turned(k, first)
        return weights_of(q.to(dtype), k.to(dtype)).softmax(-1) @ v.repeat_interleave(case.group, 1)

    return {"gated_output": gated, "rotated": rotated}.get(case.operation, differential)


@hookimpl
def attnbench_backends():
    for name in ("by_products", *MISTAKES):
        operation = MISTAKES[name].split("/")[0] if name in MISTAKES else None
        yield Backend(
            name=name,
            summary=name,
            prepare=lambda setup, mistake=name if name in MISTAKES else "": prepare(setup, mistake),
            operations=(operation,) if operation else ("gated_output", "differential", "rotated"),
            rules=("scaled_dot",),
            masks=("any",),
        )
