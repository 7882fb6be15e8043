"""fla_chunks and fla_steps: recurrences of flash-linear-attention (fla-core). Yang and Zhang 2024, FLA.

Checked against fla-core 0.6.0, ``fla.ops``: for each rule the function in chunks and the one of single
steps.

- q and k are (B, L, H, D), v (B, L, H, Dv), decays in the logarithm (B, L, H) or (B, L, H, D), beta (B, L,
  H). The gated delta rules take fewer heads of q and k; for the others they are repeated, which is timed.
- ``initial_state`` and the final state are (N, H, D, Dv) in float32, the features of keys first unless
  ``state_v_first`` is given.
- Packed sequences are one batch entry with ``cu_seqlens`` (N + 1,), int64, and one state each. They are
  written before a call.
- chunk_delta_rule refuses float32, KDA heads of q and k above 256 features. All are asked for half
  precision alone.
- The functions in chunks give gradients of all inputs. Of those in steps none are asked for.

"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from attnbench.types.backend import Backend, Setup
from attnbench.types.case import PASSES
from attnbench_cuda.device import cannot_call, needs_gpu
from attnbench_cuda.packed import Kept
from attnbench_cuda.steps import in_steps

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.case import Case
    from attnbench.types.rule import Rule

WIDEST_KEY = 256


@dataclass(frozen=True)
class Function:
    """One rule's functions.

    module: in ``fla.ops``. name: without chunk_ and fused_recurrent_. decay: the name of its decays. groups:
    whether it takes fewer heads of q and k than of v.
    """

    module: str
    name: str
    decay: str = "g"
    groups: bool = False

    def load(self, how: str) -> Callable[..., Any]:
        """Import it. how: chunk or fused_recurrent."""
        found: Callable[..., Any] = getattr(import_module(f"fla.ops.{self.module}"), f"{how}_{self.name}")
        return found


FUNCTIONS = {
    "linear": Function("simple_gla", "simple_gla"),
    "gated": Function("simple_gla", "simple_gla"),
    "delta": Function("delta_rule", "delta_rule"),
    "gated_delta": Function("gated_delta_rule", "gated_delta_rule", groups=True),
    "gated_delta_channels": Function("kda", "kda", groups=True),
    "rwkv7": Function("rwkv7", "rwkv7", decay="w"),
}
"""By the name of a rule."""


class Steps:
    """The prepared function of a case. how: chunk or fused_recurrent."""

    def __init__(self, how: str, setup: Setup) -> None:
        self.of, self.group, self.scale = FUNCTIONS[setup.rule.name], setup.case.group, setup.case.D**-0.5
        self.function, self.starts = self.of.load(how), Kept()
        self.call = in_steps(setup, self.attend)

    def renew(self, ahead: Mapping[str, Tensor]) -> None:
        """Write where sequences begin in the dtype that the library asks for."""
        if "cu_seqlens" in ahead:
            self.starts.write(ahead["cu_seqlens"].long())

    def attend(self, steps: dict[str, Tensor], state: Tensor, starts: Tensor | None, slots: None) -> Any:
        """Return the output and the states."""
        if not self.of.groups and self.group > 1:
            repeated = {name: steps[name].repeat_interleave(self.group, 2) for name in "qk"}
            steps = steps | repeated
        names = {"decay": self.of.decay} | ({"q": "r"} if self.of.name == "rwkv7" else {})
        named = {names.get(name, name): x.contiguous() for name, x in steps.items()}
        return self.function(
            **named, scale=self.scale, initial_state=state.contiguous(), output_final_state=True,
            cu_seqlens=None if starts is None else self.starts.tensor,
        )  # fmt: skip

    def __call__(self, *inputs: Tensor) -> Any:
        """Return the output and the state after the last step."""
        return self.call(*inputs)


def prepare_chunks(setup: Setup) -> Callable[..., Any]:
    """Return the function in chunks."""
    return Steps("chunk", setup)


def prepare_steps(setup: Setup) -> Callable[..., Any]:
    """Return the function of single steps."""
    return Steps("fused_recurrent", setup)


def _available(how: str) -> Callable[[str], str | None]:
    def ask(device: str) -> str | None:
        asked = ("scale", "initial_state", "output_final_state", "cu_seqlens")
        reasons = (
            cannot_call(lambda of=of: of.load(how), *asked)  # type: ignore[misc]
            for of in FUNCTIONS.values()
        )
        return needs_gpu("fla-core") or next((reason for reason in reasons if reason is not None), None)

    return ask


def supports(case: Case, rule: Rule) -> str | None:
    """Decline wide keys of KDA."""
    if rule.name == "gated_delta_channels" and case.D > WIDEST_KEY:
        return f"chunk_kda takes keys of {WIDEST_KEY} features at most; here D = {case.D}"
    return None


FLA_CHUNKS = Backend(
    name="fla_chunks",
    summary="flash-linear-attention's recurrences in chunks",
    prepare=prepare_chunks,
    supports=supports,
    available=_available("chunk"),
    operations=("recurrent",),
    rules=tuple(FUNCTIONS),
    dtypes=("bfloat16", "float16"),
    devices=("cuda",),
    passes=PASSES,
    storages=("dense", "packed"),
    requires=("fla",),
    forkable=False,
    # Triton tunes its kernels when they are first called.
    compiles=True,
    quadratic_copies=0,
)

FLA_STEPS = replace(
    FLA_CHUNKS,
    name="fla_steps",
    summary="flash-linear-attention's recurrences, one step after the other",
    prepare=prepare_steps,
    available=_available("fused_recurrent"),
    passes=("forward",),
)
