"""The choice of a backend for each case: made by ``attnbench choose``, used in place of torch's function.

>>> attention = attnbench.choice.load("choice.toml")  # doctest: +SKIP
>>> attention(q, k, v, is_causal=True)  # doctest: +SKIP
"""

from __future__ import annotations

from attnbench.choice.dispatch import load

__all__ = ["load"]
