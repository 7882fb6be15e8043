"""The timer of a device: how one sample is taken there."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from attnbench.timing.sample import Sample, take_sample, take_sample_synchronised

Timer = Callable[[Callable[[Any, Any, Any], Any], Any, Any, Any, int], tuple[Sample, Any]]


def timer_for(device: str) -> Timer:
    """The timer for "cpu" or "cuda"; a CUDA sample begins and ends with an idle device."""
    if device == "cpu":
        return take_sample
    import torch

    return partial(take_sample_synchronised, synchronise=torch.cuda.synchronize)
