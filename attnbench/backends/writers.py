"""torch_quantise and torch_to_pages: writers of caches in plain torch."""

from __future__ import annotations

from attnbench.kit.writers import ENCODINGS, quantise, reshape_and_cache
from attnbench.types.backend import Backend

TORCH_QUANTISE = Backend(
    name="torch_quantise",
    summary="codes and scales of keys and values in plain torch",
    prepare=quantise,
    operations=("quantise",),
    encodings=ENCODINGS,
    quadratic_copies=0,
)

TORCH_TO_PAGES = Backend(
    name="torch_to_pages",
    summary="new tokens into a copy of the cache, in plain torch",
    prepare=reshape_and_cache,
    operations=("reshape_and_cache",),
    encodings=("dtype", "latent", *ENCODINGS),
    quadratic_copies=0,
)
