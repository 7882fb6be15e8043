"""The simulated device stands beside the tests of the timer."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "timing"))
