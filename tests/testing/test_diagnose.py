"""The diagnosis of a wrong answer: the known mistake that gives the same answer, or the place of errors."""

from __future__ import annotations

import fcntl
from pathlib import Path

import numpy as np
import pytest
import wrong_answers as tries
import wrong_by_habit as habits
import wrong_masks as masks

from attnbench.cases.ids import parse_case
from attnbench.plugins.registry import Registry, load_wanted
from attnbench.plugins.sources import named
from attnbench.testing.diagnose import WRONG_AFTER, diagnose, places, smallest, unsteady
from attnbench.testing.diagnosis_process import Asked, Diagnosed, Look, Unsteady, WrongPlaces, look
from attnbench.testing.judge import steady_cases
from attnbench.types.record import Record

SOURCE = named(tries.__file__)
START = "attention/scaled_dot/"
PLAIN = "B2-H2-L17-D16"
SMALL = "H2-L12-D8"
LOW = "causal:lower_right"


@pytest.fixture(scope="module")
def registry() -> Registry:
    return load_wanted([str(Path(tries.__file__))])


def found(registry: Registry, backend: str, case: str, *families: str) -> Diagnosed:
    source = registry.rules["scaled_dot"].source
    return diagnose(Look(START + case, source, families or ("normal",)), backend, SOURCE)


@pytest.mark.parametrize(
    ("backend", "case", "mistake", "advice"),
    [
        ("no_scale", PLAIN, "scale_omitted", "multiply the products by setup.scoring.dot.scale"),
        ("other_layout", PLAIN, "scale_omitted", "multiply the products"),
        ("other_layout", f"{PLAIN}/both", "scale_omitted", "multiply the products"),
        ("tiles_heads", "H4-Hkv2-L9-D8", "heads_modulo", "don't tile them"),
        ("other_corner", f"H2-Lq9-Lk14-D8/{LOW}", "causal_from_the_other_corner", "look at case.mask.causal"),
        ("nan_rows", f"H2-Lq20-Lk9-D8/{LOW}", "nan_in_empty_rows", "rows of queries that keep no key to 0"),
        ("inverted", f"{SMALL}/bool", "mask_inverted", "invert it"),
        ("over_queries", PLAIN, "softmax_over_queries", "dim=-1"),
        ("viewed", PLAIN, "heads_viewed_not_transposed", "not by view"),
        ("float_16", PLAIN, "softmax_in_float16", "in float32"),
        ("no_gradient_scale", f"{PLAIN}/both", "dq_without_scale", "gradients of q and k"),
        # All that ignores a mask gives the same answer here: the particular mistake counts.
        ("right_one", "B2-H2-L12-D8/padding", "padding_ignored", "apply the padding"),
        ("no_scale", f"{SMALL}/causal", "causal_ignored", "apply the causal mask"),
    ],
)
def test_a_known_mistake(registry: Registry, backend: str, case: str, mistake: str, advice: str) -> None:
    diagnosis = found(registry, backend, case)
    assert diagnosis.mistake == mistake, diagnosis
    assert diagnosis.do.startswith("Your output equals the known mistake ")
    assert advice in diagnosis.do


@pytest.mark.parametrize("family", ["normal", "near_duplicate", "strided", "graded"])
def test_a_right_answer_gets_no_advice_for_its_inputs(registry: Registry, family: str) -> None:
    diagnosis = found(registry, "right_one", PLAIN, family)
    assert (diagnosis.mistake, diagnosis.kind) == ("", "not repeated")
    assert diagnosis.do.startswith(
        "In a process of its own it is right on such inputs: look for values that it"
    )


def by_habit(backend: str, case: str, family: str = "normal") -> Diagnosed:
    registry = load_wanted([habits.__file__])
    look = Look(START + case, registry.rules["scaled_dot"].source, (family,))
    return diagnose(look, backend, named(habits.__file__))


@pytest.mark.parametrize(
    ("backend", "case", "mistake"),
    [
        ("not_rescaled", "B1-H2-L65-D16", "accumulator_of_32_not_rescaled"),
        ("causal_off_by_one", "H2-L17-D8/causal", "causal_one_key_less"),
        ("causal_window_ignored", "H2-L17-D8/causal+window:4", "mask_ignored"),
        ("adds_minus_10", "H2-L17-D8/causal", "mask_is_minus_10"),
        ("fills_in_minus_5", "H2-L17-D8/causal", "masked_scores_are_minus_5"),
        ("lets_the_next_key_weigh", "H2-L17-D8/causal", "dropped_keys_weigh"),
    ],
)
def test_a_habit_is_known(backend: str, case: str, mistake: str) -> None:
    assert by_habit(backend, case).mistake == mistake


