"""The diagnosis of a wrong answer, in this process: the known mistake that gives the same, or its place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import wrong_first_tries as tries

from attnbench.cases.ids import parse_case
from attnbench.plugins.registry import Registry, load_wanted
from attnbench.plugins.sources import named
from attnbench.testing.advice import ADVICE, BY_CHECK
from attnbench.testing.diagnose import Diagnosis, diagnose, places
from attnbench.testing.mistakes import GRADIENTS, VALUES
from attnbench.testing.trial import unsteady
from attnbench.types.checks import CHECKS

SOURCE = named(tries.__file__)
PLAIN = "attention/scaled_dot/B2-H2-Lq17-Lk17-D16/none/float32/cpu/forward"


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_wanted([str(Path(tries.__file__))])


def found(registry: Registry, backend: str, case: str, *families: str) -> Diagnosis:
    return diagnose(case, backend, SOURCE, registry.rules["scaled_dot"].source, families or ("normal",))


@pytest.mark.parametrize(
    ("backend", "case", "mistake"),
    [
        ("no_scale", PLAIN, "scale_omitted"),
        ("no_scale", PLAIN.replace("forward", "both"), "scale_omitted"),
        ("other_layout", PLAIN, "scale_omitted"),
        ("other_layout", PLAIN.replace("forward", "both"), "scale_omitted"),
        ("tiles_heads", "attention/scaled_dot/H4-Hkv2-L9-D8", "heads_modulo"),
        (
            "other_corner",
            "attention/scaled_dot/H2-Lq9-Lk14-D8/causal:lower_right",
            "causal_from_the_other_corner",
        ),
        ("nan_rows", "attention/scaled_dot/H2-Lq20-Lk9-D8/causal:lower_right", "nan_in_empty_rows"),
        ("inverted", "attention/scaled_dot/H2-L12-D8/bool", "mask_inverted"),
        ("over_queries", PLAIN, "softmax_over_queries"),
        ("viewed", PLAIN, "heads_viewed_not_transposed"),
        # All that ignores a mask gives the same answer here: the particular mistake counts.
        ("ignores_masks", "attention/scaled_dot/B2-H2-L12-D8/padding", "padding_ignored"),
        ("two_mistakes", "attention/scaled_dot/H2-L12-D8/causal", "causal_ignored"),
    ],
)
def test_a_known_mistake(registry: Registry, backend: str, case: str, mistake: str) -> None:
    diagnosis = found(registry, backend, case)
    assert diagnosis.mistake == mistake, diagnosis
    assert diagnosis.do.startswith("Your output equals the known mistake ")
    assert ADVICE[mistake] in diagnosis.do


@pytest.mark.parametrize(
    ("family", "words"),
    [
        ("normal", "look for values that it keeps from one call to the next"),
        ("deep_change", "kept answers or packed keys of earlier inputs"),
        ("strided", "declare needs_contiguous=True"),
        ("graded", "decline pass 'both' in supports()"),
    ],
)
def test_a_right_answer_is_explained_by_the_family(registry: Registry, family: str, words: str) -> None:
    diagnosis = found(registry, "right_one", PLAIN, family)
    assert words in diagnosis.do
    assert diagnosis.mistake == ""


def test_advice_is_for_existing_mistakes_and_checks() -> None:
    assert set(ADVICE) <= {mutant.name for mutant in (*VALUES, *GRADIENTS)}
    assert set(BY_CHECK) <= set(CHECKS)


def test_places_of_errors() -> None:
    bad = np.zeros((2, 3, 10, 4), bool)
    assert places(bad) == ""
    bad[:, :, 8:] = True
    assert places(bad) == "All errors are in rows 8 to 9 of 10."
    bad[:, :2] = False
    assert places(bad) == "All errors are in head 2 of 3 and rows 8 to 9 of 10."
    assert places(np.ones((2, 3, 10, 4), bool)) == ""
    scattered = np.zeros((1, 10, 1), bool)
    scattered[:, [0, 2, 4, 6]] = True
    assert places(scattered) == "All errors are in rows 0, 2, 4, … of 10."


def test_answers_that_change_and_answers_that_stay(registry: Registry) -> None:
    rule = registry.rules["scaled_dot"].source
    cases = [(PLAIN, rule), (PLAIN.replace("D16", "D8"), rule)]
    assert unsteady(cases, "right_one", SOURCE) == []
    assert [parse_case(case).D for case, _ in unsteady(cases, "by_last", SOURCE)] == [16]
