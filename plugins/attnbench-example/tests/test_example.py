"""All that the backend `example` declares, held against attnbench's judge."""

import pytest


@pytest.mark.attnbench(
    "attention/scaled_dot/H2-L96-D16",
    "attention/scaled_dot/B2-H4-Hkv2-Lq48-Lk80-D16/causal",
    passes=["forward", "both"],
    backends=["example"],
)
def test_outputs_and_gradients_are_right(attnbench_backend):
    attnbench_backend()
