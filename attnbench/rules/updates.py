"""Updates of the state of a recurrence, in the words of ONNX's operator LinearAttention."""

from __future__ import annotations

from attnbench.types.rule import Rule, Update

_ONNX = "ONNX opset 27, LinearAttention"

LINEAR = Rule(
    name="linear",
    formula="S ← S + k vᵀ",
    source=f"Katharopoulos et al. 2020, Transformers are RNNs, without feature map; {_ONNX}",
    update=Update(),
)

GATED = Rule(
    name="gated",
    formula="S ← e^g S + k vᵀ",
    source=f"Yang et al. 2024, Gated Linear Attention Transformers, with one g for each head; {_ONNX}",
    update=Update(decays="head"),
)

DELTA = Rule(
    name="delta",
    formula="S ← S + beta k (v - Sᵀk)ᵀ",
    source=f"Yang et al. 2024, Parallelizing Linear Transformers with the Delta Rule; {_ONNX}",
    update=Update(corrects=True),
)

GATED_DELTA = Rule(
    name="gated_delta",
    formula="S ← e^g S; S ← S + beta k (v - Sᵀk)ᵀ",
    source=f"Yang et al. 2025, Gated Delta Networks; {_ONNX}",
    update=Update(decays="head", corrects=True),
)

GATED_DELTA_CHANNELS = Rule(
    name="gated_delta_channels",
    formula="S ← diag(e^g) S; S ← S + beta k (v - Sᵀk)ᵀ",
    source=f"Kimi Team 2025, Kimi Linear (KDA); {_ONNX}, with a decay for each feature of the key",
    update=Update(decays="channel", corrects=True),
)

RWKV7 = Rule(
    name="rwkv7",
    formula="S ← diag(e^g) S + b (Sᵀa)ᵀ + k vᵀ",
    source="Peng et al. 2025, RWKV-7 Goose, arXiv 2503.14456; a is -κ̂ there, and b is κ̂ ⊙ a",
    update=Update(decays="channel", removes=True),
)
