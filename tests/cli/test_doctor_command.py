"""What ``attnbench doctor`` prints, and how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from click.testing import Result

from attnbench.doctor import examine, readings
from attnbench.doctor.examine import Finding

Invoke = Callable[..., Result]
FINE = Finding("memory", "fine", "8 GiB free")
NOTE = Finding("clock", "note", "governor powersave", "×1.9", "performance")
BAD = Finding("threads", "bad", "4 threads", "×4", "ask for 2")


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have the doctor say these findings, without looking."""

    def arrange(*findings: Finding) -> None:
        monkeypatch.setattr(readings, "read_machine", lambda threads, allocator, tell: (threads, allocator))
        monkeypatch.setattr(examine, "examine", lambda read: list(findings))

    return arrange


@pytest.mark.parametrize(("findings", "status"), [((FINE,), 0), ((FINE, NOTE), 0), ((FINE, NOTE, BAD), 1)])
def test_only_what_would_change_a_verdict_fails(
    invoke: Invoke, says: Callable[..., None], findings: tuple[Finding, ...], status: int
) -> None:
    says(*findings)
    result = invoke("doctor")
    assert result.exit_code == status
    assert ("1 of 3 findings would change a verdict" in result.stderr) == bool(status)


def test_json_has_every_field(invoke: Invoke, says: Callable[..., None]) -> None:
    says(NOTE)
    rows = json.loads(invoke("doctor", "--format", "json").stdout)
    assert rows == [
        {
            "name": "clock",
            "level": "note",
            "what": "governor powersave",
            "effect": "×1.9",
            "remedy": "performance",
        }
    ]
