"""The suite of a model: which cases its layers become."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from published import PUBLISHED, Config, config

from attnbench.cases.suites import parse_suite
from attnbench.cli import attnbench
from attnbench.masks import keep_rows
from attnbench.models.config import describe
from attnbench.models.suite import Lengths, ModelSuite, model_suite
from attnbench.plugins.registry import load_registry
from attnbench.types.case import Case
from attnbench.types.errors import BadInput
from attnbench.types.mask import mask_text


def made(name: str, **lengths: tuple[int, ...]) -> ModelSuite:
    return model_suite(describe(PUBLISHED[name]), Lengths(**lengths))  # type: ignore[arg-type]


def cases(suite: ModelSuite) -> tuple[Case, ...]:
    return parse_suite(suite.text, "model").cases


def shapes(suite: ModelSuite) -> set[tuple[int, int, int, str]]:
    return {(case.B, case.Lq, case.Lk, mask_text(case.mask)) for case in cases(suite)}


def test_a_model_of_text_is_prefilled_in_whole_and_in_chunks_and_decoded() -> None:
    suite = made("llama-3.1-8b", batch=(1, 16, 64))
    assert shapes(suite) == {
        *((1, n, n, "causal") for n in (512, 2048, 8192)),
        (1, 512, 4096, "causal:lower_right"),
        (1, 4, 8192, "causal:lower_right"),
        *((B, 1, n, "none") for B in (1, 16, 64) for n in (1024, 8192, 32768)),
    }
    assert {(c.rule, c.H, c.Hkv, c.D, c.Dv, c.dtype) for c in cases(suite)} == {
        ("scaled_dot", 32, 8, 128, 128, "bfloat16")
    }
    assert suite.cases == 14
    assert suite.notes == ()
    assert "# full attention: 32 times in a pass of the model\n" in suite.text


BATCH = "2q2k_32q1s1k"


def test_a_step_of_a_serving_engine_has_each_kind_of_layer_with_its_mask() -> None:
    suite = model_suite(describe(PUBLISHED["gpt-oss-20b"]), Lengths(sequences=BATCH, storage="paged:32"))
    assert {(c.batch, c.storage, c.sizes, mask_text(c.mask)) for c in cases(suite)} == {
        (BATCH, "paged", (("page", 32),), "causal:lower_right"),
        (BATCH, "paged", (("page", 32),), "causal:lower_right+window:128"),
    }
    assert parse_suite(suite.text, "model").counts == (12, 12)
    assert "baseline" not in suite.text
    # The one token of a sequence that is decoded sees all others.
    decode = model_suite(describe(PUBLISHED["llama-3.1-8b"]), Lengths(sequences="8q1s1k"))
    assert [(mask_text(c.mask), c.storage) for c in cases(decode)] == [("none", "packed")]
    suite = model_suite(describe(PUBLISHED["llama-4-scout"]), Lengths(sequences="q16k"))
    assert {mask_text(c.mask) for c in cases(suite)} == {
        "causal:lower_right", "causal:lower_right+chunked:8192",
    }  # fmt: skip
    with pytest.raises(BadInput, match="a sequence of 204800 keys, and the model has 131072 positions"):
        model_suite(describe(PUBLISHED["llama-3.1-8b"]), Lengths(sequences="q200k"))


CACHES = ("dtype", "q8_0", "int8:head")


def test_only_a_decode_reads_its_cache_in_few_bits_with_the_counts_of_the_step() -> None:
    suite = made("llama-3.1-8b", prefill=(512,), chunked=(), decode=(1024, 8192), caches=CACHES)
    assert [(case.Lk, case.kv) for case in cases(suite) if case.Lq == 1] == [
        (n, word) for n in (1024, 8192) for word in CACHES
    ]
    assert {case.kv for case in cases(suite) if case.Lq > 1} == {"dtype"}
    assert parse_suite(suite.text, "model").counts == (32, *[16] * 6)
    # torch's function reads numbers of the dtype alone, so it is no baseline of all cases.
    assert "baseline" not in suite.text
    lengths = Lengths(sequences="8q1s1k", storage="paged:16", caches=CACHES)
    step = model_suite(describe(PUBLISHED["llama-3.1-8b"]), lengths)
    assert [(case.kv, case.storage) for case in cases(step)] == [(word, "paged") for word in CACHES]


def test_a_layer_that_can_not_hold_its_cache_so_is_named() -> None:
    # Heads of 24 features have no blocks of 32.
    fields = config("llama", 96, 2, 4) | {"max_position_embeddings": 512}
    suite = model_suite(describe(fields), Lengths((), (), (64,), (1,), caches=CACHES))
    assert [case.kv for case in cases(suite)] == ["dtype", "int8:head"]
    assert any("kv=q8_0" in note and "multiples of 32" in note for note in suite.notes)
    # A decode of DeepSeek has one latent head, whatever is asked for.
    latent = made("deepseek-v3", prefill=(), chunked=(), decode=(64,), caches=("dtype", "latent", "q8_0"))
    assert [case.kv for case in cases(latent)] == ["latent"]
    assert [note for note in latent.notes if "kv=" in note and "q8_0" not in note] == []
    assert any("latent head has no case with kv=q8_0" in note for note in latent.notes)
    # A recurrent layer has no keys and values.
    hybrid = made("qwen3-next-80b", prefill=(), chunked=(), decode=(64,), caches=CACHES)
    assert {(case.operation, case.kv) for case in cases(hybrid)} == {
        ("recurrent", "dtype"), *(("attention", word) for word in CACHES)
    }  # fmt: skip


def test_an_encoder_sees_padded_batches_and_an_image_has_its_number_of_tokens() -> None:
    assert shapes(made("bert-base", prefill=(128, 512), batch=(1, 8))) == {
        (B, n, n, "padding") for B in (1, 8) for n in (128, 512)
    }
    assert shapes(made("vit-b16", batch=(1, 8))) == {(1, 197, 197, "none"), (8, 197, 197, "none")}


def test_an_encoder_and_its_decoder() -> None:
    suite = made("whisper-large-v3", prefill=(64, 512), chunked=(), decode=(256, 1024), batch=(1,))
    assert shapes(suite) == {
        (1, 1500, 1500, "none"),
        (1, 64, 64, "causal"), (1, 448, 448, "causal"), (1, 1, 256, "none"), (1, 1, 448, "none"),
        (1, 64, 1500, "none"), (1, 448, 1500, "none"), (1, 1, 1500, "none"),
    }  # fmt: skip


def test_an_encoder_and_its_decoder_may_have_configs_of_their_own() -> None:
    bert = PUBLISHED["bert-base"]
    both = describe({"model_type": "encoder-decoder", "encoder": bert, "decoder": bert})
    assert [(kind.name, kind.count, kind.causal, kind.keys) for kind in both.layers] == [
        ("encoder", 12, False, None),
        ("decoder full attention", 12, True, None),
        ("cross-attention", 12, False, 512),
    ]
    sees = describe({"encoder": PUBLISHED["vit-b16"], "decoder": PUBLISHED["gpt2"]})
    assert sees.layers[-1].keys == 197
    assert not [note for note in sees.notes if "length of the source" in note]
    # In T5Gemma the encoder's window counts one side; cross-attention has none.
    t5gemma = describe(PUBLISHED["t5gemma-2b-2b"])
    assert [(kind.name, kind.count, kind.window) for kind in t5gemma.layers] == [
        ("sliding encoder", 13, 4097), ("encoder", 13, None),
        ("decoder sliding attention", 13, 4096), ("decoder full attention", 13, None),
        ("cross-attention", 26, None),
    ]  # fmt: skip
    with pytest.raises(BadInput, match="configs of their own: give each in a file of its own"):
        describe({"decoder": bert, "is_encoder_decoder": True})


def test_a_decoder_may_see_its_own_keys_and_those_of_an_encoder_in_one_softmax() -> None:
    """T5Gemma 2, as ``T5Gemma2MergedAttention`` of transformers has it; the order of keys changes nothing."""
    text = config("", 256, 6, 4, 1, head_dim=64, sliding_window=8, max_position_embeddings=64)
    fields = {
        "model_type": "t5gemma2", "is_encoder_decoder": True,
        "encoder": {"model_type": "t5gemma2_encoder", "text_config": text | {"model_type": "t5gemma2_text"}},
        "decoder": text | {"model_type": "t5gemma2_decoder"},
    }  # fmt: skip
    suite = model_suite(describe(fields), Lengths((16,), (), (32,)))
    assert shapes(suite) == {
        (1, 16, 16, "padding+reach:3,4"), (1, 16, 16, "padding"),
        (1, 16, 80, "causal:lower_right+window:8+first:64"), (1, 16, 80, "causal:lower_right"),
        (1, 1, 72, "none"), (1, 1, 96, "none"),
    }  # fmt: skip
    (sliding,) = (case for case in cases(suite) if "window" in mask_text(case.mask))
    q, k = np.ogrid[:16, :80]
    # Keys 64 and on are the decoder's own.
    own = (k - 64 <= q) & (k - 64 > q - 8)
    assert (keep_rows(sliding, np.arange(16))[0] == ((k < 64) | own)).all()
    batch = model_suite(describe(fields), Lengths(sequences="2q16_4q1s32"))
    assert "no case yet has a batch whose first keys are of an encoder" in " ".join(batch.notes)
    lacks = ["5 decoder sliding attention layers", "1 decoder full attention layer"]
    assert f"without = {json.dumps(lacks)}" in batch.text


def test_no_case_is_longer_than_the_model_can_be() -> None:
    suite = made("gpt2")
    assert max(case.Lk for case in cases(suite)) == 1024
    shortened = "lengths above 1024, the most positions of the model, became 1024"
    assert shortened in suite.notes
    # An encoder has no decode, and cross-attention no own number of keys.
    for name in ("gpt2", "bert-base", "whisper-large-v3"):
        short = made(name, prefill=(128,), chunked=(), decode=(64,) if name == "gpt2" else (64, 128))
        assert not [note for note in short.notes if note.startswith("lengths above")]
    assert not [note for note in made("bert-base", prefill=(512,)).notes if note.startswith("lengths above")]
    assert shapes(made("roberta-base", prefill=(8192,), batch=(1,))) == {(1, 512, 512, "padding")}


def test_a_model_without_a_longest_length_is_named() -> None:
    (note,) = made("qwen3-8b").notes
    assert note == "the config does not say how many positions the model has: no length is shortened"
    assert not [words for words in made("vit-b16").notes if "positions" in words]


def test_how_many_keys_cross_attention_has_is_said() -> None:
    fields = {"is_encoder_decoder": True, "num_decoder_layers": 2, "sliding_window": None}
    suite = model_suite(describe(config("brand_new", 64, 2, 4) | fields), Lengths(prefill=(2048,)))
    assert "# cross-attention of 512 keys: 2 times" in suite.text
    assert (
        "no field fixes the length of the source: it has 512 tokens, whatever --prefill says" in suite.notes
    )
    assert "# cross-attention of 1500 keys: 32 times" in made("whisper-large-v3").text


def hand_kept(Lq: int, Lk: int, window: int | None, chunk: int | None) -> np.ndarray:
    """The pairs that transformers keeps: the queries are the last of Lk positions."""
    q, k = np.arange(Lk - Lq, Lk)[:, None], np.arange(Lk)[None]
    kept = k <= q
    if window:
        kept = kept & (k > q - window)
    if chunk:
        kept = kept & (k // chunk == q // chunk)
    return kept


@pytest.mark.parametrize(("window", "chunk"), [(5, None), (1, None), (None, 8), (None, 64)])
def test_masks_keep_the_pairs_that_the_model_keeps(window: int | None, chunk: int | None) -> None:
    word = "sliding_attention" if window else "chunked_attention"
    fields = config(
        "llama", 64, 2, 4, sliding_window=window, attention_chunk_size=chunk, layer_types=[word] * 2
    )
    calls = [(n, n) for n in (1, 4, 5, 6, 8)] + [(1, n) for n in (1, 4, 5, 7, 16, 17, 23)]
    calls += [(3, 4), (3, 8), (2, 7), (4, 16), (7, 23), (7, 20), (20, 20)]
    for Lq, Lk in calls:
        lengths = Lengths(
            prefill=(Lq,) if Lq == Lk else (),
            chunked=((Lq, Lk),) if 1 < Lq < Lk else (),
            decode=(Lk,) if Lq == 1 < Lk else (),
            batch=(1,),
        )
        (case,) = cases(model_suite(describe(fields), lengths))
        kept = keep_rows(case, np.arange(Lq))
        whole = hand_kept(Lq, Lk, window, chunk)
        assert case.Lq == Lq
        # Keys that no query sees are left out, and they are the first ones.
        assert not whole[:, : Lk - case.Lk].any()
        found = np.ones((Lq, case.Lk), bool) if kept is None else kept[0, 0]
        np.testing.assert_array_equal(found, whole[:, Lk - case.Lk :])
        assert window is None or case.Lk < Lq + window


@pytest.mark.parametrize("type_", ["t5", "mt5", "umt5", "switch_transformers"])
def test_the_bias_of_t5_is_a_rule_that_counts_one_side_in_a_decoder(type_: str) -> None:
    model = describe(PUBLISHED["t5-base"] | {"model_type": type_})
    suite = model_suite(model, Lengths((128,), (), (64,), (2,)))
    assert not [note for note in suite.notes if "left out" in note or "unknown" in note]
    said = {
        (case.rule, case.constants, case.B, case.Lq, case.Lk, mask_text(case.mask)) for case in cases(suite)
    }
    decoder, cross = ("t5_bias", (("sides", 1),)), ("dot", ())
    assert said == {
        ("t5_bias", (), 2, 128, 128, "padding"),
        (*decoder, 1, 128, 128, "causal"), (*decoder, 2, 1, 64, "none"),
        (*cross, 1, 128, 512, "none"), (*cross, 2, 1, 512, "none"),
    }  # fmt: skip
    # A step of a serving engine has sequences of unlike lengths, with the same rule.
    fields = {"relative_attention_num_buckets": 64, "relative_attention_max_distance": 256}
    other = describe(PUBLISHED["t5-base"] | {"model_type": type_} | fields)
    (step,) = [
        c for c in cases(model_suite(other, Lengths(sequences="2q64_q1s200"))) if "sides" in dict(c.constants)
    ]
    assert dict(step.constants) == {"buckets": 64, "distance": 256, "sides": 1}


def test_latent_attention_is_expanded_in_a_prefill_and_absorbed_in_a_decode() -> None:
    suite = made("deepseek-v3", chunked=(), batch=(1,))
    assert {(c.rule, c.constants) for c in cases(suite)} == {("scaled_dot", (("scale", 0.1352338),))}
    assert {(c.Lq == 1, c.H, c.Hkv, c.D, c.Dv, c.kv) for c in cases(suite)} == {
        (False, 128, 128, 192, 128, "dtype"), (True, 128, 1, 576, 512, "latent"),
    }  # fmt: skip
    # torch's function takes no such tensor.
    assert "baseline" not in suite.text


def test_of_a_batch_only_the_sequences_that_decode_have_the_latent_key() -> None:
    suite = model_suite(describe(PUBLISHED["deepseek-v3"]), Lengths(sequences="2q512_8q1s1k"))
    assert {(c.batch, c.Hkv, c.kv, mask_text(c.mask)) for c in cases(suite)} == {
        ("2q512", 128, "dtype", "causal:lower_right"), ("8q1s1k", 1, "latent", "none"),
    }  # fmt: skip


# Images and sound beside the text


def test_an_encoder_of_images_is_a_stage_of_its_own() -> None:
    fields = PUBLISHED["gemma-3-27b, with its images"]
    suite = parse_suite(model_suite(describe(fields), Lengths(prefill=(512,))).text, "model")
    its = {
        (stage, case.H, case.D, case.Lq, mask_text(case.mask))
        for case, stage in zip(suite.cases, suite.stages or (), strict=True)
        if stage in ("image", "prompt with an image")
    }
    assert its == {
        ("image", 16, 72, 4096, "none"),
        ("prompt with an image", 32, 128, 512, "causal+image:0,256"),
    }
    assert sum(
        count
        for stage, count in zip(suite.stages or (), suite.counts or (), strict=True)
        if stage == "image"
    ) == 27  # fmt: skip
    # A decode reads no image.
    decode = model_suite(describe(fields), Lengths(prefill=(), chunked=()))
    assert "image" not in (parse_suite(decode.text, "model").stages or ())


def test_an_image_is_seen_whole_by_its_own_tokens() -> None:
    fields = {
        "model_type": "gemma3", "mm_tokens_per_image": 6, "vision_config": {"hidden_size": 8},
        "text_config": config("gemma3_text", 64, 2, 2, 1, head_dim=32, sliding_window=4,
                              layer_types=["sliding_attention", "full_attention"]),
    }  # fmt: skip
    suite = model_suite(describe(fields), Lengths((9,), (), ()))
    whole = parse_suite(suite.text, "model")
    stages = zip(whole.cases, whole.stages or (), strict=True)
    image = np.arange(9) < 6
    for case in (case for case, stage in stages if stage == "prompt with an image"):
        window = 4 if "window" in mask_text(case.mask) else None
        kept = keep_rows(case, np.arange(9))
        assert kept is not None
        expected = hand_kept(9, 9, window, None) | (image[:, None] & image[None])
        np.testing.assert_array_equal(kept[0, 0], expected)
    assert "vision_config is left out: no field says how many tokens it has, so its input decides" in (
        suite.notes
    )


def test_only_the_sliding_layers_of_gemma_4_see_an_image_whole() -> None:
    fields = {
        "model_type": "gemma4", "vision_soft_tokens_per_image": 280, "vision_config": {},
        "text_config": config(
            "gemma4_text", 1536, 2, 8, 1, head_dim=256, sliding_window=512,
            layer_types=["sliding_attention", "full_attention"], use_bidirectional_attention="vision",
        ),
    }  # fmt: skip
    suite = parse_suite(model_suite(describe(fields), Lengths((512,), (), ())).text, "model")
    masks = {
        mask_text(case.mask)
        for case, stage in zip(suite.cases, suite.stages or (), strict=True)
        if stage == "prompt with an image"
    }
    assert masks == {"causal+image:0,280", "causal"}


def test_a_prompt_of_paligemma_is_seen_whole_and_its_answer_is_causal() -> None:
    text = config("gemma", 2048, 18, 8, 1, head_dim=256)
    suite = model_suite(describe({"model_type": "paligemma", "text_config": text}), Lengths((64,), (), (8,)))
    assert shapes(suite) == {(1, 64, 64, "none"), (1, 1, 8, "none")}
    assert "all tokens of a prompt see each other" in suite.notes


def test_an_encoder_of_sound_has_the_tokens_of_its_longest_piece() -> None:
    sound = {
        "model_type": "qwen2_audio_encoder", "d_model": 1280, "encoder_layers": 32,
        "encoder_attention_heads": 20, "max_source_positions": 1500,
    }  # fmt: skip
    fields = {"model_type": "qwen2_audio", "audio_config": sound, "text_config": PUBLISHED["qwen2.5-7b"]}
    suite = parse_suite(model_suite(describe(fields), Lengths((64,), (), ())).text, "model")
    staged = zip(suite.cases, suite.stages or (), suite.counts or (), strict=True)
    assert {(c.H, c.D, c.Lq, count) for c, stage, count in staged if stage == "audio"} == {(20, 64, 1500, 32)}


def test_the_pooling_head_of_siglip_is_one_query() -> None:
    suite = made("siglip-so400m", batch=(1, 8))
    assert shapes(suite) == {(B, n, 729, "none") for B in (1, 8) for n in (1, 729)}


@pytest.mark.parametrize(
    ("suite", "name", "prefill", "decode"),
    [
        ("gpt-oss-20b", "gpt-oss-20b", (2048, 8192), (1024, 8192, 32768)),
        ("llama-4-scout", "llama-4-scout", (2048, 8192), (1024, 8192, 32768)),
        ("qwen3-32b", "qwen3-32b", (2048, 8192), (1024, 8192, 32768)),
        ("phi-3-mini", "phi-3-mini-4k", (2048, 4096), (1024, 4096)),
        ("falcon-7b", "falcon-7b", (1024, 2048), (1024, 2048)),
        ("gemma-2-27b", "gemma-2-27b", (2048, 8192), (1024, 8192)),
        ("gemma-3-27b", "gemma-3-27b", (2048, 8192), (1024, 8192, 32768)),
    ],
)
def test_built_in_suites_are_those_of_the_configs(
    suite: str, name: str, prefill: tuple[int, ...], decode: tuple[int, ...]
) -> None:
    chunked = ((512, 4096),) if name != "falcon-7b" else ()
    lengths = Lengths(prefill, chunked, decode, batch=(1,))
    fields = {field: part for field, part in PUBLISHED[name].items() if field != "vision_config"}
    own = cases(model_suite(replace(describe(fields), dtype=None), lengths))
    assert set(load_registry().suite(suite).cases) == set(own)


# The command


def from_config(tmp_path: Path, fields: Config | str, *words: str) -> Result:
    path = tmp_path / "config.json"
    path.write_text(fields if isinstance(fields, str) else json.dumps(fields))
    return CliRunner().invoke(attnbench, ["suite", "from-config", str(path), *words], prog_name="attnbench")


def test_the_command_prints_a_suite_and_what_it_left_out(tmp_path: Path) -> None:
    words = ["--prefill", "2K", "--chunked", "16x1k", "--decode", "1k,4096", "--batch", "2", "--tp", "2"]
    words += ["--threads", "1"]
    done = from_config(tmp_path, PUBLISHED["qwen3-next-80b"], *words)
    assert done.exit_code == 0, done.output
    suite = parse_suite(done.stdout, "mine")
    assert {(c.B, c.H, c.Hkv, c.Lq, c.Lk) for c in suite.cases} == {
        (1, 8, 1, 2048, 2048), (1, 8, 1, 16, 1024), (2, 8, 1, 1, 1024), (2, 8, 1, 1, 4096),
        (2, 8, 1, 1, 512), (2, 8, 1, 1, 2048),  # half of each, since a cache grows
        (1, 16, 8, 2048, 2048), (1, 16, 8, 16, 16), (2, 16, 8, 1, 1),  # of its gated delta nets
    }  # fmt: skip
    assert suite.summary == "qwen3_next, one of 2 devices: gated delta net, full attention"
    assert done.stderr.splitlines() == [
        "its attention is multiplied by σ(gate) before the projection: gated_output computes both, and these "
        "cases are attention alone",
        "cases are in bfloat16, as the config says; on a CPU a program in float32 may be much "
        "faster: --dtype float32 measures that one",
        "9 cases",
        "next: attnbench run mine.toml --cache rotating --allocator default --out mine.jsonl",
        "all backends run, of which those that compile take minutes, unless --backend names some; "
        "--plan says how long a run takes",
        "a config doesn't say how inputs lie in memory (attnbench capture finds it in a program): "
        "--layout BLHD is for a prompt of views, BHCD for a decode from a cache with room for more keys, "
        "BLHD_BHCD_BHCD for a prompt that is read from one",
    ]


def test_the_way_from_a_decode_of_torchs_function_names_few_backends(tmp_path: Path) -> None:
    told = from_config(tmp_path, PUBLISHED["qwen3-8b"], "--decode", "1k").stderr.splitlines()
    assert (
        "next: attnbench run mine.toml --cache rotating --backend sdpa_flash --backend bmm --backend eager "
        "--out mine.jsonl"
    ) in told
    assert "then: attnbench choose mine.jsonl" in told
    assert any(line.startswith("without --backend all backends run") for line in told)
    windows = from_config(tmp_path, PUBLISHED["mistral-7b-v0.1"], "--prefill", "8k").stderr
    assert "--backend bmm --backend flex" in windows, "what a window drops, flex leaves out"


def test_threads_that_nobody_asked_for_are_told(tmp_path: Path) -> None:
    done = from_config(tmp_path, PUBLISHED["qwen3-8b"], "--decode", "1k")
    (threads,) = {case.threads for case in parse_suite(done.stdout, "mine").cases}
    (told,) = [line for line in done.stderr.splitlines() if line.startswith("threads")]
    assert told.startswith(f"threads = {threads}, as torch uses here")
    assert (f"--threads 1,{threads} measures both" in told) == (threads > 1)


def test_only_the_stages_that_are_given_have_cases(tmp_path: Path) -> None:
    every = parse_suite(from_config(tmp_path, PUBLISHED["qwen3-8b"]).stdout, "mine")
    assert set(every.stages or ()) == {"prefill", "chunked", "decode"}
    assert {case.B for case in every.cases} == {1}
    done = from_config(tmp_path, PUBLISHED["qwen3-8b"], "--decode", "8k")
    assert {(case.Lq, case.Lk) for case in parse_suite(done.stdout, "mine").cases} == {(1, 4096), (1, 8192)}
    none = ["--prefill", "none", "--chunked", "none", "--decode", "none"]
    nothing = from_config(tmp_path, PUBLISHED["qwen3-8b"], *none)
    assert nothing.exit_code == 2
    assert nothing.stderr == (
        "attnbench: no layer of this model can be a case: no lengths are given, "
        "give some in --prefill or --chunked or --decode\n"
    )


@pytest.mark.parametrize(
    ("fields", "words", "told"),
    [
        ("[1]", [], "it is not an object: give the config.json of a model"),
        ('{"model_type": "x\\u0000\\n", "hidden_size": 8}', [], "it has no attention heads"),
        ({"model_type": "xlstm"}, [], "it has no attention heads"),
        (
            {"model_type": "mamba", "num_hidden_layers": 24},
            [],
            "it has no hidden_size",
        ),
        (PUBLISHED["falcon-7b"], ["--tp", "2"], "--tp 2: 71 query and 1 key/value heads can't be divided"),
        (PUBLISHED["gpt2"], ["--prefill", "0"], "'0': give numbers as in 512,8k, or none"),
        (PUBLISHED["gpt2"], ["--batch", "none"], "'none': give numbers as in 1,16, or sequences "),
        (PUBLISHED["gpt2"], ["--chunked", "4kx512"], "'4kx512': give numbers as in 512x4k,4x8k (Lq below"),
        (config("llama", 2**40, 1, 2**33), [], "H = 8589934592: sizes are 2147483647 or less"),
    ],
)
def test_bad_input_gets_one_sentence(
    tmp_path: Path, fields: Config | str, words: list[str], told: str
) -> None:
    done = from_config(tmp_path, fields, *words)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert told in done.stderr


def test_a_run_of_a_config_is_sent_to_the_command_that_makes_a_suite() -> None:
    done = CliRunner().invoke(attnbench, ["run", "config.json"], prog_name="attnbench")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "attnbench suite from-config makes one" in done.stderr


def test_cases_have_the_threads_of_torch_or_those_asked_for(tmp_path: Path) -> None:
    asked = parse_suite(from_config(tmp_path, PUBLISHED["qwen3-8b"], "--threads", "3").stdout, "mine")
    assert {case.threads for case in asked.cases} == {3}
    both = parse_suite(from_config(tmp_path, PUBLISHED["qwen3-8b"], "--threads", "1,3").stdout, "mine")
    assert Counter(case.threads for case in both.cases) == {1: len(asked.cases), 3: len(asked.cases)}
    here = parse_suite(from_config(tmp_path, PUBLISHED["qwen3-8b"]).stdout, "mine")
    assert {case.threads for case in here.cases} == {torch.get_num_threads()}


def test_the_counts_of_a_stage_are_those_of_one_step_of_it(tmp_path: Path) -> None:
    """gpt-oss has 12 sliding layers of 128 keys, alike at all lengths, and 12 full ones."""
    words = ["--prefill", "64,2k", "--decode", "8k", "--batch", "1,4"]
    suite = parse_suite(from_config(tmp_path, PUBLISHED["gpt-oss-20b"], *words).stdout, "mine")
    counts = dict(zip(suite.cases, suite.counts or (), strict=True))
    stages = dict(zip(suite.cases, suite.stages or (), strict=True))
    for stage in ("prefill", "decode"):
        assert math.isclose(sum(counts[case] for case in suite.cases if stages[case] == stage), 24)
    assert {count for case, count in counts.items() if case.Lk == 128} == {6}
    assert {count for case, count in counts.items() if case.Lk in (4096, 8192)} == {3}
    assert {count for case, count in counts.items() if case.Lk == 64} == {12}


def test_the_baseline_is_torchs_function_where_it_computes_the_rule(tmp_path: Path) -> None:
    def baseline(name: str) -> str | None:
        return parse_suite(from_config(tmp_path, PUBLISHED[name]).stdout, "mine").baseline

    assert baseline("gemma-3-27b") == "sdpa_flash"
    assert baseline("gpt-oss-20b") is None


def test_names_in_a_config_stay_on_their_line(tmp_path: Path) -> None:
    foreign = config("new\n[[cases]]\nid = 3 \"'\\", 64, 2, 2)
    done = from_config(tmp_path, foreign | {"layer_types": ["full_attention", "other\n[defaults]"]})
    assert done.exit_code == 0, done.output
    assert parse_suite(done.stdout, "mine").cases


def with_each_field(fields: Config, odd: object) -> Iterator[Config]:
    """Copies of a config in which one field is odd; also fields of its parts."""
    for name, value in fields.items():
        yield fields | {name: odd}
        if isinstance(value, dict):
            yield from (fields | {name: part} for part in with_each_field(value, odd))


@pytest.mark.parametrize("odd", [[], {}, [None], "x", -1, 0, 1.5, True, False, None, 2**70, float("nan")])
def test_a_field_of_any_kind_makes_a_suite_or_one_sentence(odd: object) -> None:
    one_of_each_type = {published["model_type"]: published for published in PUBLISHED.values()}
    for published in one_of_each_type.values():
        for fields in with_each_field(published, odd):
            try:
                suite = model_suite(describe(fields), Lengths(prefill=(16,), chunked=(), decode=()))
            except BadInput:
                continue
            assert cases(suite)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--batch", "q8_1"), "batch 'q8_1': '1' at character 4 is not a segment"),
        (("--batch", "0"), "'0': give numbers as in 1,16, or sequences as in 2q2k_32q1s1k"),
        (("--batch", "q8", "--prefill", "8"), "the batch q8 has all lengths: leave out --prefill"),
        (
            ("--kv", "q8_0", "--prefill", "8"),
            "--kv says how a decode holds its cache: give lengths of it, as",
        ),
        (("--kv", "q9_0"), "no encoding 'q9_0'; did you mean 'q8_0'?"),
        (("--storage", "packed"), "--storage needs sequences of unlike lengths, as --batch 2q2k_32q1s1k"),
        (("--batch", "q8", "--storage", "pagd"), "no storage 'pagd'; did you mean 'paged'?"),
    ],
)
def test_words_of_a_batch_that_make_no_sense_are_explained(
    tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    done = from_config(tmp_path, PUBLISHED["qwen3-8b"], *words)
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert parse_suite(from_config(tmp_path, PUBLISHED["qwen3-8b"], "--batch", BATCH).stdout, "mine").cases
    words = ["--decode", "64", "--kv", "int8", "--kv", "q8_0"]
    suite = parse_suite(from_config(tmp_path, PUBLISHED["qwen3-8b"], *words).stdout, "mine")
    assert [case.kv for case in suite.cases[:3]] == ["dtype", "int8:head", "q8_0"]


LLAMA_8B = PUBLISHED["llama-3.1-8b"] | {"intermediate_size": 14336, "vocab_size": 128256}
"""It has 8.03e9 parameters, 6.98e9 of them in its layers."""


def test_a_short_decode_hears_that_attention_is_a_small_part_of_it(tmp_path: Path) -> None:
    assert 0.7 * 6.98e9 < describe(LLAMA_8B).weights < 6.98e9
    # 32 layers · (512 + 1024) / 2 keys · 8 heads · 2 · 128 features · 2 bytes, beside 5.1e9 weights.
    said = "reads about 96 MiB of keys and values, and over 9.5 GiB of weights: a choice of attention saves"
    few = from_config(tmp_path, LLAMA_8B, "--decode", "1k", "--threads", "1,2")
    assert said in few.stderr
    halves = from_config(tmp_path, LLAMA_8B, "--decode", "1k", "--tp", "2").stderr
    assert "about 48 MiB of keys and values, and over 4.75 GiB" in halves
    # 32 layers · 512² / 2 pairs · 32 heads · 2 · 128 features, beside 5.1e9 weights · 512 tokens.
    said = "attention makes about 1.3% of the products of a prompt of 512 tokens: a choice of attention saves"
    assert said in from_config(tmp_path, LLAMA_8B, "--prefill", "256,512", "--threads", "1,2").stderr
    for words in (["--decode", "32k"], ["--decode", "1k", "--batch", "64"], ["--prefill", "32k"]):
        assert "a small part" not in from_config(tmp_path, LLAMA_8B, *words).stderr
    quantised = LLAMA_8B | {"quantization_config": {"quant_method": "gptq", "bits": 4}}
    assert "a small part" not in from_config(tmp_path, quantised, "--decode", "1k").stderr
    # Of the experts nobody knows how many a token reads.
    experts = describe(LLAMA_8B | {"num_local_experts": 8}).weights
    assert experts == describe(LLAMA_8B).weights - 32 * 2 * 4096 * 14336
