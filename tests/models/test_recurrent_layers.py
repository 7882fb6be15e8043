"""The recurrent layers of hybrid models, held against the modules that transformers builds from a config."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from typing import Any

import pytest
from published import MLA, PUBLISHED, Config, config

from attnbench.cases.ids import parse_case
from attnbench.cases.suites import parse_suite
from attnbench.inputs.draw import Parameters
from attnbench.models.config import describe
from attnbench.models.layers import Model, shard
from attnbench.models.suite import Lengths, model_suite
from attnbench.oracle.solve import problem_of
from attnbench.plugins.registry import load_registry
from attnbench.types.errors import BadInput
from attnbench.types.operation import operation_of

Layer = tuple[str, int, int, int, int]
"""The rule, the heads of v, those of q and k, and the features of k and v."""


def recurrent(model: Model) -> Counter[Layer]:
    return Counter({(k.update, k.H, k.Hkv, k.D, k.Dv): k.count for k in model.layers if k.update})


def built(type_: str) -> tuple[Config, Counter[Layer]]:
    """Return the default config of a type as it is written, and the recurrent layers of the model."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from forward import recurrent_layers

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fields = transformers.AutoConfig.for_model(type_)
        with torch.device("meta"):
            model = transformers.AutoModel.from_config(fields)
    layers = recurrent_layers(model)
    found = Counter({(one.rule, one.H, one.Hkv, one.D, one.Dv): n for one, n in layers.items()})
    return json.loads(fields.to_json_string()), found


@pytest.mark.parametrize(
    "type_",
    [
        "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "kimi_linear", "minimax", "granitemoehybrid",
        "nemotron_h", "falcon_h1", "zamba2", "mamba2", "bamba", "jamba", "zamba", "mamba", "falcon_mamba",
    ],
)  # fmt: skip
def test_recurrent_layers_are_those_that_transformers_builds(type_: str) -> None:
    fields, found = built(type_)
    assert recurrent(describe(fields)) == found
    assert found


def test_values_that_stand_for_published_ones_are_those_of_the_classes() -> None:
    transformers = pytest.importorskip("transformers")
    qwen = PUBLISHED["qwen3.5-9b"]["text_config"]
    of_falcon = {"model_type": "falcon_h1", "mamba_n_groups": PUBLISHED["falcon-h1-7b"]["mamba_n_groups"]}
    for own in (qwen, of_falcon):
        of_class = json.loads(transformers.AutoConfig.for_model(own["model_type"]).to_json_string())
        assert {name: of_class.get(name) for name in own if name != "torch_dtype"} == {
            name: value for name, value in own.items() if name != "torch_dtype"
        }


def test_fields_as_they_are_published() -> None:
    kimi = config(
        "kimi_linear", 2304, 27, 32, **MLA,
        linear_attn_config={
            "full_attn_layers": [4, 8, 12, 16, 20, 24, 27], "head_dim": 128, "num_heads": 32,
        },
    )  # fmt: skip
    assert recurrent(describe(kimi)) == {("gated_delta_channels", 32, 32, 128, 128): 20}
    minimax = config("minimax_text_01", 6144, 80, 64, 8, head_dim=128, attn_type_list=[*[0] * 7, 1] * 10)
    assert recurrent(describe(minimax)) == {("lightning", 64, 64, 128, 128): 70}
    batch = model_suite(describe(minimax), Lengths(sequences="q512s2k_4q1s1k")).text
    assert 'rule = "lightning"\nbatch = "q512_4q1"' in batch
    assert recurrent(describe(PUBLISHED["qwen3-next-80b"])) == {("gated_delta", 32, 16, 128, 128): 36}
    bamba = config(
        "bamba", 4096, 32, 32, 8, attn_layer_indices=[9, 18, 27], mamba_n_heads=128, mamba_d_state=256,
        mamba_expand=2, mamba_d_head="auto",
    )  # fmt: skip
    assert recurrent(describe(bamba)) == {("gated", 128, 1, 256, 64): 29}
    without_attention = describe(bamba | {"attn_layer_indices": None})
    assert recurrent(without_attention) == {("gated", 128, 1, 256, 64): 32}


def test_what_no_rule_says_is_named() -> None:
    none = describe(PUBLISHED["lfm2-1.2b"] | {"full_attn_idxs": []})
    with pytest.raises(BadInput, match=r"short convolution \(16 layers\): it keeps its last few inputs"):
        model_suite(none)


