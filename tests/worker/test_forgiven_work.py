"""CPU time of other threads is held against a call, not against what was prepared since."""

from __future__ import annotations

from dataclasses import replace

import pytest

from attnbench.worker.activity import Past, check_idle, forgiven, read_activity
from attnbench.worker.outputs import WrongOutput

MS = 1_000_000


def test_what_a_preparation_used_is_forgiven_and_no_more() -> None:
    now = read_activity()
    past = Past(calls=1, cpu_ns=MS, others_ns=now.others_ns)
    later = replace(now, others_ns=now.others_ns + 600 * MS)
    with pytest.raises(WrongOutput, match="worked on after the call before: 600"):
        check_idle(past, later)
    check_idle(forgiven(past, 600 * MS), later)
    with pytest.raises(WrongOutput, match="worked on after the call before: 100"):
        check_idle(forgiven(past, 500 * MS), later)