def of_mask(backend: str, case: str) -> Diagnosed:
    registry = load_wanted([masks.__file__])
    look = Look(START + case, registry.rules["scaled_dot"].source, ("normal",))
    return diagnose(look, backend, named(masks.__file__))


@pytest.mark.parametrize(
    ("case", "part"),
    [
        # With one key more than queries the other corner is one key more, and with one less one key less.
        ("H2-Lq16-Lk17-D8/causal", "causal"),
        (f"H2-Lq17-Lk16-D8/{LOW}", "causal"),
        ("B3-H2-L9-D8/window:8", "window"),
        # Too large to be compared itself.
        ("H2-Lq1000-Lk256-D64/causal", "causal"),
    ],
)
def test_mistakes_that_a_case_does_not_tell_apart_are_told_apart_by_others(case: str, part: str) -> None:
    made = [backend.name for backend in masks.MADE if backend.name.startswith(part)]
    found = {name: of_mask(name, case) for name in made}
    assert [one.mistake for one in found.values()] == made
    assert all("several" not in one.do for one in found.values())


def test_mistakes_that_no_case_tells_apart_are_all_named() -> None:
    diagnosis = of_mask("one_length", "H2-Lq16-Lk17-D8/causal")
    assert diagnosis.do.startswith(
        "Your output equals several known mistakes, which are alike in this case: "
    )
    assert "“causal from the other corner”: look at case.mask.causal" in diagnosis.do
    assert "; or “causal, one key more”: keep key j for query i" in diagnosis.do


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("L", ["Lq16-Lk8192", "Lq4-Lk2051"])
def test_running_sums_in_half_precision_are_known(dtype: str, L: str) -> None:
    diagnosis = by_habit("sums_in_its_dtype", f"H2-{L}-D16/none/{dtype}", "light_keys")
    assert diagnosis.mistake == "running_sums_in_half_precision"
    assert not any("mask" in name for name in diagnosis.equals), "they make no difference here"
    assert "is kept in half precision”: keep both in float32" in diagnosis.do


def test_a_mistake_that_ordinary_inputs_show_is_not_named_where_they_are_right() -> None:
    # Where one key has all the weight, -100 drops as little as no mask does.
    diagnosis = by_habit("adds_minus_100", "H2-L17-D8/causal", "one_hot")
    assert diagnosis.mistake == "mask_is_minus_100"
    assert "causal_ignored" not in diagnosis.equals
    assert "dropped keys still have weight: use -inf" in diagnosis.do


@pytest.mark.parametrize("family", ["normal", "strided", "large_logits"])
def test_a_backend_that_is_wrong_each_second_call_hears_that_alone(family: str) -> None:
    diagnosis = by_habit("each_second_call", "B1-H2-L17-D16", family)
    assert diagnosis.kind == "sometimes"
    assert diagnosis.do.startswith("It is wrong in 4 of 8 equal calls: look for what it keeps")


@pytest.mark.parametrize(
    ("backend", "family", "words"),
    [
        ("nan_of_large_scores", "large_logits", "Scores up to ±1000 give a wrong output"),
        ("clamped", "large_logits", "Scores up to ±1000 give a wrong output"),
        ("as_contiguous", "strided", "Views with strides of their own give a wrong output"),
    ],
)
def test_inputs_are_named_where_they_alone_show_a_fault(backend: str, family: str, words: str) -> None:
    diagnosis = by_habit(backend, "B1-H2-L17-D16", family)
    assert (diagnosis.kind, diagnosis.mistake) == ("family", "")
    assert diagnosis.do.startswith(words)


@pytest.mark.parametrize(("backend", "words"), [("gives_nan", "NaN"), ("gives_zeros", "0")])
def test_an_output_without_a_number_equals_no_known_mistake(backend: str, words: str) -> None:
    for case in ("H2-L17-D8", f"H2-Lq9-Lk5-D8/{LOW}"):
        diagnosis = by_habit(backend, case)
        assert (diagnosis.kind, diagnosis.mistake) == ("nothing", "")
        assert diagnosis.do.startswith(f"Every number of its output is {words}")


def test_a_fault_at_a_boundary_is_made_small() -> None:
    registry = load_wanted([habits.__file__])
    look = Look(f"{START}B2-H2-L129-D16", registry.rules["scaled_dot"].source, ("normal",))
    found = smallest(look, "block_boundary", named(habits.__file__))
    assert found is not None
    assert found.point == f"{START}B1-H1-Lq65-Lk65-D1/none/float32/cpu/forward"
    assert found.least == {"Lq = Lk": 65}


def test_an_unknown_mistake_is_placed(registry: Registry) -> None:
    assert found(registry, "odd_row", PLAIN).places == {"i": WrongPlaces((3,), 17)}
    both = found(registry, "odd_gradient", f"{PLAIN}/both")
    assert both.do == "Wrong: the gradients of v; right: out, q, k."


