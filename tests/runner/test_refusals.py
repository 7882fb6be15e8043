"""Consequences of a backend's declarations: refusals in one exact sentence, forking, and kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from attnbench.plugins.registry import load_registry
from attnbench.runner.case import refusal
from attnbench.runner.check import kernel_of
from attnbench.stats.protocol import can_be_forked, kept_over
from attnbench.types.backend import Backend
from attnbench.types.case import Case, Layer
from attnbench.types.mask import Mask

CASE = Case("attention", "dot", B=1, H=2, Hkv=2, Lq=16, Lk=16, D=8, Dv=8)
RULES = {name: entry.record for name, entry in load_registry().rules.items()}
GPU = ("cuda",)


def backend(name: str = "mine", **limits: Any) -> Backend:
    return Backend(name, "a test", prepare=lambda setup: lambda q, k, v: v, **limits)


def refused(case: Case = CASE, cuda: tuple[str, ...] = GPU, **limits: Any) -> tuple[str, str] | None:
    return refusal(backend(**limits), case, RULES[case.rule], devices=cuda)


MULTIHEAD = replace(CASE, operation="multihead", layer=Layer(16))
ON_CUDA = replace(CASE, device="cuda")


@pytest.mark.parametrize(
    ("limits", "case", "status", "sentence"),
    [
        ({"devices": ("cpu",)}, ON_CUDA, "unavailable", "runs on cpu only"),
        ({}, MULTIHEAD, "unsupported", "computes attention, not multihead"),
        ({"rules": ("cosine",)}, CASE, "unsupported", "computes cosine, not dot"),
        ({"rules": ("cosine", "alibi")}, CASE, "unsupported", "computes cosine and alibi, not dot"),
        (
            {"rules": ("cosine", "alibi", "additive")}, CASE, "unsupported",
            "computes cosine, alibi and additive, not dot",
        ),
        (
            {"needs_dot_form": True}, replace(CASE, rule="additive"), "unsupported",
            "needs a dot product; additive has no such form",
        ),
        ({"dtypes": ("float16",)}, CASE, "unsupported", "computes in float16, not float32"),
        (
            {}, replace(CASE, mask=Mask(explicit="bool", per_head=True)), "unsupported",
            "takes one mask for all heads; the case has bool:per_head",
        ),
        ({}, replace(CASE, pass_="backward"), "unsupported", "computes the forward pass, not backward"),
        (
            {"passes": ("backward", "both")}, CASE, "unsupported",
            "computes the backward and both pass, not forward",
        ),
        (
            {"passes": ("both",)}, replace(CASE, pass_="both", cache="rotating"), "unsupported",
            "inputs rotate in forward passes only",
        ),
    ],
)  # fmt: skip
def test_each_limit_has_its_sentence(limits: dict[str, Any], case: Case, status: str, sentence: str) -> None:
    assert refused(case, **limits) == (status, sentence)


def test_without_a_gpu_nothing_runs_on_it_whatever_else_is_wrong() -> None:
    says = ("unavailable", "this machine has no CUDA device")
    assert refused(ON_CUDA, cuda=()) == says
    assert refused(ON_CUDA, cuda=(), devices=("cpu",), rules=("cosine",)) == says
    assert refused(CASE, cuda=()) is None


def test_gradients_that_tell_nothing_are_asked_of_nobody() -> None:
    one = replace(CASE, rule="cosine", D=1, pass_="both")
    status, sentence = refused(one, passes=("forward", "both")) or ("", "")
    assert status == "unsupported"
    assert sentence.startswith("one feature has no direction: the gradients of q and k are 0")
    assert refused(replace(one, pass_="forward"), passes=("forward", "both")) is None
    assert refused(replace(one, D=2), passes=("forward", "both")) is None


# --- forking, and whose kernel ran ----------------------------------------------------------------


def test_neither_a_device_nor_threads_nor_what_says_no_is_forked_when_prepared() -> None:
    assert can_be_forked(backend(), CASE)
    assert not can_be_forked(backend(), ON_CUDA)
    assert not can_be_forked(backend(), replace(CASE, threads=2))
    assert not can_be_forked(backend(forkable=False), CASE)
    # It is started anew three times at most.
    assert [kept_over(repetitions) for repetitions in (1, 3, 4, 9, 10)] == [1, 1, 2, 3, 4]


THEIRS = backend("theirs", marks=("_their_kernel", "_their_other_kernel"))
MINE, AS_THEIRS = backend(), backend(marks=("_their_kernel",))
OTHERS = [backend("a", marks=("_a",)), backend("b", marks=("_b",))]


@pytest.mark.parametrize(
    ("ran", "by", "others", "owner"),
    [
        (["mul", "_their_kernel"], MINE, [MINE, THEIRS], "theirs"),
        (["mul", "_their_other_kernel x12"], MINE, [MINE, THEIRS], "theirs"),
        (["mul", "_their_kernel_too", "the _their_kernel"], MINE, [MINE, THEIRS], ""),
        ([], MINE, [MINE, THEIRS], ""),
        # A declared kernel is the backend's own; among several others, the one that ran first counts.
        (["_their_kernel"], THEIRS, [MINE, THEIRS], ""),
        (["_their_kernel"], AS_THEIRS, [AS_THEIRS, THEIRS], ""),
        (["_their_kernel", "_their_other_kernel"], AS_THEIRS, [AS_THEIRS, THEIRS], "theirs"),
        (["_b", "_a"], MINE, OTHERS, "b"),
    ],
)
def test_a_kernel_is_known_by_a_name_that_ran(
    ran: list[str], by: Backend, others: list[Backend], owner: str
) -> None:
    assert kernel_of(ran, by, others) == owner
