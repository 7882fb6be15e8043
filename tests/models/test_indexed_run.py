"""From the config of a model to verdicts: a suite is made, checked and timed, and what it lacks is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import attnbench
from attnbench.cli import attnbench as command_line
from attnbench.models.config import describe
from attnbench.models.suite import Lengths, model_suite

CONFIG = {
    "model_type": "deepseek_v32", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8,
    "q_lora_rank": 96, "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32,
    "index_topk": 64, "index_n_heads": 4, "index_head_dim": 32, "max_position_embeddings": 4096,
}  # fmt: skip
"""DeepSeek-V3.2 in small: 64 of more keys are chosen."""


@pytest.mark.slow
def test_each_layer_of_a_model_with_an_indexer_has_a_fastest_backend(tmp_path: Path) -> None:
    suite = tmp_path / "small.toml"
    suite.write_text(model_suite(describe(CONFIG), Lengths((256,), (), (64, 256))).text)
    run = attnbench.run([str(suite)], repetitions=1, budget=0.02, out=tmp_path)
    right = {record.case: record for record in run.records if record.status == "ok"}
    assert {record.status for record in run.records} == {"ok", "unsupported"}
    assert {case.split("/")[0] for case in right} == {"attention", "selected", "select"}
    assert {record.case for record in run.records} == set(right), "each case has a right backend"


@pytest.mark.slow
def test_every_total_of_a_model_names_the_layers_that_no_case_says(tmp_path: Path) -> None:
    config = {
        "model_type": "lfm2", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
        "full_attn_idxs": [1], "max_position_embeddings": 256,
    }  # fmt: skip
    suite, page, table = tmp_path / "small.toml", tmp_path / "page.html", tmp_path / "choice.toml"
    suite.write_text(model_suite(describe(config), Lengths((64,), (), (64,))).text)
    names = ["sdpa_flash", "bmm", "eager"]
    run = attnbench.run([str(suite)], backends=names, repetitions=2, budget=0.05, out=tmp_path)
    assert run.manifests[0].without == ["3 short convolution layers"]
    said = "without 3 short convolution layers"
    for words in (["report", str(run.path)], ["report", str(run.path), "--html", str(page)]):
        done = CliRunner().invoke(command_line, words)
        assert done.exit_code == 0, done.output
        text = (done.stdout if words[-1] != str(page) else page.read_text()).lower()
        assert f"prefill {said}: " in text
        assert f"decode {said}: " in text
        assert f"step of decode {said}" in text
    done = CliRunner().invoke(command_line, ["choose", str(run.path), "--out", str(table)])
    for line in done.stdout.splitlines():
        assert not line.startswith("all counted calls") or f"{said}: " in line
