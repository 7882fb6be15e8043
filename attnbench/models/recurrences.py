"""The recurrent layers of a model: the rule of ``recurrent`` that computes them, and their sizes.

Sources: transformers, ``configuration_*.py`` and ``modeling_*.py`` of the types that are named below. For
Mamba-2, Dao and Gu 2024, Transformers are SSMs, equation 1 and section 7: the state of a head becomes
e^(dt·A) h + B (dt·x)ᵀ and is read as Cᵀh. A is one number for each head, so this is ``gated`` with the decay
dt·A, the key B, the value dt·x and the query C. Groups of heads share B and C. For Mamba-1, Gu and Dao 2023,
Mamba, algorithm 2: A is a number for each channel of x and feature of the state, which is the rule
``selective`` with all channels as one head; Zamba has several such heads.

For RG-LRU, De et al. 2024, Griffin, arXiv 2402.19427, equations 1 to 4: each channel of the state is
multiplied by a_t = e^(-c softplus(Λ) r_t), and √(1 - a_t²) i_t x_t is added. This is ``selective`` with one
feature of k and q, both 1: the rate is -c softplus(Λ), dt is r_t, and v is what is added, over r_t.

Convolutions, norms, gates, and Mamba-2's D·x lie outside of a recurrence. The scale of what is read is a
factor of the query, so a case has it whether the model scales or not.
"""

from __future__ import annotations

from attnbench.models.fields import Fields, first_of, needed
from attnbench.models.layers import LayerKind

CROSS = "cross-attention"

UNSAID = {
    "short convolution": "it keeps its last few inputs, and no state of a rule",
    CROSS: "no field says how many tokens the other model has",
}
"""Layers whose computation is known, and why no case has it."""

_STATES = ("mamba", "mamba2", "ssm", "linear_attention", "gated_delta_net", "kda")
"""Words of layers whose fields say which recurrence it is; some configs have one word for all."""
_MAMBA_2 = ("mamba_n_heads", "mamba_num_heads", "n_mamba_heads")


def recurrence(word: str, fields: Fields) -> LayerKind | str:
    """Return a kind of recurrent layers; a name of :data:`UNSAID`, or the word itself, where no rule says it.

    word: of the layer in a config.
    """
    if word in ("recurrent", "rglru"):
        width = first_of(fields, "lru_width") or needed(fields, "hidden_size")
        return _kind("RG-LRU", "selective", 1, 1, 1, width)
    if word == "conv":
        return "short convolution"
    if word == "cross":
        return CROSS
    if word == "rwkv7":
        D = needed(fields, "head_dim")
        heads = first_of(fields, "num_heads") or needed(fields, "hidden_size") // D
        return _kind("RWKV-7", "rwkv7", heads, heads, D, D)
    if word not in _STATES:
        return word
    # The rank of what projects to dt. The type mamba2 has it too, as a field that nothing reads.
    if fields.get("mamba_dt_rank") or (fields.get("time_step_rank") and not fields.get("num_heads")):
        return _mamba_1(fields)
    if H := first_of(fields, "linear_num_value_heads"):  # Qwen3-Next, Qwen3.5
        D, Dv = needed(fields, "linear_key_head_dim"), needed(fields, "linear_value_head_dim")
        return _kind("gated delta net", "gated_delta", H, needed(fields, "linear_num_key_heads"), D, Dv)
    if H := first_of(fields, "linear_num_heads"):  # Kimi Linear
        D = needed(fields, "linear_head_dim")
        return _kind("Kimi delta attention", "gated_delta_channels", H, H, D, D)
    if fields.get("attn_type_list") or fields.get("linear_attn_alpha_factor") is not None:  # MiniMax
        H = needed(fields, "num_attention_heads")
        D = first_of(fields, "head_dim") or needed(fields, "hidden_size") // H
        return _kind("lightning attention", "lightning", H, H, D, D)
    names = (*_MAMBA_2, *(("num_heads",) if fields.get("state_size") else ()))
    if H := first_of(fields, *names):
        return _mamba_2(fields, H)
    return word


def _mamba_1(fields: Fields) -> LayerKind:
    H = first_of(fields, "n_mamba_heads") or 1
    # Where the sizes are named without mamba_, the width of the model's only layers may be too.
    width = None if fields.get("mamba_expand") else first_of(fields, "intermediate_size")
    width = width or needed(fields, "mamba_expand", "expand") * needed(fields, "hidden_size")
    return _kind("Mamba-1 scan", "selective", H, H, needed(fields, "mamba_d_state", "state_size"), width // H)


def _mamba_2(fields: Fields, H: int) -> LayerKind:
    groups = first_of(fields, "mamba_n_groups", "mamba_ngroups", "n_groups") or 1
    state = needed(fields, "mamba_d_state", "ssm_state_size", "state_size")
    sizes = "mamba_d_head", "mamba_head_dim", "mamba_headdim"
    Dv = first_of(fields, *(name for name in sizes if fields.get(name) != "auto"))
    if Dv is None and fields.get("state_size"):
        Dv = first_of(fields, "head_dim")
    if Dv is None:
        width = first_of(fields, "mamba_d_ssm")
        Dv = (width or needed(fields, "mamba_expand", "expand") * needed(fields, "hidden_size")) // H
    return _kind("Mamba-2 scan", "gated", H, groups, state, Dv)


def _kind(name: str, update: str, H: int, Hkv: int, D: int, Dv: int) -> LayerKind:
    return LayerKind(name=name, H=H, Hkv=Hkv, D=D, Dv=Dv, scale=D**-0.5, update=update)
