"""The arguments of the marker, and the sentences for impossible ones."""

from __future__ import annotations

from typing import Any

import pytest

from attnbench.cases.ids import case_id, parse_case
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
        ((), {"cases": [CASE]}),
        ((parse_case(CASE),), {}),
        ((CASE, CASE), {"cases": (CASE,)}),
    ],
)
def test_cases_can_be_named_in_several_ways(
    registry: Registry, words: tuple[Any, ...], named: dict[str, Any]
) -> None:
    found = marked(registry, words, named | {"backends": ["bmm", "eager"]}, BOTH)
    assert ids(found) == ["dot/H2-L16-D8-bmm", "dot/H2-L16-D8-eager"]
    assert {case_id(each.values[0].case) for each in found} == {case_id(parse_case(CASE))}


def test_a_test_without_a_backend_runs_once_for_each_case(registry: Registry) -> None:
    found = marked(registry, ("smoke",), {"rules": ["dot", "cosine"]}, ("attnbench_case",))
    assert ids(found) == ["dot/B2-H4-L128-D64/padding", "cosine/H4-L128-D64"]
    assert [each.values[0].backend for each in found] == [None, None]


def test_arguments_change_the_cases(registry: Registry) -> None:
    changes = {"dtypes": "bfloat16", "masks": ["causal", Mask(window=4)], "seed": 3, "threads": 2}
    found = marked(registry, (CASE,), changes, ("attnbench_case",))
    assert ids(found) == [
        "dot/H2-L16-D8/causal/bfloat16/threads2/seed3", "dot/H2-L16-D8/window:4/bfloat16/threads2/seed3",
    ]  # fmt: skip


def test_a_declined_case_is_skipped_with_the_reason(registry: Registry) -> None:
    assert skipped(marked(registry, (CASE,), {"backends": ["sdpa_cudnn", "bmm"]}, BOTH)) == {
        "sdpa_cudnn": "sdpa_cudnn: unavailable: runs on cuda only"
    }
    (additive,) = skipped(
        marked(registry, ("attention/additive/H2-L16-D8",), {"backends": "sdpa_flash"}, BOTH)
    ).values()
    assert "sdpa_flash: unsupported: " in additive


def test_compiling_backends_run_on_the_cases_of_a_run(registry: Registry) -> None:
    of_all = marked(registry, ("smoke",), {}, BOTH)
    on = {each.values[0].case.rule for each in of_all if each.values[0].backend == "flex" and not each.marks}
    assert on == {"scaled_dot"}
    assert "compiles for seconds" in skipped(of_all)["flex"]
    named = marked(registry, ("smoke",), {"backends": "flex", "rules": "softcap"}, BOTH)
    assert skipped(named) == {}


def test_rotating_inputs_are_skipped(registry: Registry) -> None:
    found = skipped(marked(registry, (CASE,), {"cache": "rotating", "backends": "bmm"}, BOTH))
    assert found == {"bmm": "bmm: only attnbench run rotates inputs through copies"}


@pytest.mark.parametrize(
    ("words", "named", "sentence"),
    [
        ((), {}, "name a suite or a case"),
        (("smok",), {}, "did you mean 'smoke'"),
        ((CASE,), {"backend": "bmm"}, "no argument 'backend'; did you mean 'backends'?"),
        ((CASE,), {"backends": ["emm"]}, "no backend 'emm'; did you mean 'bmm'?"),
        ((CASE,), {"backends": [3]}, "backends = 3: give names"),
        ((CASE,), {"backends": 3}, "backends = 3: give names"),
        ((CASE,), {"rules": ["cosine"]}, "no selected case has the rule 'cosine'"),
        ((CASE,), {"rules": "cosinus"}, "did you mean 'cosine'"),
        ((CASE,), {"dtypes": ["float8"]}, "float8"),
        ((CASE,), {"masks": [3]}, "masks = 3"),
        ((CASE,), {"masks": "causality"}, "causality"),
        ((CASE,), {"threads": "two"}, "threads = 'two': a whole number is needed"),
        ((CASE,), {"dropout": 2.0}, "dropout"),
        ((CASE,), {"device": "tpu"}, "tpu"),
        ((17,), {}, "17: give a suite, a case id, a TOML file or a Case"),
        (("missing.toml",), {}, "missing.toml"),
        (("attention/dot/H2",), {}, "the size Lq is missing"),
        (("attention/dott/H2-L16-D8",), {}, "did you mean 'dot'"),
    ],
)
def test_an_impossible_argument_is_one_sentence(
    registry: Registry, words: tuple[Any, ...], named: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(BadInput) as told:
        marked(registry, words, named, BOTH)
    assert sentence in str(told.value)
    assert "\n" not in str(told.value)
