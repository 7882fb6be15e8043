"""dequantise_sdpa: encoded keys and values are read back whole, then torch's own attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from attnbench.backends.sdpa import attention, attention_with_lse, refuse_cap
from attnbench.kit.encodings import ENCODINGS, dequantiser
from attnbench.types.backend import Backend, Setup

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call


def prepare(setup: Setup) -> Call:
    """Return the function of q and the encoded tensors."""
    dequantise = dequantiser(setup.case)
    attend = (attention_with_lse if setup.case.returns else attention)(setup)

    def call(q: Tensor, *encoded: Tensor) -> Tensor:
        return attend(q, *dequantise(*encoded))

    return cast("Call", call)


DEQUANTISE_SDPA = Backend(
    name="dequantise_sdpa",
    summary="codes to numbers of the dtype, then torch SDPA",
    prepare=prepare,
    supports=refuse_cap,
    encodings=ENCODINGS,
    returns=("lse",),
    needs_dot_form=True,
    masks_by_head=True,
)
