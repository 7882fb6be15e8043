"""The formats in which attnbench itself prints; those of plugins have other names."""

from __future__ import annotations

from typing import Literal, get_args

Format = Literal["table", "json", "csv", "markdown"]
FORMATS: tuple[Format, ...] = get_args(Format)
