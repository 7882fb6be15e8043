"""Runs that check many odd backends and rules on few small cases; the tests read their records."""

from __future__ import annotations

import re

import pytest
from run_parts import LESS_CHECKED, PLAIN, Asked, assert_records, by_backend, run_of

from attnbench.cases.ids import parse_case
from attnbench.inputs.kinds import STRESS_INPUTS
from attnbench.plugins.registry import load_registry
from attnbench.plugins.sources import installed
from attnbench.reports.run import exit_code
from attnbench.results.format import StoredRun
from attnbench.runner.options import CHECK_PARTS, Options
from attnbench.types.errors import BadInput
from attnbench.types.extensions import Source

pytestmark = pytest.mark.slow

OWN = Source("weighing", "weighing_backends", "attnbench-odd", "1.0")
FLASH = "_scaled_dot_product_flash_attention_for_cpu"
SIZES = "B1-H2-Lq16-Lk16-D8/none/float32/cpu/forward"
VIEWS = "attention/scaled_dot/B1-H2-Lq16-Lk24-D8/causal/float32/cpu/forward"
PADDED = "attention/scaled_dot/B2-H2-Lq16-Lk24-D8/padding:20,9/float32/cpu/forward"
ONE_KEY = PLAIN.replace("Lq16-Lk16", "Lq1-Lk1")
CAPPED = "attention/softcap@c=50,scale=0.0833/B1-H2-Lq32-Lk32-D128/causal/bfloat16/cpu/forward"
WIDE_SCALE = "attention/scaled_dot@scale=0.0833/B1-H2-Lq32-Lk32-D128/none/bfloat16/cpu/both"
NOTHING_DROPS = "attention/scaled_dot/B1-H1-Lq4-Lk4-D8/padding:0/float32/cpu/forward/dropout0.1"
COARSELY = "attention/scaled_dot/B1-H2-Lq24-Lk40-D16/causal:lower_right/float32/cpu/forward"
COARSELY_HALF, COARSELY_BOTH = COARSELY.replace("float32", "bfloat16"), COARSELY.replace("forward", "both")
COARSE = ("bfloat16_inside", "bfloat16_declared", "int8_declared")
UNDETECTED = "this case cannot detect errors: "
WITH_WEIGHTS = ("eager", "bmm", "weighted_sum", "per_head_loop")
RIGHT = ("ok", "", "")
WEIGHTS = {
    "weights_leak": "where the mask drops the pair",
    "weights_transposed": "what it gives has shape",
    "weights_double": "what it gives has dtype float64; float32 is asked for",
}
BUILT_INS: Asked = {
    "attention/alibi/B1-H2-Lq16-Lk24-D8/causal/float32/cpu/forward": ("sdpa_flash", "numpy"),
    "attention/sinks/B2-H4-Hkv2-Lq8-Lk12-D8/padding/bfloat16/cpu/forward": WITH_WEIGHTS,
    "attention/softcap/B1-H2-Lq9-Lk5-D8/causal:lower_right/float64/cpu/forward": WITH_WEIGHTS,
    "attention/scaled_dot/B1-H2-Lq8-Lk12-D8/float/float32/cpu/both": WITH_WEIGHTS,
    PLAIN.replace("float32", "float64").replace("forward", "both"): ("eager", "bmm", "sdpa_math"),
    PLAIN.replace("float32", "bfloat16").replace("forward", "both"): ("eager", "bmm", "sdpa_math"),
}
BROKEN_RULES = {
    "odd_raises": (
        "unjudged",
        "reference",
        "the oracle failed in the rule 'odd_raises': ZeroDivisionError: no scores today",
    ),
    "odd_exits": ("unjudged", "", "the oracle's process exited with status "),
    "odd_gives_nan": ("mismatch", "rule_forms", "element (b=0, h=0, i=0, e=0) and 255 more are not finite"),
    "odd_wrong_shape": ("unjudged", "", "the oracle failed: ValueError: "),
    "odd_disagrees": ("mismatch", "rule_forms", "RMS error "),
    "odd_bind": ("unjudged", "reference", "the plain reference failed: preparation raised LookupError: "),
}


