"""Answers of timed calls: after every law each part is that of the solved draw, changed likewise."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from asked import RULES
from plain_here import PlainHere, open_here, plain_of

from attnbench.cases.ids import parse_case
from attnbench.inputs.symmetries import (
    Transform,
    apply,
    apply_to_upstream,
    draw_transform,
    identity,
    invert_gradient,
    settled,
)
from attnbench.ipc.names import HELD, UPSTREAM
from attnbench.verifier.case import CaseVerifier

ATTENTION = "attention/{}/B2-H4-Hkv2-Lq5-Lk6-D4-Dv3/{}/float64/cpu/both"
SQUARE = "attention/{}/B2-H4-Hkv2-L6-D4-Dv3/{}/float64/cpu/both"
LAYERS = (
    "multihead/scaled_dot/B3-H2-L5-D4-E6/none/float64/cpu/both",
    "multihead/scaled_dot/B3-H2-L5-D4-E6-bias/none/float64/cpu/both",
    "multihead/scaled_dot/B3-H2-L5-D4-E6/causal/float64/cpu/both",
    "multihead/general/B3-H2-Lq4-Lk5-D4-E6/none/float64/cpu/both",
)
LAWS = tuple(field.name for field in fields(Transform))


def cases() -> list[str]:
    found = list(LAYERS)
    for name, rule in sorted(RULES.items()):
        for mask in ("none", "causal"):
            texts = [text.format(name, mask) for text in (ATTENTION, SQUARE)]
            found += [text for text in texts if rule.supports(parse_case(text)) is None][:1]
    return found


def one_by_one(opened: CaseVerifier, seed: int) -> dict[str, Transform]:
    """A drawn composition, each law of it alone, by name. Queries and keys of one source go together."""
    whole = draw_transform(opened.case, opened.rule, np.random.default_rng(seed))
    still, inputs = identity(opened.case), tuple(opened.draw(0).inputs.values())
    alone: dict[str, Transform] = {}
    for law in LAWS:
        laws = ("queries", "keys") if law in ("queries", "keys") and opened.case.is_self_attention else (law,)
        change = replace(still, **{name: getattr(whole, name) for name in laws})
        if not np.array_equal(getattr(change, law), getattr(still, law)):
            alone[law] = settled(opened.case, change, inputs)
    return alone | {"all": settled(opened.case, whole, inputs)}


@pytest.mark.parametrize("case", cases())
def test_gradients_after_each_law_are_those_before_it_changed_likewise(case: str) -> None:
    """Against autograd of the plain reference, both in float64."""
    opened = open_here(case)
    plain = plain_of(opened)
    before = gradients(plain, opened.arrays(0, 0))
    tried = set()
    for seed in (1, 2, 3):
        for law, change in one_by_one(opened, seed).items():
            tried.add(law)
            drawn = opened.draw(0)
            assert drawn.upstream is not None
            given = apply(opened.case, change, tuple(drawn.inputs.values()))
            arrays = dict(zip(drawn.inputs, given, strict=True))
            arrays[UPSTREAM] = apply_to_upstream(opened.case, change, drawn.upstream)
            after = gradients(plain, arrays)
            assert after.keys() == before.keys()
            for name, gradient in after.items():
                limit = 1e-12 * max(np.abs(before[name]).max(), 0.01)
                back = invert_gradient(opened.case, change, name, gradient)
                np.testing.assert_allclose(back, before[name], rtol=0, atol=limit, err_msg=law)
    if case == ATTENTION.format("scaled_dot", "none"):
        assert tried == {*LAWS, "all"} - {"mirrored"}
    if case == LAYERS[0]:
        assert tried == {"batches", "queries", "keys", "mirrored", "all"}


def gradients(plain: PlainHere, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: array for name, array in plain.exact(arrays).items() if not name.startswith(HELD)}


@pytest.mark.parametrize(
    "case",
    [
        "attention/scaled_dot/B2-H4-Hkv2-Lq9-Lk7-D8/none/float32",
        "attention/scaled_dot/B2-H4-Hkv2-Lq9-Lk7-D8/none/float32/cpu/both",
        "attention/alibi/B2-H4-L8-D8/causal/float32/cpu/backward",
        "multihead/scaled_dot/B3-H2-L8-D4-E6/none/float32",
        "multihead/scaled_dot/B3-H2-L8-D4-E6/none/float32/cpu/both",
        "multihead/general/B3-H2-Lq8-Lk6-D4-E6-bias/none/bfloat16/cpu/both",
    ],
)
def test_right_answers_after_any_change_pass_and_those_to_others_do_not(case: str) -> None:
    opened = open_here(case)
    plain = plain_of(opened)
    plain.score(timed=1)
    timed = len(opened.families)
    unchanged = plain.answer(timed)
    assert opened.score_timed(timed, 0, unchanged) == ("", "")
    laws = set()
    for change in range(1, 13):
        right = plain.answer(timed, change)
        assert opened.score_timed(timed, change, right) == ("", "")
        problem, law = opened.score_timed(timed, change, unchanged)
        assert law
        assert "is above" in problem
        laws |= set(law.split(", "))
    assert len(laws) >= 2


@pytest.mark.parametrize("part", ["out", "q", "k", "v"])
def test_the_part_that_is_stale_is_named_with_the_law(part: str) -> None:
    """What a backend keeps of gradients alone is found as well."""
    opened = open_here("attention/scaled_dot/B2-H4-L8-D8/none/float32/cpu/both")
    plain = plain_of(opened)
    plain.score(timed=1)
    timed = len(opened.families)
    stale, right = plain.answer(timed), plain.answer(timed, 3)
    problem, law = opened.score_timed(timed, 3, right | {part: stale[part]})
    words = "" if part == "out" else f"the gradient of {part}: "
    assert problem.startswith(words + "RMS error")
    assert "permuted" in law
