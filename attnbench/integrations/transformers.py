"""A choice as the attention of models of transformers.

>>> attnbench.integrations.transformers.install("choice.toml")  # doctest: +SKIP
>>> model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="attnbench")  # doctest: +SKIP
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from attnbench.choice.dispatch import load
from attnbench.programs.watch import knows_biases, knows_scripts

NAME = "attnbench"


class _Chosen(threading.local):
    """Tells whether this thread is in a layer of a model that uses the choice."""

    here = False


def install(path: str | Path, *, force: bool = False) -> None:
    """Register ``attn_implementation="attnbench"``: "sdpa" with the choice in place of torch's function.

    path, force, raises: as :func:`attnbench.choice.load`. Models with another implementation are as before.
    """
    from torch.nn import functional
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    chosen, inside = load(path, force=force), _Chosen()
    default = knows_biases(functional.scaled_dot_product_attention)

    def scaled_dot_product_attention(*args: Any, **kwargs: Any) -> Any:
        return (chosen if inside.here else default)(*args, **kwargs)

    def forward(*args: Any, **kwargs: Any) -> Any:
        before, inside.here = inside.here, True
        try:
            return sdpa_attention_forward(*args, **kwargs)
        finally:
            inside.here = before

    # transformers prepares heads and masks for torch's function, and calls it by this name.
    knows_scripts(scaled_dot_product_attention)
    functional.scaled_dot_product_attention = scaled_dot_product_attention
    AttentionInterface.register(NAME, forward)
    AttentionMaskInterface.register(NAME, sdpa_mask)
