"""Inputs that arrive otherwise and attention weights, in the check of a run: who is refused, and by what."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_parts import by_backend, run_of

from attnbench.plugins.registry import Registry, load_registry
from attnbench.plugins.sources import installed
from attnbench.types.extensions import Source
from attnbench.types.record import Record

CASE = "attention/scaled_dot/B1-H2-Lq16-Lk24-D8/causal/float32/cpu/forward"
OWN = Source("weighing", "weighing_backends", "attnbench-odd", "1.0")


@pytest.fixture(scope="module")
def registry(odd_plugins: None) -> Registry:
    return load_registry([*installed(), OWN])


def checked(
    folder: Path, registry: Registry, *names: str, without: tuple[str, ...] = (), case: str = CASE
) -> dict[str, Record]:
    stored = run_of(folder, (case,), names, registry=registry, timed=False, without=without)
    return by_backend(stored, case)


def test_who_reads_views_as_contiguous_is_refused_by_that_family_alone(
    registry: Registry, tmp_path: Path
) -> None:
    name = "reads_as_contiguous"
    record = checked(tmp_path / "with", registry, name)[name]
    assert (record.status, record.failed_on) == ("mismatch", ["near:strided"])
    record = checked(tmp_path / "large", registry, name, without=("near",))[name]
    assert (record.status, record.failed_on) == ("mismatch", ["strided"])
    record = checked(tmp_path / "left out", registry, name, without=("strided",))[name]
    assert record.status == "ok"


def test_who_needs_contiguous_inputs_declares_it(registry: Registry, tmp_path: Path) -> None:
    found = checked(tmp_path, registry, "contiguous_undeclared", "contiguous_declared")
    assert found["contiguous_declared"].status == "ok"
    assert found["contiguous_undeclared"].status == "error"
    assert found["contiguous_undeclared"].reason.endswith("the call raised ValueError: not contiguous")


def test_who_is_wrong_on_inputs_that_require_gradients_is_refused(registry: Registry, tmp_path: Path) -> None:
    name = "doubles_graded"
    record = checked(tmp_path / "with", registry, name)[name]
    assert (record.status, record.failed_on) == ("mismatch", ["near:graded"])
    assert "on inputs of the family graded: RMS error" in record.reason
    assert checked(tmp_path / "left out", registry, name, without=("graded",))[name].status == "ok"


def test_who_has_no_gradient_of_a_case_is_not_given_such_inputs(registry: Registry, tmp_path: Path) -> None:
    case = CASE.replace("scaled_dot", "alibi")
    found = checked(tmp_path, registry, "sdpa_flash", "numpy", case=case)
    assert {name: (r.status, r.reason) for name, r in found.items()} == {
        "sdpa_flash": ("ok", ""),
        "numpy": ("ok", ""),
    }


@pytest.mark.slow
def test_weights_are_held_against_the_oracles_wherever_they_are_declared(
    registry: Registry, tmp_path: Path
) -> None:
    wrong = {
        "weights_leak": "where the mask drops the pair",
        "weights_off": "sums to 1.000",
        "weights_transposed": "what it gives has shape",
        "weights_of_other_heads": "worst at (b=",
        "weights_scaled": "worst at (b=",
        "weights_double": "what it gives has dtype float64; float32 is asked for",
    }
    built_in = ("eager", "bmm", "weighted_sum", "per_head_loop")
    found = checked(tmp_path / "with", registry, *wrong, "weights_right", "weights_raise", *built_in)
    for name in ("weights_right", *built_in):
        assert (found[name].status, found[name].reason) == ("ok", "")
    for name, words in wrong.items():
        record = found[name]
        assert (record.status, record.failed_on) == ("mismatch", ["weights"]), record.reason
        assert record.failed_check == "weights"
        assert ": the weights: " in record.reason
        assert words in record.reason
    assert found["weights_raise"].status == "error"
    assert found["weights_raise"].reason.endswith("computing the weights raised ValueError: no weights today")
    left = checked(tmp_path / "left out", registry, *wrong, without=("weights",))
    assert {record.status for record in left.values()} == {"ok"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        "attention/sinks/B2-H4-Hkv2-Lq8-Lk12-D8/padding/bfloat16/cpu/forward",
        "attention/softcap/B1-H2-Lq9-Lk5-D8/causal:lower_right/float64/cpu/forward",
        "attention/scaled_dot/B1-H2-Lq8-Lk12-D8/float/float32/cpu/both",
    ],
)
def test_weights_of_built_ins_pass_whatever_the_case(registry: Registry, tmp_path: Path, case: str) -> None:
    found = checked(tmp_path, registry, "eager", "bmm", "weighted_sum", "per_head_loop", case=case)
    assert {name: (r.status, r.reason) for name, r in found.items()} == dict.fromkeys(found, ("ok", ""))
