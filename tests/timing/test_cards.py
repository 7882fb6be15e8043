"""What tells two cards of one name apart."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch

from attnbench.timing.cards import card_details

LIMITS_MW = {"GPU-a": 350_000, "GPU-b": 700_000}
DRIVER = {
    "nvmlInit": lambda: None,
    "nvmlDeviceGetHandleByUUID": lambda uuid: uuid,
    "nvmlDeviceGetEnforcedPowerLimit": LIMITS_MW.__getitem__,
}


@pytest.mark.parametrize(
    ("driver", "limits"),
    [
        (SimpleNamespace(**DRIVER), (", 350 W", ", 700 W")),
        (SimpleNamespace(**DRIVER | {"nvmlDeviceGetEnforcedPowerLimit": {}.__getitem__}), ("", "")),
        (None, ("", "")),
    ],
    ids=["told", "refused", "not installed"],
)
def test_the_details_of_cards(
    driver: SimpleNamespace | None, limits: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cards = [
        SimpleNamespace(multi_processor_count=114, total_memory=80 * 2**30, uuid="a"),
        SimpleNamespace(multi_processor_count=132, total_memory=80 * 2**30, uuid="b"),
    ]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", cards.__getitem__)
    monkeypatch.setitem(sys.modules, "pynvml", driver)  # type: ignore[arg-type]
    assert card_details("cuda") == tuple(
        f"{count} multiprocessors, 80.0 GiB{limit}" for count, limit in zip((114, 132), limits, strict=True)
    )