def test_an_rg_lru_is_a_selective_scan_of_one_feature() -> None:
    """transformers' layer, and the oracle on what its gates give: the same outputs and state."""
    torch = pytest.importorskip("torch")
    rg = pytest.importorskip("transformers.models.recurrent_gemma.modeling_recurrent_gemma")
    torch.manual_seed(0)
    fields = rg.RecurrentGemmaConfig(num_attention_heads=2, hidden_size=6, lru_width=6)
    layer = rg.RecurrentGemmaRglru(fields).double()
    for weights in layer.parameters():
        torch.nn.init.normal_(weights)
    seen: dict[str, Any] = {}
    scan = layer._rnn_scan
    layer._rnn_scan = lambda **given: seen.update(given) or scan(**given, acc_dtype=torch.float64)
    x = torch.randn(1, 5, 6, dtype=torch.float64)
    with torch.no_grad():
        out = layer(x, torch.arange(1, 6)[None])
        rate = -8.0 * torch.nn.functional.softplus(layer.recurrent_param)
        dt = seen["recurrent_gate"].log() / rate
        given = {"q": torch.ones(1, 1, 5, 1), "k": torch.ones(1, 1, 5, 1)}
        given |= {"v": (seen["hidden_states"] / dt)[:, None], "dt": dt[:, None], "rate": rate[None, None]}
        given["past_state"] = torch.zeros(1, 1, 1, 6)
    case = parse_case("recurrent/selective/B1-H1-L5-D1-Dv6")
    arrays = {name: value.double().numpy() for name, value in given.items()}
    problem = problem_of(case, load_registry().rule("selective"), Parameters({}, {}), arrays)
    assert torch.allclose(torch.from_numpy(operation_of(case).solve(problem)["out"]), out[:, None])


def test_rwkv7_says_that_it_is_not_verified() -> None:
    model = describe({"model_type": "rwkv7", "num_hidden_layers": 24, "hidden_size": 2048, "head_dim": 64})
    assert recurrent(model) == {("rwkv7", 32, 32, 64, 64): 24}
    assert any("not verified" in note for note in model.notes)


def test_one_step_of_each_stage_covers_all_layers() -> None:
    lengths = Lengths((512, 2048), ((512, 4096),), (1024, 8192), (1, 16))
    made = model_suite(describe(PUBLISHED["qwen3-next-80b"]), lengths)
    suite = parse_suite(made.text, "model")
    assert suite.stages is not None
    assert suite.counts is not None
    layers: dict[tuple[str, str], float] = {}
    for case, stage, count in zip(suite.cases, suite.stages, suite.counts, strict=True):
        layers[stage, case.operation] = layers.get((stage, case.operation), 0) + count
    assert layers == {
        (stage, operation): number
        for stage in ("prefill", "chunked", "decode")
        for operation, number in (("recurrent", 36), ("attention", 12))
    }
    staged = zip(suite.cases, suite.stages, strict=True)
    steps = {(stage, case.B, case.Lq) for case, stage in staged if case.operation == "recurrent"}
    # A state stands for all that came before, so a decode has one length.
    assert steps == {
        ("prefill", 1, 512), ("prefill", 1, 2048), ("chunked", 1, 512), ("decode", 1, 1), ("decode", 16, 1),
    }  # fmt: skip
    assert suite.baseline is None


def test_a_step_with_sequences_of_unlike_lengths_counts_the_new_tokens() -> None:
    made = model_suite(describe(PUBLISHED["qwen3-next-80b"]), Lengths(sequences="q512s2k_4q1s1k"))
    batches = {case.operation: case.batch for case in parse_suite(made.text, "model").cases}
    assert batches == {"attention": "q512s2k_4q1s1k", "recurrent": "q512_4q1"}


def test_devices_share_the_heads_of_recurrent_layers() -> None:
    (kind, _) = describe(PUBLISHED["qwen3-next-80b"]).layers
    assert [(one.H, one.Hkv) for one in (shard(kind, 2), shard(kind, 32))] == [(16, 8), (1, 1)]


def test_jamba_is_whole_and_its_channels_are_shared() -> None:
    jamba = describe(PUBLISHED["jamba-v0.1"])
    assert recurrent(jamba) == {("selective", 1, 1, 16, 8192): 28}
    assert jamba.others == ()
    suite = parse_suite(model_suite(jamba, Lengths((16,), (), (64,), (1,))).text, "model")
    staged = zip(suite.cases, suite.stages or (), suite.counts or (), strict=True)
    assert {(case.rule, stage, case.Lq): count for case, stage, count in staged} == {
        ("selective", "prefill", 16): 28, ("scaled_dot", "prefill", 16): 4,
        ("selective", "decode", 1): 28, ("scaled_dot", "decode", 1): 4,
    }  # fmt: skip
    (kind,) = (kind for kind in jamba.layers if kind.update)
    assert [(one.H, one.Dv) for one in (shard(kind, 1), shard(kind, 8))] == [(1, 8192), (1, 1024)]
    step = parse_suite(model_suite(jamba, Lengths(sequences="q512s2k_4q1s1k")).text, "model")
    counted = zip(step.cases, step.counts or (), strict=True)
    assert {(case.rule, case.batch): count for case, count in counted} == {
        ("selective", "q512_4q1"): 28, ("scaled_dot", "q512s2k_4q1s1k"): 4,
    }  # fmt: skip


def test_layers_that_are_left_out_have_a_reason() -> None:
    notes = model_suite(describe(PUBLISHED["lfm2-1.2b"]), Lengths((16,), (), (), (1,))).notes
    assert any(note.startswith("left out: short convolution (10 layers): it keeps") for note in notes)
