"""What happens between rounds, and that nothing of it happens within one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from attnbench.pytest_plugin.library_threads import open_blas, threads_set
from attnbench.pytest_plugin.rounds import Drawn, watch_rounds
from attnbench.pytest_plugin.watched import watched


class LikePytestBenchmark:
    """Makes rounds as its fixture does; ``events`` is what happened."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def _make_runner(self, function: Any, args: Any, kwargs: Any) -> Callable[..., Any]:
        def runner(loops: range) -> float:
            self.events.append("clock")
            for _ in loops:
                function(*args, **kwargs)
            self.events.append("clock")
            return 1.0

        return runner


def test_inputs_are_renewed_between_rounds_now_and_then() -> None:
    bench = LikePytestBenchmark()
    seen = watched(lambda a, b, c: bench.events.append("call"), (1, 2, 3))
    watch_rounds(bench, seen, lambda: bench.events.append("renew"))
    runner = bench._make_runner(seen.call, (), {})
    assert [runner(range(2)) for _ in range(200)] == [1.0] * 200
    text = " ".join(bench.events)
    # Never before the first round, when nothing was called that could be remembered.
    assert text.startswith("clock call call clock")
    assert text.replace("renew ", "") == " ".join(["clock call call clock"] * 200)
    assert "clock renew clock" in text
    assert 3 <= text.count("renew") <= 40
    assert seen.last() == (400, None, True)


def test_the_drawn_rounds_are_early_and_late_and_ever_fewer() -> None:
    found = []
    for _ in range(50):
        drawn = Drawn()
        found.append([number for number in range(1, 20_001) if drawn.now()])
    assert all(2 <= rounds[0] <= 4 for rounds in found)
    assert {rounds[0] for rounds in found} == {2, 3, 4}
    assert all(len(rounds) < 100 for rounds in found)
    assert all(rounds[-1] > 1000 for rounds in found)


def test_a_round_that_fails_ends_the_round() -> None:
    bench = LikePytestBenchmark()

    def kernel(a: int, b: int, c: int) -> None:
        raise ValueError("no")

    seen = watched(kernel, (1, 2, 3))
    watch_rounds(bench, seen, lambda: None)
    with pytest.raises(ValueError, match="no"):
        bench._make_runner(seen.call, (), {})(range(1))
    assert not seen.watch.in_round
    assert seen.watch.kept() == []


def test_another_benchmark_fixture_is_left_as_it_is() -> None:
    bench = object()
    watch_rounds(bench, watched(lambda a, b, c: None, (1, 2, 3)), lambda: None)


def test_threads_are_set_in_all_libraries_and_put_back() -> None:
    libraries, before = open_blas(), torch.get_num_threads()
    # NumPy's wheel brings one.
    assert libraries
    of_blas = [each.get() for each in libraries]
    with threads_set(2):
        assert torch.get_num_threads() == 2
        assert [each.get() for each in open_blas()] == [2] * len(libraries)
        with threads_set(1):
            assert torch.get_num_threads() == 1
            assert [each.get() for each in libraries] == [1] * len(libraries)
        assert torch.get_num_threads() == 2
        assert [each.get() for each in libraries] == [2] * len(libraries)
    assert torch.get_num_threads() == before
    assert [each.get() for each in libraries] == of_blas
