"""All backends through attnbench's own check, on a handful of cases that show what they can do."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

import attnbench

pytestmark = pytest.mark.skipif(find_spec("transformers") is None, reason="not installed: transformers")

GDN = "transformers_gdn_steps", "transformers_gdn_chunks"
KDA = "transformers_kda_steps", "transformers_kda_chunks"
MAMBA2 = "transformers_mamba2_scan", "transformers_mamba2_step"
SELECTIVE = "transformers_selective_scan", "transformers_selective_step"

CASES = {
    "recurrent/delta/B1-H2-Lq9-Lk9-D13/none/float32/cpu/forward": (*GDN, *KDA),
    "recurrent/gated_delta/B2-H4-Hkv2-Lq70-Lk70-D16-Dv8/none/bfloat16/cpu/forward": (*GDN, *KDA),
    "recurrent/gated_delta_channels/B1-H4-Hkv2-Lq65-Lk65-D8-Dv16/none/float32/cpu/forward": KDA,
    "recurrent/gated/B2-H4-Hkv2-Lq1-Lk1-D16-Dv8/none/bfloat16/cpu/forward": MAMBA2,
    # The transpose of a state of one feature is contiguous, and a function must not write to it.
    "recurrent/gated/B1-H2-Lq1-Lk1-D8-Dv1/none/float32/cpu/forward": MAMBA2,
    "recurrent/selective/B1-H2-Lq1-Lk1-D8-Dv1/none/float32/cpu/forward": SELECTIVE,
    "recurrent/gated/B1-H4-Hkv2-Lq257-Lk257-D13-Dv8/none/float32/cpu/forward": MAMBA2[:1],
    "recurrent/selective/B2-H4-Hkv2-Lq1-Lk1-D16-Dv8/none/bfloat16/cpu/forward": SELECTIVE,
    "recurrent/selective/B2-H4-Hkv2-Lq17-Lk17-D13-Dv24/none/float32/cpu/forward": SELECTIVE[:1],
    "recurrent/gated_delta/B2-H4-Hkv2-Lq65-Lk65-D16-Dv8/none/float32/cpu/both": (*GDN, *KDA),
    "recurrent/selective/B1-H2-Hkv1-Lq17-Lk17-D13-Dv8/none/float32/cpu/both": SELECTIVE[:1],
}
"""Fewer steps than a chunk, and more; fewer heads of q and k; other features of v; half precision."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], tuple[str, str]]:
    """Status and reason by backend and case."""
    out = tmp_path_factory.mktemp("runs")
    run = attnbench.run([*CASES], [*GDN, *KDA, *MAMBA2, *SELECTIVE], timed=False, out=out)
    return {(record.backend, record.case): (record.status, record.reason) for record in run.records}


@pytest.mark.parametrize("case", CASES)
def test_the_recurrence_and_its_state_are_right(
    found: dict[tuple[str, str], tuple[str, str]], case: str
) -> None:
    assert {name: found[name, case] for name in CASES[case]} == dict.fromkeys(CASES[case], ("ok", ""))


def test_kernels_that_are_installed_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "fla" / "ops" / "gated_delta_rule"
    package.mkdir(parents=True)
    for folder in (package, *package.parents[:2]):
        (folder / "__init__.py").write_text("")
    (package / "__init__.py").write_text(
        "def chunk_gated_delta_rule(*given, **named): raise RuntimeError('fla')"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    run = attnbench.run(
        ["recurrent/gated_delta/H1-L3-D4"], ["transformers_gdn_chunks"], timed=False, out=tmp_path / "runs"
    )
    assert [(record.status, record.reason) for record in run.records] == [("ok", "")]


def test_a_decay_by_channel_is_not_asked_of_the_gated_delta_rule(
    found: dict[tuple[str, str], tuple[str, str]],
) -> None:
    channels = next(case for case in CASES if "channels" in case)
    assert {found[name, channels][0] for name in GDN} == {"unsupported"}
