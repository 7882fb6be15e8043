"""From the config of a model with an indexer to verdicts: a suite is made, checked and timed."""

from __future__ import annotations

from pathlib import Path

import pytest

import attnbench
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