@pytest.fixture(scope="module")
def checked(odd_plugins: None, tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    """A run with every check."""
    elsewhere = ("halves_elsewhere", "raises_elsewhere", "refuses_elsewhere", "reads_before")
    between = ("reads_between_rows", "uses_between_rows")
    views = (
        "reads_as_contiguous", "reads_features", "raises_on_features", "reads_values_as_keys",
        "contiguous_undeclared", "contiguous_declared", "doubles_graded",
    )  # fmt: skip
    asked = {
        PLAIN: ("eager", *elsewhere, "keeps_a_mebibyte", "calls_flash", "sdpa_flash", "sdpa_math"),
        VIEWS: (*views, *WEIGHTS, "weights_right", "weights_raise", *WITH_WEIGHTS),
        PADDED: ("eager", "clears_dropped", "reads_dropped"),
        ONE_KEY: ("eager", "bmm", "value_of_one_key"),
        **{f"attention/{rule}/{SIZES}": ("eager",) for rule in ("odd_raises", "odd_exits", "odd_bind")},
        CAPPED: ("eager", "bmm", "chunked", "no_cap", "cap_of_2", "root_of_128"),
        WIDE_SCALE: ("eager", "sdpa_math", "root_of_128"),
        COARSELY: ("eager", *COARSE, "declared_and_wrong", "scale_off", *between),
        COARSELY_HALF: COARSE,
        COARSELY_BOTH: COARSE[:2],
        **BUILT_INS,
    }
    registry = load_registry([*installed(), OWN])
    return run_of(tmp_path_factory.mktemp("all"), asked, registry=registry, timed=False, without=())


@pytest.fixture(scope="module")
def less_checked(odd_plugins: None, tmp_path_factory: pytest.TempPathFactory) -> StoredRun:
    """A run without the variant case, weights and stress inputs, and a right rule after each broken one."""
    asked: dict[str, tuple[str, ...]] = {
        PLAIN: ("halves_elsewhere", "reads_before"),
        VIEWS: ("reads_as_contiguous", "doubles_graded", *WEIGHTS),
        NOTHING_DROPS: ("drop_none_dropped", "eager"),
    }
    for number, rule in enumerate(BROKEN_RULES):
        asked |= {
            f"attention/{rule}/{SIZES}": ("eager", "bmm"),
            f"{PLAIN}/seed{number + 1}": ("eager", "bmm"),
        }
    registry = load_registry([*installed(), OWN])
    return run_of(tmp_path_factory.mktemp("less"), asked, registry=registry, timed=False)


@pytest.fixture(scope="module")
def timed(odd_plugins: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, StoredRun]:
    """By what is accepted."""
    registry, names = load_registry([*installed(), OWN]), ("eager", "bfloat16_inside", "int8_declared")
    return {
        accuracy: run_of(
            tmp_path_factory.mktemp("timed"), (COARSELY,), names, registry=registry, accuracy=accuracy
        )
        for accuracy in ("", "bfloat16")
    }


def test_a_backend_that_is_right_at_known_lengths_only_fails_on_the_variant_case(checked: StoredRun) -> None:
    records = by_backend(checked)
    assert_records(
        records,
        {
            "eager": RIGHT,
            "refuses_elsewhere": RIGHT,
            "halves_elsewhere": ("mismatch", "values", "RMS error"),
            "raises_elsewhere": ("error", "", "preparation raised ValueError: not written for this"),
            "reads_before": ("mismatch", "not_finite", "not finite"),
        },
    )
    record = records["halves_elsewhere"]
    found = re.search(r" \(on the variant case (\S+)\)$", record.reason)
    assert found
    assert record.failed_case == found[1]
    variant, case = parse_case(found[1]), parse_case(PLAIN)
    kept = ("rule", "operation", "D", "mask")
    assert all(getattr(variant, name) == getattr(case, name) for name in kept)
    assert (variant.Lq, variant.Lk) != (case.Lq, case.Lk)
    assert "variant:normal" in record.failed_on
    # Numbers of another case would be taken for those of this one.
    assert record.accuracy is None
    assert checked.finished.phases_s["variant_case"] > 0


def test_memory_that_grows_with_every_call_is_refused_with_its_amount(checked: StoredRun) -> None:
    record = by_backend(checked)["keeps_a_mebibyte"]
    assert (record.status, record.failed_check) == ("mismatch", "leaks")
    assert re.fullmatch(r"every call keeps 1(\.\d+)? MiB of memory", record.reason)


def test_dropped_keys_may_hold_nan_only_where_a_backend_says_so(checked: StoredRun) -> None:
    expected = {"clears_dropped": RIGHT, "eager": RIGHT, "reads_dropped": ("mismatch", "not_finite", "")}
    records = by_backend(checked, PADDED)
    assert_records(records, expected)
    # Lengths of the variant case are drawn: one in twenty pads nothing, and then the case itself shows it.
    assert records["reads_dropped"].failed_on in (["variant:dropped"], ["dropped"])


def test_views_and_inputs_that_require_gradients_are_checked(checked: StoredRun) -> None:
    records = by_backend(checked, VIEWS)
    expected = {
        "contiguous_undeclared": ("error", "", "the call raised ValueError: not contiguous"),
        "contiguous_declared": RIGHT,
        "raises_on_features": RIGHT,
        "doubles_graded": ("mismatch", "values", "on the stress input graded: RMS error"),
    }
    assert_records(records, expected)
    views = records["reads_as_contiguous"]
    # Each kind is asked on one of the variants.
    assert views.status == "mismatch"
    assert set(views.failed_on) <= {"variant:strided", "variant:sliced", "variant:transposed"}
    assert records["reads_features"].failed_on == ["variant:transposed"]
    assert records["reads_values_as_keys"].failed_on == ["variant:sliced"]
    assert records["doubles_graded"].failed_on == ["variant:graded"]


def test_a_backend_that_ignores_a_constant_is_refused(checked: StoredRun) -> None:
    wrong, right = ("mismatch", "values", "RMS error "), dict.fromkeys(("eager", "bmm", "chunked"), RIGHT)
    loud = ("mismatch", "values", "on the stress input large_logits: RMS error ")
    capped = by_backend(checked, CAPPED)
    assert_records(capped, right | {"no_cap": loud, "cap_of_2": wrong, "root_of_128": wrong})
    scaled = by_backend(checked, WIDE_SCALE)
    assert_records(scaled, {"eager": RIGHT, "sdpa_math": RIGHT})
    assert scaled["root_of_128"].status == "mismatch"


def test_declared_weights_are_compared_with_the_oracle(checked: StoredRun) -> None:
    records = by_backend(checked, VIEWS)
    assert_records(records, dict.fromkeys(("weights_right", *WITH_WEIGHTS), RIGHT))
    assert_records(records, {name: ("mismatch", "weights", words) for name, words in WEIGHTS.items()})
    assert all(records[name].failed_on == ["weights"] for name in WEIGHTS)
    words = "computing the weights raised ValueError: no weights today"
    assert_records(records, {"weights_raise": ("error", "", words)})


@pytest.mark.parametrize("case", BUILT_INS)
def test_built_ins_pass_whatever_the_dtype_pass_and_mask(checked: StoredRun, case: str) -> None:
    assert_records(by_backend(checked, case), dict.fromkeys(BUILT_INS[case], RIGHT))


def test_a_case_that_cannot_detect_errors_is_refused(checked: StoredRun, less_checked: StoredRun) -> None:
    words = UNDETECTED + "returning the value of the first key would pass"
    expected = ("unsupported", "trivial_answer", words)
    records = by_backend(checked, ONE_KEY)
    aliased = records.pop("value_of_one_key")
    assert_records(records, dict.fromkeys(("eager", "bmm"), expected))
    assert (aliased.status, aliased.failed_check) == ("mismatch", "aliasing")
    expected = ("unsupported", "trivial_answer", UNDETECTED)
    dropped = by_backend(less_checked, NOTHING_DROPS)
    assert_records(dropped, dict.fromkeys(("drop_none_dropped", "eager"), expected))


def test_a_record_says_what_ran_and_whose_kernel_it_is(checked: StoredRun) -> None:
    """Also if the owner of the kernel were not part of the run."""
    records = by_backend(checked)
    assert (records["eager"].ran, records["eager"].kernel_of) == (["bmm x2", "_softmax"], "")
    assert (records["calls_flash"].ran, records["calls_flash"].kernel_of) == ([FLASH], "sdpa_flash")
    assert (records["sdpa_flash"].ran, records["sdpa_flash"].kernel_of) == ([FLASH], "")
    assert records["sdpa_math"].ran[0] == "_scaled_dot_product_attention_math"
    assert records["sdpa_math"].kernel_of == ""


@pytest.mark.parametrize("rule", BROKEN_RULES)
def test_a_broken_rule_is_named_in_every_record_of_its_cases(
    checked: StoredRun, less_checked: StoredRun, rule: str
) -> None:
    """With all checks the variant case meets the rule first, and the record says the same."""
    case = f"attention/{rule}/{SIZES}"
    records = by_backend(less_checked, case)
    assert_records(records, dict.fromkeys(("eager", "bmm"), BROKEN_RULES[rule]))
    assert_records(by_backend(checked, case), dict.fromkeys(by_backend(checked, case), BROKEN_RULES[rule]))
    if rule in ("odd_disagrees", "odd_gives_nan"):
        assert records["eager"].reason.endswith("do the rule's torch and NumPy forms agree?")


def test_a_broken_rule_harms_no_other_case(less_checked: StoredRun) -> None:
    for number in range(len(BROKEN_RULES)):
        records = by_backend(less_checked, f"{PLAIN}/seed{number + 1}")
        assert_records(records, dict.fromkeys(("eager", "bmm"), RIGHT))


def test_checks_that_are_left_out_detect_nothing(less_checked: StoredRun) -> None:
    """The self-test measures with it what each check is worth. Guards are not left out here."""
    records = by_backend(less_checked)
    assert_records(records, {"halves_elsewhere": RIGHT, "reads_before": ("mismatch", "not_finite", "")})
    left_out = ("reads_as_contiguous", "doubles_graded", *WEIGHTS)
    assert_records(by_backend(less_checked, VIEWS), dict.fromkeys(left_out, RIGHT))
    assert "variant_case" not in less_checked.finished.phases_s


def test_every_stress_input_but_ordinary_inputs_can_be_left_out() -> None:
    stress_inputs = {stress.name for stress in STRESS_INPUTS} - {"normal"}
    assert set(CHECK_PARTS) == stress_inputs | {
        "variant_case",
        "guards",
        "trivial_answers",
        "weights",
        "refreshed",
    }
    assert set(LESS_CHECKED) == stress_inputs | {"variant_case", "weights"}
    with pytest.raises(BadInput, match=r"^no check 'normal' to leave out; there are variant_case, "):
        Options(without=("variant_case", "normal"))


# --- coarser arithmetics ---------------------------------------------------------------------------


def test_rounding_in_coarser_arithmetic_is_inaccurate_and_wrong_maths_a_mismatch(
    checked: StoredRun,
) -> None:
    records = by_backend(checked, COARSELY)
    expected = {
        "eager": RIGHT,
        "bfloat16_inside": ("inaccurate", "values", "as exact as bfloat16 arithmetic: "),
        "bfloat16_declared": ("inaccurate", "", "in bfloat16 arithmetic, as the backend declares"),
        "int8_declared": ("inaccurate", "", "in int8 arithmetic, as the backend declares"),
        "scale_off": ("mismatch", "values", "these errors stay as they are on nearly equal inputs"),
        "declared_and_wrong": ("mismatch", "values", "RMS error"),
    }
    assert_records(records, expected)
    assert [records[name].arithmetic for name in COARSE] == ["bfloat16", "bfloat16", "int8"]
    exact, coarse = records["eager"].accuracy, records["bfloat16_inside"].accuracy
    assert coarse.rms_error > 1000 * exact.rms_error
    assert coarse.rms_error < coarse.rms_limit


def test_an_arithmetic_as_exact_as_the_dtype_is_right(checked: StoredRun) -> None:
    records = by_backend(checked, COARSELY_HALF)
    assert_records(records, dict.fromkeys(COARSE[:2], RIGHT))
    assert_records(records, {"int8_declared": ("inaccurate", "", "in int8 arithmetic")})


def test_gradients_are_held_to_a_declared_arithmetic_and_none_is_assumed(checked: StoredRun) -> None:
    records = by_backend(checked, COARSELY_BOTH)
    assert_records(
        records,
        {"bfloat16_declared": ("inaccurate", "", "bfloat16"), "bfloat16_inside": ("mismatch", "values", "")},
    )


def test_only_what_a_backend_does_not_declare_fails_a_run(checked: StoredRun) -> None:
    records = by_backend(checked, COARSELY)
    assert exit_code([records["eager"], records["int8_declared"]], {"int8_declared"}) == 0
    assert exit_code([records["eager"], records["bfloat16_inside"]]) == 1


def test_an_inaccurate_backend_keeps_its_time_and_is_not_ranked(timed: dict[str, StoredRun]) -> None:
    records = by_backend(timed[""], COARSELY)
    for name in ("bfloat16_inside", "int8_declared"):
        assert records[name].status == "inaccurate", records[name].reason
        assert records[name].median_ms
        assert records[name].ratio
        assert records[name].verified_calls > 0
    # On a busy machine no time may be credible.
    assert {record.best for record in records.values()} <= {"eager", None}


def test_what_a_user_accepts_is_ranked_and_still_named(timed: dict[str, StoredRun]) -> None:
    records = by_backend(timed["bfloat16"], COARSELY)
    assert records["bfloat16_inside"].status in ("ok", "suspect")
    assert records["bfloat16_inside"].arithmetic == "bfloat16"
    assert records["int8_declared"].status == "inaccurate"


def test_nan_between_rows_is_a_note_where_only_reading_it_harms(checked: StoredRun) -> None:
    records = by_backend(checked, COARSELY)
    assert_records(records, {"reads_between_rows": RIGHT})
    assert any("contiguous inputs mend it" in note for note in records["reads_between_rows"].notes)
    words = "on the stress input s"  # strided or sliced, of which one variant has each
    assert_records(records, {"uses_between_rows": ("mismatch", "values", words)})
    assert "Contiguous inputs pass" in records["uses_between_rows"].reason
