"""A plugin with gated and differential attention: right ones in another way, and mistakes."""

from __future__ import annotations

from attnbench import Backend, hookimpl
from attnbench.kit.masks import keep_mask

GATED = "gated/scaled_dot/B3-H4-Hkv2-Lq17-Lk29-D8-Dv8/causal:lower_right/{}"
DIFFERENTIAL = "differential/scaled_dot/B3-H8-Hkv4-Lq17-Lk29-D8-Dv16/causal:lower_right/{}"

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

    return gated if case.operation == "gated" else differential


@hookimpl
def attnbench_backends():
    for name in ("by_products", *MISTAKES):
        operation = MISTAKES[name].split("/")[0] if name in MISTAKES else None
        yield Backend(
            name=name,
            summary=name,
            prepare=lambda setup, mistake=name if name in MISTAKES else "": prepare(setup, mistake),
            operations=(operation,) if operation else ("gated", "differential"),
            rules=("scaled_dot",),
            masks=("any",),
        )
