"""Gradients of recurrences: the exact ones, and what the judge refuses and keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import recurrence_gradients
import torch
from batch_judge import Judge

import attnbench
from attnbench.cases.ids import parse_case
from attnbench.inputs.draw import draw_inputs, draw_upstreams
from attnbench.plugins.registry import Registry, load_wanted
from attnbench.types.backend import Setup
from attnbench.types.operation import Problem, operation_of
from attnbench.verifier.errors import Scale
from attnbench.verifier.parts import gradient_parts
from attnbench.worker.gradients import plain_gradients

PLUGIN = str(Path(recurrence_gradients.__file__))
RULES = ("linear", "lightning", "gated", "delta", "gated_delta", "gated_delta_channels", "rwkv7", "selective")


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_wanted([PLUGIN])


@pytest.fixture(scope="module")
def judges(registry: Registry) -> Callable[[str], Judge]:
    """Open each case once."""
    return cache(lambda case: Judge(registry, case))


@pytest.mark.parametrize("rule", RULES)
def test_exact_gradients_are_those_of_finite_differences(registry: Registry, rule: str) -> None:
    """Of NumPy's recurrence, which knows no graph, along a random direction of each input."""
    case = parse_case(f"recurrent/{rule}/B2-H4-Hkv2-L5-D3-Dv4/none/float64/cpu/both")
    record, solve = registry.rule(rule), operation_of(case).solve
    assert solve is not None
    inputs, upstreams = draw_inputs(case, record, 3, 0), draw_upstreams(case, 3, 0)

    def loss(given: dict[str, np.ndarray]) -> np.longdouble:
        exact = solve(Problem(case, record, {}, {}, given))
        parts = ((exact["out"], upstreams["upstream"]), (exact["state"], upstreams["upstream_state"]))
        return sum((answer * upstream).sum() for answer, upstream in parts)

    setup = Setup(case, record, record.bind(case, {}), {}, {})
    got = plain_gradients(
        setup, [*map(torch.from_numpy, inputs.values())], *map(torch.from_numpy, upstreams.values())
    )
    assert list(got) == list(inputs)
    rng = np.random.default_rng(5)
    for name, gradient in got.items():
        along = rng.standard_normal(gradient.shape).astype(np.longdouble)
        ahead, back = (loss(inputs | {name: inputs[name] + step * along}) for step in (1e-6, -1e-6))
        assert float((ahead - back) / 2e-6) == pytest.approx(
            float((gradient.numpy() * along).sum()), rel=1e-8
        )


@pytest.mark.parametrize(
    ("case", "names"),
    [
        ("gated/H4-Hkv2-L65-D8-Dv12/none/float32/cpu/both", ("recurrent_chunked", "at_once")),
        (
            "gated/H2-L300-D4-Dv4/none/float32/cpu/backward",
            ("recurrent_loop", "recurrent_chunked", "at_once"),
        ),
        (
            "gated_delta/B2-H4-Hkv2-L65-D8-Dv12/none/float32/cpu/both",
            ("recurrent_chunked", "steps_backwards"),
        ),
        ("gated_delta/H2-L1-D8/none/bfloat16/cpu/both", ("recurrent_loop", "recurrent_chunked")),
        ("gated_delta_channels/H2-L37-D8/none/bfloat16/cpu/both", ("recurrent_chunked", "steps_backwards")),
        ("delta/H2-L37-D8/none/float64/cpu/both", ("recurrent_loop", "recurrent_chunked")),
        ("delta/B4-H12-L26-D1/none/float32/cpu/both", ("recurrent_chunked",)),
        ("rwkv7/H2-L37-D8/none/float32/cpu/both", ("recurrent_loop",)),
        ("selective/B2-H2-Hkv1-L37-D8-Dv12/none/float32/cpu/both", ("recurrent_loop",)),
        pytest.param(
            "gated_delta/q37_q0_2q5_q65-H4-Hkv2-D8-Dv12/none/float32/cpu/both/packed",
            ("recurrent_loop", "recurrent_chunked"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_right_gradients_are_kept(judges: Callable[[str], Judge], case: str, names: tuple[str, ...]) -> None:
    judge = judges(f"recurrent/{case}")
    assert {name: found for name in names if (found := judge.problem(name))} == {}


def test_a_gradient_that_may_be_far_off_in_few_places_has_no_wider_rms_limit(
    judges: Callable[[str], Judge],
) -> None:
    opened = judges("recurrent/gated/H4-Hkv2-L65-D8-Dv12/none/float32/cpu/both").opened

    def scale(rms: float, most: float, name: str = "k") -> Scale:
        operation = replace(operation_of(opened.case), gradient_growth=lambda *_: {name: (rms, most)})
        parts = {part.name: part for part in gradient_parts(opened.case, opened.rule, operation)}
        return parts["k"].limits.scales([opened.draw(0)], "")[0]

    plain, few, all_of_them = scale(0.0, 0.0), scale(0.0, 9.0), scale(9.0, 0.0)
    assert few.rms == plain.rms < all_of_them.rms
    assert all_of_them.largest == plain.largest < few.largest
    assert scale(9.0, 9.0, "q") == plain, "another gradient's terms"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("mistake", recurrence_gradients.MISTAKES)
def test_a_wrong_gradient_is_refused_by_its_name(
    judges: Callable[[str], Judge], mistake: str, dtype: str
) -> None:
    judge = judges(f"recurrent/gated_delta/B3-H4-Hkv2-L37-D8-Dv8/none/{dtype}/cpu/backward")
    problem = judge.problem(mistake)
    assert problem.startswith(f"the gradient of {recurrence_gradients.MISTAKES[mistake]}: ")
    assert "worst at (b=" in problem


@pytest.mark.slow
def test_a_run_checks_and_times_gradients(tmp_path: Path) -> None:
    run = attnbench.run(
        ["recurrent/gated_delta/H4-Hkv2-L20-D8/none/float32/cpu/both"],
        ["recurrent_loop", "recurrent_chunked"],
        repetitions=1,
        budget=0.02,
        out=tmp_path,
    )
    for record in run.records:
        assert (record.status, record.reason) == ("ok", "")
        assert set(record.parts) == {"out", "state", "q", "k", "v", "decay", "beta", "past_state"}
