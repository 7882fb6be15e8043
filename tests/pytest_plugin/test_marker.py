"""The marker: the cases and backends that a test runs for."""

from __future__ import annotations

from typing import Any

import pytest

from attnbench.cases.ids import parse_case
from attnbench.plugins.registry import Registry, load_registry
from attnbench.pytest_plugin.pairs import marked
from attnbench.types.errors import BadInput
from attnbench.types.mask import Mask

CASE = "attention/dot/H2-L16-D8"
BOTH = ("attnbench_case", "attnbench_backend")


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_registry()


def ids(parameters: list[Any]) -> list[str]:
    return [parameter.id for parameter in parameters]


def skipped(parameters: list[Any]) -> dict[str, str]:
    """Return the reasons of skipped parameters, by backend."""
    return {each.values[0].backend: each.marks[0].kwargs["reason"] for each in parameters if each.marks}


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((CASE,), {}),
        ((), {"suite": CASE}),
        ((parse_case(CASE),), {}),
        ((CASE, CASE), {"cases": (CASE,)}),
    ],
)
def test_cases_can_be_named_in_several_ways(
    registry: Registry, words: tuple[Any, ...], named: dict[str, Any]
) -> None:
    found = marked(registry, words, named | {"backends": ["bmm", "eager"]}, BOTH)
    assert ids(found) == ["dot/H2-L16-D8-bmm", "dot/H2-L16-D8-eager"]
    assert {each.values[0].case for each in found} == {parse_case(CASE)}


def test_arguments_change_the_cases_of_a_test_without_a_backend(registry: Registry) -> None:
    found = marked(registry, ("smoke",), {"rules": ["dot", "cosine"]}, ("attnbench_case",))
    assert ids(found) == ["dot/B2-H4-L128-D64/padding", "cosine/H4-L128-D64"]
    assert [each.values[0].backend for each in found] == [None, None]
    changes = {"dtypes": "bfloat16", "masks": ["causal", Mask(window=4)], "seed": 3, "threads": 2}
    assert ids(marked(registry, (CASE,), changes, ("attnbench_case",))) == [
        "dot/H2-L16-D8/causal/bfloat16/threads2/seed3", "dot/H2-L16-D8/window:4/bfloat16/threads2/seed3",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("case", "named", "backend", "reason"),
    [
        (CASE, {"backends": ["sdpa_cudnn", "bmm"]}, "sdpa_cudnn", "unavailable: runs on cuda only"),
        ("attention/additive/H2-L16-D8", {"backends": "sdpa_flash"}, "sdpa_flash", "unsupported: "),
        (CASE, {"cache": "rotating", "backends": "bmm"}, "bmm", "only attnbench run rotates inputs"),
        ("smoke", {}, "flex", "compiles slowly"),
    ],
)
def test_a_declined_case_is_skipped_with_the_reason(
    registry: Registry, case: str, named: dict[str, Any], backend: str, reason: str
) -> None:
    assert skipped(marked(registry, (case,), named, BOTH))[backend].startswith(f"{backend}: {reason}")


def test_compiling_backends_run_on_the_cases_of_a_run_or_where_they_are_named(registry: Registry) -> None:
    found = marked(registry, ("smoke",), {}, BOTH)
    assert {p.values[0].case.rule for p in found if p.values[0].backend == "flex" and not p.marks} == {
        "scaled_dot"
    }
    assert skipped(marked(registry, ("smoke",), {"backends": "flex", "rules": "softcap"}, BOTH)) == {}


@pytest.mark.parametrize(
    ("words", "named", "sentence"),
    [
        ((), {}, "name a suite or a case"),
        (("smok",), {}, "did you mean 'smoke'"),
        ((CASE,), {"backend": "bmm"}, "no argument 'backend'; did you mean 'backends'?"),
        ((CASE,), {"backends": ["emm"]}, "no backend 'emm'; did you mean 'bmm'?"),
        ((CASE,), {"backends": 3}, "backends = 3: give names"),
        ((CASE,), {"rules": ["cosine"]}, "no selected case has the rule 'cosine'"),
        ((CASE,), {"masks": [3]}, "masks = 3"),
        ((CASE,), {"masks": "causality"}, "causality"),
        ((CASE,), {"threads": "two"}, "threads = 'two': give a whole number"),
        ((17,), {}, "17: give a suite, a case id, a TOML file or a Case"),
        (("missing.toml",), {}, "missing.toml"),
        (("attention/dot/H2",), {}, "the size Lq is missing"),
    ],
)
def test_an_impossible_argument_is_one_sentence(
    registry: Registry, words: tuple[Any, ...], named: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(BadInput) as told:
        marked(registry, words, named, BOTH)
    assert sentence in str(told.value)
    assert "\n" not in str(told.value)
