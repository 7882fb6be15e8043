"""The diagnosis of a wrong mask for a structure: a planted mistake is told by its name."""

from __future__ import annotations

import pytest
import wrong_structures

from attnbench.plugins.registry import Registry, load_wanted
from attnbench.plugins.sources import named
from attnbench.testing.diagnose import diagnose
from attnbench.testing.diagnosis_process import Look


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_wanted([wrong_structures.__file__])


@pytest.mark.parametrize("mistake", wrong_structures.PLANTED)
def test_a_planted_mistake_is_named(registry: Registry, mistake: str) -> None:
    case, _ = wrong_structures.PLANTED[mistake]
    look = Look(f"attention/scaled_dot/{case}", registry.rules["scaled_dot"].source, ("normal",))
    diagnosis = diagnose(look, mistake, named(wrong_structures.__file__))
    assert diagnosis.mistake == mistake, diagnosis
    assert diagnosis.do.startswith("Your output equals the known mistake ")
