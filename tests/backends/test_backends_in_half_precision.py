"""In bfloat16 and float16 every backend passes the check, against the plain computation's own error."""

from __future__ import annotations

import pytest
from solved import BACKENDS, QUICK, RULES, refusal, solved
from verdicts import problem

CASES = (
    "attention/{}/B2-H4-Hkv2-L33-D40/causal",
    "attention/{}/B1-H4-Lq24-Lk65-D32-Dv20/float",
    "multihead/{}/B2-H2-L24-D16-E32-bias/bool",
)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("form", CASES)
@pytest.mark.parametrize("name", QUICK)
def test_rounding_explains_the_error(name: str, form: str, dtype: str) -> None:
    for rule in RULES:
        text = f"{form.format(rule)}/{dtype}"
        if refusal(BACKENDS[name], solved(text).case) is None:
            assert problem(name, text, draws=2) == "", text
