"""Consequences of a backend's declarations: refusals in one exact sentence, forking, and kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from attnbench.plugins.registry import load_registry
from attnbench.runner.case import refusal
from attnbench.runner.check import kernel_of
from attnbench.stats.protocol import can_be_forked
from attnbench.types.backend import Backend
from attnbench.types.case import Case, Layer
from attnbench.types.mask import Mask

CASE = Case("attention", "dot", B=1, H=2, Hkv=2, Lq=16, Lk=16, D=8, Dv=8)
RULES = {name: entry.record for name, entry in load_registry().rules.items()}
GPU = ("some GPU",)


def backend(**limits: Any) -> Backend:
    return Backend("mine", "a test", prepare=lambda setup: lambda q, k, v: v, **limits)


def refused(case: Case = CASE, cuda: tuple[str, ...] = GPU, **limits: Any) -> tuple[str, str] | None:
    return refusal(backend(**limits), case, RULES[case.rule], cuda_devices=cuda)


MULTIHEAD = replace(CASE, operation="multihead", layer=Layer(16))
ON_CUDA = replace(CASE, device="cuda")


@pytest.mark.parametrize(
    ("limits", "case", "status", "sentence"),
    [
        ({"devices": ("cpu",)}, ON_CUDA, "unavailable", "runs on cpu only"),
        ({"devices": ("cuda",)}, CASE, "unavailable", "runs on cuda only"),
        ({}, MULTIHEAD, "unsupported", "computes attention, not multihead"),
        ({"operations": ("multihead",)}, CASE, "unsupported", "computes multihead, not attention"),
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
            {"dtypes": ("float16", "bfloat16")}, CASE, "unsupported",
            "computes in float16 and bfloat16, not float32",
        ),
        (
            {}, replace(CASE, mask=Mask(explicit="bool", per_head=True)), "unsupported",
            "takes one mask for all heads; the case has bool:per_head",
        ),
        ({}, replace(CASE, pass_="backward"), "unsupported", "computes the forward pass, not backward"),
        (
            {"passes": ("backward", "both")}, CASE, "unsupported",
            "computes the backward and both pass, not forward",
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


@pytest.mark.parametrize("name", sorted(load_registry().backends))
def test_every_built_in_takes_some_case_that_it_declares(name: str) -> None:
    """Its own limits do not shut it out of everything."""
    mine = load_registry().backends[name].record
    operation = mine.operations[0]
    case = replace(
        CASE,
        operation=operation,
        layer=Layer(16) if operation == "multihead" else None,
        rule="scaled_dot" if mine.rules is None else mine.rules[0],
        dtype=mine.dtypes[0],
        device=mine.devices[0],
        pass_=mine.passes[0],
    )
    assert refusal(mine, case, RULES[case.rule], cuda_devices=GPU) is None


def test_gradients_that_tell_nothing_are_asked_of_nobody() -> None:
    one = replace(CASE, rule="cosine", D=1, pass_="both")
    status, sentence = refused(one, passes=("forward", "both")) or ("", "")
    assert status == "unsupported"
    assert sentence.startswith("one feature has no direction: the gradients of q and k are 0")
    assert refused(replace(one, pass_="forward"), passes=("forward", "both")) is None
    assert refused(replace(one, D=2), passes=("forward", "both")) is None


# --- forking, and whose kernel ran ----------------------------------------------------------------


def test_neither_a_device_nor_threads_nor_what_says_no_is_forked_when_prepared() -> None:
    case = CASE
    eager = load_registry().backends["eager"].record
    assert can_be_forked(eager, case)
    assert not can_be_forked(eager, replace(case, device="cuda"))
    assert not can_be_forked(eager, replace(case, threads=2))
    assert not can_be_forked(replace(eager, forkable=False), case)


def marked(name: str, *marks: str) -> Backend:
    return Backend(name, "a test", lambda setup: lambda q, k, v: v, marks=marks)


THEIRS = marked("theirs", "_their_kernel", "_their_other_kernel")
MINE = marked("mine")


AS_THEIRS = marked("mine", "_their_kernel")
OTHERS = [marked("a", "_a"), marked("b", "_b")]


@pytest.mark.parametrize(
    ("ran", "backend", "others", "owner"),
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
    ran: list[str], backend: Backend, others: list[Backend], owner: str
) -> None:
    assert kernel_of(ran, backend, others) == owner
