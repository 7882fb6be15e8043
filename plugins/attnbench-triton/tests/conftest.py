"""Kernels run in Triton's interpreter here: it reads this variable when a kernel is defined."""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"
