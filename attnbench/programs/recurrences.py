"""Reading calls of recurrences, by the names that transformers gives them.

Where a kernel is installed, as of fla or mamba-ssm, transformers calls it behind the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from attnbench.programs.classify import ClassifiedMask
from attnbench.programs.facts import call_of
from attnbench.programs.ragged import lengths_of
from attnbench.programs.tally import Kind
from attnbench.types.batch import batch_text

if TYPE_CHECKING:
    from torch import Tensor

    Given = Mapping[str, Any]


def _delta(rule: str, name: str, given: Given) -> Kind | None:
    """Read a delta rule: q and k (B, L, Hkv, D), v (B, L, H, Dv)."""
    q, v = given["query"], given["value"]
    ends = given.get("kwargs", {}).get("cu_seqlens")
    return _recurrence(name, rule, q, q.shape[:2], v.shape[2], q.shape[2], q.shape[3], v.shape[3], ends)


def _scan(name: str, given: Given) -> Kind | None:
    """Read Mamba-2's scan: x (B, L, H, Dv), B and C (B, L, groups, D). B is the key, x times dt the value."""
    x, keys = given["hidden_states"], given["B"]
    return _recurrence(name, "gated", x, x.shape[:2], x.shape[2], keys.shape[2], keys.shape[3], x.shape[3])


def _step(name: str, given: Given) -> Kind | None:
    """Read one step of it: x (B, H, Dv), B and C (B, groups, D)."""
    x, keys = given["hidden_states"], given["B"]
    return _recurrence(name, "gated", x, (len(x), 1), x.shape[1], keys.shape[1], keys.shape[2], x.shape[2])


def _selective(name: str, given: Given) -> Kind | None:
    """Read Mamba-1's scan: x (B, Dv, L), of one step (B, Dv), A (Dv, D). All channels are one head of v."""
    x, rate = given["hidden_states"], given["A"]
    length = x.shape[2] if x.ndim == 3 else 1
    return _recurrence(name, "selective", x, (len(x), length), 1, 1, rate.shape[1], x.shape[1])


def _recurrence(
    name: str, rule: str, x: Tensor, lengths: tuple[int, int], H: int, Hkv: int, D: int, Dv: int,
    ends: Tensor | None = None,
) -> Kind | None:  # fmt: skip
    B, L = lengths
    more = {}
    if ends is not None:
        steps = lengths_of(ends)
        B, L = len(steps), max(steps)
        more = {"batch": batch_text(tuple((n, n) for n in steps)), "storage": "packed"}
    sizes = {"B": B, "H": H, "Hkv": Hkv, "Lq": L, "Lk": L, "D": D, "Dv": Dv}
    none = ClassifiedMask("none")
    return call_of(name, x, sizes, "own", none, None, 0.0, operation="recurrent", rule=rule, **more)


READ_RECURRENCES: dict[str, Callable[[str, Given], Kind | None]] = {
    "torch_chunk_gated_delta_rule": partial(_delta, "gated_delta"),
    "torch_recurrent_gated_delta_rule": partial(_delta, "gated_delta"),
    "chunk_kimi_delta_attention": partial(_delta, "gated_delta_channels"),
    "recurrent_kimi_delta_attention": partial(_delta, "gated_delta_channels"),
    "mamba2_chunk_scan": _scan,
    "mamba2_selective_state_update": _step,
    "mamba_selective_scan": _selective,
    "mamba_selective_state_update": _selective,
}
"""By the name of a function, what reads its calls from the arguments by their names."""