def test_places_of_errors() -> None:
    bad = np.zeros((2, 3, 10, 4), bool)
    bad[:, :, 8:] = True
    assert places(bad) == {"i": WrongPlaces((8, 9), 10)}
    bad[:, :2] = False
    assert places(bad) == {"h": WrongPlaces((2,), 3), "i": WrongPlaces((8, 9), 10)}
    assert places(np.ones((2, 3, 10, 4), bool)) == {}
    scattered = np.zeros((1, 10, 1), bool)
    scattered[:, [0, 2, 4, 6]] = True
    assert places(scattered) == {"i": WrongPlaces((0, 2, 4, 6), 10)}


def test_answers_that_change_and_answers_that_stay(registry: Registry) -> None:
    rule = registry.rules["scaled_dot"].source
    cases = [(START + PLAIN, rule), (START + PLAIN.replace("D16", "D8"), rule)]
    assert unsteady(cases, "right_one", SOURCE) == []
    assert [parse_case(case).D for case, _ in unsteady(cases, "by_last", SOURCE)] == [16]


KEEPS_A_CONSTANT = """
from attnbench import Backend, hookimpl

kept = {}

def prepare(setup):
    scale = kept.setdefault(setup.case.D, setup.scoring.dot.scale)
    return lambda q, k, v: (scale * (q @ k.mT)).softmax(-1) @ v

@hookimpl
def attnbench_backends():
    return [Backend("keeps", "a test", prepare=prepare, rules=("scaled_dot",))]
"""


def test_a_constant_that_is_kept_for_another_case_is_wrong_though_it_never_changes(
    registry: Registry, tmp_path: Path
) -> None:
    alone, after = tmp_path / "alone.py", tmp_path / "after.py"
    for file in (alone, after):
        file.write_text(KEEPS_A_CONSTANT)
    plain = "attention/scaled_dot/B1-H2-Lq8-Lk8-D16/none/float32/cpu/forward"
    given = plain.replace("dot/", "dot@scale=0.9/")
    records = [Record(case, "scaled_dot", "keeps", "ok") for case in (plain, given)]
    assert [record.case for record in steady_cases(records)] == [record.case for record in records]
    assert [record.case for record in steady_cases(records[::-1])] == [record.case for record in records]
    cases = tuple((record.case, registry.rules["scaled_dot"].source) for record in records)
    assert unsteady(cases[1:], "keeps", named(str(alone))) == []
    assert unsteady(cases, "keeps", named(str(after))) == [(given, WRONG_AFTER)]


LEAVES = """
import fcntl, os, time
from pathlib import Path
from attnbench import Backend, hookimpl

def prepare(setup):
    alive = open({alive!r}, "a")
    fcntl.flock(alive, fcntl.LOCK_SH)
    if not os.fork():
        # Not for ever: if nothing ends it, the test must fail and not hang.
        time.sleep(200)
        Path({late!r}).touch()
        os._exit(0)
    raise ValueError('no')

@hookimpl
def attnbench_backends():
    return [Backend("leaves", "a test", prepare=prepare)]
"""


@pytest.mark.slow
def test_what_a_backend_leaves_running_ends_with_the_close_look(registry: Registry, tmp_path: Path) -> None:
    file, alive, late = tmp_path / "leaves.py", tmp_path / "alive", tmp_path / "late"
    file.write_text(LEAVES.format(alive=str(alive), late=str(late)))
    case, rule = START + SMALL, registry.rules["scaled_dot"].source
    replies = look(Asked("leaves", named(str(file)), (Look(case, rule, ("normal",)),), ((case, rule),)))
    assert [type(reply) for reply in replies] == [Diagnosed, Unsteady]
    with alive.open() as all_are_gone:
        fcntl.flock(all_are_gone, fcntl.LOCK_EX)
    assert not late.exists()


FAILS_ONCE = """
from pathlib import Path

marker = Path({marker!r})
if not marker.exists():
    marker.touch()
    raise OSError("busy")

from attnbench.rules import attnbench_rules
"""


@pytest.mark.slow
def test_a_diagnosis_in_which_the_judge_failed_is_asked_once_more(tmp_path: Path) -> None:
    rules, marker = tmp_path / "rules.py", tmp_path / "marker"
    rules.write_text(FAILS_ONCE.format(marker=str(marker)))
    one = Look(f"{START}{PLAIN}", named(str(rules)), ("normal",))
    (reply,) = look(Asked("no_scale", SOURCE, (one,), shrinking=False))
    assert isinstance(reply, Diagnosed)
    assert reply.mistake == "scale_omitted"
