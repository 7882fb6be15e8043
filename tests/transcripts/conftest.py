from __future__ import annotations

from collections.abc import Iterator

import pytest
from transcripts import Recorder


@pytest.fixture(scope="module")
def recorder() -> Iterator[Recorder]:
    """The process that runs command lines."""
    with Recorder() as running:
        yield running
