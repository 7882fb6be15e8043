"""The devices that this process sees beside its processor, and what tells two of one name apart."""

from __future__ import annotations

from contextlib import suppress

from attnbench.types.words import count_of


def card_names(device: str) -> tuple[str, ...]:
    """Return the name of each card of a kind of device; none where torch was built without it."""
    import torch

    module = torch.get_device_module(device)
    return tuple(module.get_device_name(number) for number in range(module.device_count()))


def card_details(device: str) -> tuple[str, ...]:
    """Return for each card its multiprocessors, memory (GiB) and, if the driver tells, power limit (W).

    It makes a context of the driver. Clouds hand out other cards under the same name, or lower the limit of
    one.
    """
    import torch

    module = torch.get_device_module(device)
    cards = [module.get_device_properties(number) for number in range(module.device_count())]
    limits = _power_limits_w([str(getattr(card, "uuid", "")) for card in cards])
    return tuple(
        ", ".join((
            count_of(card.multi_processor_count, "multiprocessor"),
            f"{card.total_memory / 2**30:.1f} GiB",
            *([f"{limit} W"] if limit else []),
        ))
        for card, limit in zip(cards, limits, strict=True)
    )  # fmt: skip


def _power_limits_w(uuids: list[str]) -> list[int]:
    """Return the power limit that holds for each card now, in W; 0 where it is not known.

    torch does not tell it, but NVIDIA's driver does. Its library stays open: this process ends soon.
    """
    # nvidia-ml-py may be missing, and a driver may refuse any question, each with an exception of its own.
    with suppress(Exception):
        import pynvml

        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}") for uuid in uuids]
        return [int(pynvml.nvmlDeviceGetEnforcedPowerLimit(handle)) // 1000 for handle in handles]
    return [0] * len(uuids)
