"""Every wrong command line is refused as before. A separate file, because tests run in two processes."""

from __future__ import annotations

import pytest
from transcripts import Recorder, parameters

# click, rich and others word and lay out what is printed.
pytestmark = pytest.mark.pinned


@pytest.mark.parametrize(("line", "text"), parameters("errors-*.txt"))
def test_an_error_is_the_same_as_before(recorder: Recorder, line: str, text: str) -> None:
    # After an intended change: python tests/transcripts/regenerate.py
    assert recorder.record(line).text() == text
