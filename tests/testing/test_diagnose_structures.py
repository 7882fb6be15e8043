"""The diagnosis of a wrong mask for a structure: planted mistakes are told by name, others by their pairs."""

from __future__ import annotations

import numpy as np
import pytest
import wrong_in_company
import wrong_structures
from wrong_in_company import RIGHT, WRONG, Keep

from attnbench.masks import keep_rows
from attnbench.plugins.registry import Registry, load_wanted
from attnbench.plugins.sources import named
from attnbench.testing.cases import choose
from attnbench.testing.diagnose import diagnose
from attnbench.testing.diagnosis_process import Diagnosed, Look
from attnbench.testing.judge import rules_in
from attnbench.types.case import Case


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_wanted([wrong_structures.__file__, wrong_in_company.__file__])


def diagnosed(registry: Registry, case: str, backend: str, file: str) -> Diagnosed:
    look = Look(f"attention/scaled_dot/{case}", registry.rules["scaled_dot"].source, ("normal",))
    return diagnose(look, backend, named(file))


@pytest.mark.parametrize("mistake", wrong_structures.PLANTED)
def test_a_planted_mistake_is_named(registry: Registry, mistake: str) -> None:
    case, _ = wrong_structures.PLANTED[mistake]
    diagnosis = diagnosed(registry, case, mistake, wrong_structures.__file__)
    assert diagnosis.mistake == mistake, diagnosis
    assert diagnosis.do.startswith("Your output equals the known mistake ")


def is_right(keep: Keep, case: Case) -> bool:
    pairs = keep_rows(case, np.arange(case.Lq))
    return bool((wrong_in_company.kept(keep, case).numpy() == (True if pairs is None else pairs)).all())


@pytest.mark.parametrize("keep", WRONG, ids=lambda keep: keep.__name__)
def test_a_mistake_where_words_meet_shows_in_the_kits_cases_and_its_pairs_are_told(
    registry: Registry, keep: Keep
) -> None:
    _, case, words = WRONG[keep]
    diagnosis = diagnosed(registry, case, keep.__name__, wrong_in_company.__file__)
    assert words in diagnosis.do
    chosen = choose(registry.backend(keep.__name__), rules_in(registry)).cases
    assert not all(is_right(keep, one.case) for one in chosen if not one.large)


@pytest.mark.parametrize("keep", RIGHT, ids=lambda keep: keep.__name__)
def test_right_masks_of_unusual_form_are_right_in_the_kits_cases(registry: Registry, keep: Keep) -> None:
    chosen = choose(registry.backend(keep.__name__), rules_in(registry)).cases
    assert all(is_right(keep, one.case) for one in chosen if not one.large)
