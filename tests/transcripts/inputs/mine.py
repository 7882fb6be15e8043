"""A plugin that brings something of every kind."""

from attnbench import Backend, EnvironmentFact, Metric, Reporter, hookimpl


def prepare(setup):
    import torch

    scale = setup.constants.get("scale", 1)

    def attend(q, k, v):
        scores = q @ k.mT * scale
        return torch.softmax(scores, -1) @ v

    return attend


def wrong(setup):
    # Of no shape that is ever asked for, so that advice does not depend on what is drawn.
    return lambda q, k, v: v.sum()


def supports(case, rule):
    return None if case.mask.is_none and case.Hkv == case.H else "no masks and no shared heads"


@hookimpl
def attnbench_backends():
    yield Backend(
        name="mine", summary="a right one", prepare=prepare, supports=supports, rules=("dot", "scaled_dot")
    )
    yield Backend(
        name="wrong", summary="a wrong one", prepare=wrong, supports=supports, rules=("dot", "scaled_dot")
    )


@hookimpl
def attnbench_metrics():
    yield Metric("price", "what a call costs", "n$/call", lambda record, case: record.median_ms * 2)
    yield Metric("shaky", "fails on every record", "shaky", lambda record, case: 1 / 0)


@hookimpl
def attnbench_reporters():
    yield Reporter(
        "lines", "a line for each record", lambda rows, runs: f"{len(rows)} rows, {len(runs)} runs"
    )
    yield Reporter("broken", "fails", lambda rows, runs: rows[0]["nothing"])


@hookimpl
def attnbench_environment_facts():
    yield EnvironmentFact("turbo", "whether it is on", lambda: True)
