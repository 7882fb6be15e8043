"""``local`` on a machine that has two cards, as its facts say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import msgspec
import pytest
from test_facts import FACTS

from attnbench.executors import local
from attnbench.types.fleet import Ended, Task


def test_cards_work_at_once_and_the_processor_waits_for_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    facts = msgspec.structs.replace(FACTS, cuda_devices=("a card", "a card"))

    def run_here(task: Task, stop: object = None) -> Iterator[bytes | Ended]:
        yield Ended(0, msgspec.json.encode(facts).decode(), "")

    monkeypatch.setattr(local, "run_here", run_here)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    happened: list[str] = []
    with local.connect("") as fleet:
        places = {place.name: place for place in fleet.places}
        assert list(places) == ["cpu", "gpu0", "gpu1"]
        measuring = Task((), follow="unit.jsonl")
        cards = [fleet.run(places[name], measuring) for name in ("gpu0", "gpu1")]
        assert [next(card).status for card in cards] == [0, 0]

        def measure() -> None:
            next(fleet.run(places["cpu"], measuring))
            happened.append("processor")

        thread = Thread(target=measure, daemon=True)
        thread.start()
        assert [ended.status for ended in fleet.run(places["cpu"], Task(()))] == [0]
        for card in cards:
            happened.append("card")
            card.close()
        thread.join(60)
    assert happened == ["card", "card", "processor"]
