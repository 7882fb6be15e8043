"""Threads that wait for a core leave their mark on the times; nothing else does."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnbench.stats.doubts import TICKS_MS, preempted_share, slice_ms, waiting_note
from attnbench.types.record import Block, SetLine

seeds = st.integers(0, 2**32)


def line(wall_ns: list[int], cpu_ns: list[int] | None = None, switches: list[int] | None = None) -> SetLine:
    n = len(wall_ns)
    block = Block(0, list(range(n)), 1, wall_ns, cpu_ns or wall_ns, switches or [0] * n, [0] * n, [])
    return SetLine("case", 0, [0], ["x"], {}, {"x": [block]}, ["x"], {})


def waited(rng: Random, tick_ms: float, share: float, own_ms: float, count: int = 300) -> list[int]:
    """Calls of about own_ms; a share of them waits some whole ticks, on which it goes on a little late."""
    times = []
    for _ in range(count):
        ms = own_ms * rng.uniform(0.9, 1.3)
        if rng.random() < share:
            ms += tick_ms * rng.randint(1, 12) + rng.uniform(0, 0.06) * tick_ms
        times.append(round(ms * 1e6))
    return times


@given(seeds, st.sampled_from(TICKS_MS), st.sampled_from([0.15, 0.4, 1.0]), st.floats(0.05, 0.3))
def test_waits_of_whole_ticks_are_found(seed: int, tick_ms: float, share: float, own: float) -> None:
    assert slice_ms(waited(Random(seed), tick_ms, share, own * tick_ms)) == pytest.approx(tick_ms)


def test_the_times_of_two_threads_beside_a_busy_core() -> None:
    """As they were measured: L=16, two threads on two cores that other processes used too."""
    late_ms = [
        8.4, 8.4, 8.4, 8.4, 8.4, 8.5, 8.5, 8.5, 8.5, 8.5, 8.6, 8.6, 8.6, 8.6, 8.6, 8.7, 8.8, 8.8, 8.9,
        12.3, 12.9, 16.4, 16.4, 24.4, 28.3, 52.4, 56.3, 76.4, 80.2, 112.3, 116.2, 116.2, 160.1, 172.1,
        179.1, 179.9, 180.1, 183.9, 184.0, 184.1, 184.1, 187.6, 187.8, 187.8, 187.9, 188.0, 188.0,
        188.0, 188.0, 191.8, 191.9, 191.9, 191.9, 192.7, 195.9, 199.9, 200.0, 200.3, 208.0,
    ]  # fmt: skip
    assert slice_ms([300_000] * 318 + [round(ms * 1e6) for ms in late_ms]) == 4.0


@given(seeds, st.floats(0.01, 50), st.floats(0.0, 1.5), st.integers(1, 400))
def test_noise_of_any_width_is_no_tick(seed: int, typical_ms: float, width: float, count: int) -> None:
    rng = Random(seed)
    assert slice_ms([round(typical_ms * 1e6 * rng.lognormvariate(0, width)) for _ in range(count)]) is None


@given(seeds, st.floats(0.5, 20), st.floats(1.3, 3))
def test_a_machine_with_two_speeds_has_no_tick(seed: int, typical_ms: float, factor: float) -> None:
    rng = Random(seed)
    speeds = [rng.choice([1, factor]) * rng.gauss(1, 0.01) for _ in range(200)]
    assert slice_ms([round(typical_ms * 1e6 * speed) for speed in speeds]) is None


@pytest.mark.parametrize("times", [[], [1], [8_000_000] * 500, [4_000_000, 8_000_000, 12_000_000]])
def test_a_few_samples_or_all_alike_say_nothing(times: list[int]) -> None:
    assert slice_ms(times) is None


def test_a_note_is_for_several_threads_and_says_what_was_seen() -> None:
    quantised = line(waited(Random(1), 4.0, 0.4, 0.3))
    assert waiting_note([quantised], "x", 1) == ""
    assert waiting_note([quantised], "other", 2) == ""
    assert waiting_note([quantised], "x", 2) == (
        "its 2 threads waited for busy cores: times are multiples of 4 ms, the scheduler's tick; "
        "stop other work or use fewer threads, and measure again"
    )
    assert waiting_note([line([300_000] * 400)], "x", 2) == ""


def test_preempted_samples_lost_time_and_were_put_off() -> None:
    """The calling thread also loses time where it sleeps while others work, and is then not put off."""
    wall, lost = [1_000_000] * 6, [900_000] * 6
    assert preempted_share([line(wall, lost, [1, 1, 1, 0, 0, 0])], "x") == 0.5
    assert preempted_share([line(wall, wall, [1] * 6)], "x") == 0
    assert preempted_share([line(wall, lost)], "x") == 0
    assert preempted_share([], "x") == 0
    assert "50% of its samples were preempted" in waiting_note([line(wall, lost, [1, 1, 1, 0, 0, 0])], "x", 2)
    assert waiting_note([line(wall, lost, [1, 0, 0, 0, 0, 0])], "x", 2) == ""
