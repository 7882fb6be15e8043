"""A plugin with an operation of its own: attention to keys that lie in pages, with its log-sum-exp.

Integers among the inputs, storage apart from meaning, two outputs, in one file with its backends.
"""

from __future__ import annotations

from attnbench import Backend, Mask, Operation, TensorSpec, hookimpl

PAGE = 4
MISTAKES = (
    "keeps its first table",
    "keeps outputs by address",
    "ignores the table",
    "wrong lse",
    "one output",
)


def inputs(case, rule):
    pages = (case.B, case.Hkv, case.Lk // PAGE, PAGE)
    return (
        TensorSpec("q", (case.B, case.H, case.Lq, case.D)),
        TensorSpec("k_pages", (*pages, case.D)),
        TensorSpec("v_pages", (*pages, case.Dv)),
        TensorSpec("table", (case.Lk // PAGE,), "int64"),
    )


def outputs(case):
    return (
        TensorSpec("out", (case.B, case.H, case.Lq, case.Dv), axes="bhid"),
        TensorSpec("lse", (case.B, case.H, case.Lq), axes="bhi"),
    )


def draw(case, rule, stream):
    drawn = {spec.name: stream(spec.name).standard_normal(spec.shape) for spec in inputs(case, rule)[:3]}
    return drawn | {"table": stream("table").permutation(case.Lk // PAGE)}


def check(case):
    return None if case.Lk % PAGE == 0 else f"Lk = {case.Lk} is not a multiple of the page, {PAGE}"


def solve(problem):
    import numpy as np

    from attnbench.oracle.solve import scores_of, softmax

    case, given = problem.case, problem.inputs
    k, v = (given[name][:, :, given["table"]] for name in ("k_pages", "v_pages"))
    k, v = (x.reshape(case.B, case.Hkv, case.Lk, -1) for x in (k, v))
    out = np.zeros((case.B, case.H, case.Lq, case.Dv))
    lse = np.zeros((case.B, case.H, case.Lq))
    rows = np.arange(case.Lq)
    for b, h, at, scores in scores_of(case, problem.rule, problem.rule_parameters, given["q"], k, rows):
        out[b, h, at] = softmax(scores) @ v[b, h // case.group]
        lse[b, h, at] = np.logaddexp.reduce(scores, axis=-1)
    return {"out": out, "lse": lse}


@hookimpl
def attnbench_operations():
    yield Operation(
        name="paged_with_lse",
        summary="attention to keys and values in pages, with the log-sum-exp of the scores",
        inputs=inputs,
        outputs=outputs,
        flops=lambda case, rule, pairs: 2 * pairs * (case.D + case.Dv),
        solve=solve,
        draw=draw,
        check=check,
    )


def prepare(setup, mistake=""):
    import torch

    case = setup.case
    later = torch.ones(case.Lq, case.Lk, dtype=torch.bool).triu(1)
    scale = case.D**-0.5
    state = {}

    def call(q, k_pages, v_pages, table):
        if mistake == "keeps outputs by address" and q.data_ptr() in state:
            return tuple(x.clone() for x in state[q.data_ptr()])
        if mistake == "keeps its first table":
            table = state.setdefault("table", table.clone())
        if mistake == "ignores the table":
            table = table.sort().values
        k, v = (x[:, :, table].flatten(2, 3).repeat_interleave(case.group, 1) for x in (k_pages, v_pages))
        scores = (q @ k.mT * scale).masked_fill(later, -torch.inf)
        lse = scores.logsumexp(-1)
        if mistake == "wrong lse":
            lse = scores.amax(-1)
        out = scores.softmax(-1) @ v
        if mistake == "keeps outputs by address":
            state[q.data_ptr()] = out.clone(), lse.clone()
        return out if mistake == "one output" else (out, lse)

    return call


def supports(case, rule):
    if case.constants:
        return "scales by the root of D alone"
    return None if case.mask == Mask(causal="upper_left") else "needs causal"


@hookimpl
def attnbench_backends():
    for mistake in ("", *MISTAKES):
        yield Backend(
            name=("wrong " + mistake).replace(" ", "_") if mistake else "gathered",
            summary=mistake or "gather the pages, then matmul, softmax, matmul",
            prepare=lambda setup, mistake=mistake: prepare(setup, mistake),
            supports=supports,
            operations=("paged_with_lse",),
            rules=("scaled_dot",),
        )
