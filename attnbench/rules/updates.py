"""Updates of the state of a recurrence, in the words of ONNX's operator LinearAttention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnbench.types.rule import Rule, Update

if TYPE_CHECKING:
    from attnbench.types.case import Case

_ONNX = "ONNX opset 27, LinearAttention"

LINEAR = Rule(
    name="linear",
    formula="S ← S + k vᵀ",
    source=f"Katharopoulos et al. 2020, Transformers are RNNs, without feature map; {_ONNX}",
    update=Update(),
)


def _one_for_all(case: Case) -> str | None:
    """Refuse gradients of batches: that of a tensor of all sequences is a sum over them."""
    if case.batch and case.pass_ != "forward":
        return "its decays belong to all sequences, so batches have no gradients"
    return None


LIGHTNING = Rule(
    name="lightning",
    formula="S ← e^g S + k vᵀ, one g for all steps",
    source="Sun et al. 2023, Retentive Network, eq. 5; Qin et al. 2024, Lightning Attention-2; MiniMax 2025",
    update=Update(decays="fixed"),
    supports=_one_for_all,
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


SELECTIVE = Rule(
    name="selective",
    formula="S ← e^(rate ∘ 1 dtᵀ) ∘ S + k (dt ∘ v)ᵀ",
    source="Gu and Dao 2023, Mamba, arXiv 2312.00752, algorithm 2; rate is Aᵀ there, k and q are B and C",
    update=Update(decays="element"),
    supports=_one_for_all,
)
