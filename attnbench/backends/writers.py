"""torch_quantise and torch_reshape_and_cache: writers of caches in plain torch."""

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

TORCH_RESHAPE_AND_CACHE = Backend(
    name="torch_reshape_and_cache",
    summary="new tokens into a copy of the cache, in plain torch",
    prepare=reshape_and_cache,
    operations=("reshape_and_cache",),
    encodings=("dtype", "latent", *ENCODINGS),
    quadratic_copies=0,
)
