"""Random numbers of a process's own: forks of one process would all draw the same ones."""

from __future__ import annotations

import random

import numpy as np


def seed_from_system() -> None:
    """Seed torch on every device, NumPy's and Python's random numbers from the operating system."""
    import torch

    torch.seed()
    np.random.seed()
    random.seed()
