"""What a wrong answer is told to be, in this process: a mistake that gives the same, or where it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import wrong_first_tries as tries

from attnbench.cases.identity import parse_case
from attnbench.plugins.registry import Registry, load_wanted
from attnbench.plugins.sources import named
from attnbench.testing.advice import ADVICE, by_words
from attnbench.testing.attributing import shared
from attnbench.testing.diagnosis import diagnose
from attnbench.testing.mistakes import GRADIENTS, VALUES
from attnbench.testing.places import places
from attnbench.testing.steady import unsteady

SOURCE = named(tries.__file__)
PLAIN = "attention/scaled_dot/B2-H2-Lq17-Lk17-D16/none/float32/cpu/forward"


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_wanted([str(Path(tries.__file__))])


def said(registry: Registry, backend: str, case: str, *families: str) -> str:
    return diagnose(case, backend, SOURCE, registry.rules["scaled_dot"].source, families or ("normal",))


@pytest.mark.parametrize(
    ("backend", "case", "sentence"),
    [
        ("no_scale", PLAIN, "(not divided by √D): multiply the products by setup.scoring.dot.scale."),
        (
            "tiles_heads",
            "attention/scaled_dot/H4-Hkv2-L9-D8",
            "repeat heads, don't tile them: key/value head",
        ),
        (
            "other_corner",
            "attention/scaled_dot/H2-Lq9-Lk14-D8/causal:lower_right",
            "look at case.mask.causal",
        ),
        ("nan_rows", "attention/scaled_dot/H2-Lq20-Lk9-D8/causal:lower_right", "the output 0 here: set rows"),
        ("inverted", "attention/scaled_dot/H2-L12-D8/bool", "True keeps a pair here and in torch's SDPA"),
        ("over_queries", PLAIN, "the keys: dim=-1."),
        ("viewed", PLAIN, "exchange heads and positions by transpose(1, 2), not by view or reshape."),
        # All that ignores a mask comes to the same here: the first that is told is the particular one.
        ("ignores_masks", "attention/scaled_dot/B2-H2-L12-D8/padding", "apply the padding, or decline"),
        ("two_mistakes", "attention/scaled_dot/H2-L12-D8/causal", "(no causal mask): apply the causal"),
    ],
)
def test_a_known_mistake(registry: Registry, backend: str, case: str, sentence: str) -> None:
    assert sentence in said(registry, backend, case)


def test_gradients_have_mistakes_of_their_own(registry: Registry) -> None:
    words = said(registry, "no_scale", PLAIN.replace("forward", "both"))
    assert "(not divided by √D)" in words


@pytest.mark.parametrize("pass_", ["forward", "both"])
def test_answers_in_the_other_layout(registry: Registry, pass_: str) -> None:
    assert "(not divided by √D)" in said(registry, "other_layout", PLAIN.replace("forward", pass_))


def test_a_right_answer_sends_to_what_is_kept(registry: Registry) -> None:
    assert "look for what is kept from one call to the next" in said(registry, "right_one", PLAIN)


@pytest.mark.parametrize(
    ("family", "words"),
    [
        ("deep_change", "an answer (or packed keys) of earlier inputs is kept"),
        ("strided", "declare needs_contiguous=True"),
        ("graded", "decline pass 'both' in supports()"),
    ],
)
def test_a_family_that_alone_shows_it(registry: Registry, family: str, words: str) -> None:
    assert words in said(registry, "right_one", PLAIN, family)


def test_advice_is_of_mistakes_that_there_are() -> None:
    assert set(ADVICE) <= {animal.name for animal in (*VALUES, *GRADIENTS)}


@pytest.mark.parametrize(
    ("reason", "do"),
    [
        ("the output shares memory with the output of an earlier call", "Return memory of its own"),
        ("the output has dtype torch.float64; float32 is asked for", "Return the output in the case's dtype"),
        ("the call changed the default dtype from a to b", "Leave settings of the process as they are"),
        ("no gradient reaches q", "Keep the graph"),
        ("RMS error 1 is above 0.1", ""),
    ],
)
def test_what_a_worker_says_in_words(reason: str, do: str) -> None:
    assert by_words(reason).startswith(do)
    assert bool(by_words(reason)) == bool(do)


def test_places_of_errors() -> None:
    bad = np.zeros((2, 3, 10, 4), bool)
    assert places(bad) == ""
    bad[:, :, 8:] = True
    assert places(bad) == "Wrong in rows 8 to 9 of 10 alone."
    bad[:, 0] = False
    bad[:, 1] = False
    assert places(bad) == "Wrong in head 2 of 3 and rows 8 to 9 of 10 alone."
    assert places(np.ones((2, 3, 10, 4), bool)) == ""
    scattered = np.zeros((1, 10, 1), bool)
    scattered[:, [0, 2, 4, 6]] = True
    assert places(scattered) == "Wrong in rows 0, 2, 4, … of 10 alone."


def test_what_failing_cases_share() -> None:
    heads, plain = "attention/dot/H4-Hkv2-L9-D8", "attention/dot/H4-L9-D8"
    assert shared([heads], [plain]) == (
        "These are all the cases with fewer key/value heads than query heads (case.Hkv != case.H); without, "
        "it is right."
    )
    assert shared([heads, plain], ["attention/dot/H4-L9-D8/causal"]) == ""
    assert shared([heads], []) == ""
    assert "case.dtype == 'bfloat16'" in shared([plain + "/bfloat16"], [plain])


def test_answers_that_change_and_that_stay(registry: Registry) -> None:
    rule = registry.rules["scaled_dot"].source
    cases = [(PLAIN, rule), (PLAIN.replace("D16", "D8"), rule), (PLAIN.replace("forward", "backward"), rule)]
    assert unsteady(cases[:2], "right_one", SOURCE) == []
    found = unsteady(cases[:2], "by_last", SOURCE)
    assert [(parse_case(case).D, explained) for case, _, explained in found] == [(16, False)]
