"""Every command line prints the same as before: see :mod:`transcripts`."""

from __future__ import annotations

import pytest
from transcripts import Recorder, parameters

# click, rich and others word and lay out what is printed.
pytestmark = pytest.mark.pinned


@pytest.mark.parametrize(("line", "text"), parameters("[!e]*.txt") + parameters("ex*.txt"))
def test_a_command_prints_the_same_as_before(recorder: Recorder, line: str, text: str) -> None:
    # After an intended change: python tests/transcripts/regenerate.py
    assert recorder.record(line).text() == text
