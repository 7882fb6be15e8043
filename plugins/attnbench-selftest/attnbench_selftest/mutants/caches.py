"""Answers kept from earlier calls while the contents of the inputs change, and answers right in some calls.

A cache computes where it has not seen its key before, and returns a copy of what it kept where it has.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attnbench.testing.mistakes.parts import RIGHT, heads_of, mask_of, plus_bias
from attnbench.types.backend import Setup
from attnbench.types.case import Case, output_shape
from attnbench.types.rule import Rule
from attnbench_selftest.mutants.mutant import BOTH, Mutant, around_call
from attnbench_selftest.mutants.where import keeps_a_key, scores_matter

if TYPE_CHECKING:
    from torch import Tensor

    from attnbench.types.backend import Call

    Key = Callable[[Tensor, Tensor, Tensor], Any]


STRIDE = 97
PAUSE_NS = 500_000
LONG = 96 * 128
"""With so many scores a head, a kept answer saves more time than a cold call of a right kernel may cost."""


def _kept_by(key: Key) -> Callable[[Setup, Call], Call]:
    """The last answer is given again while the key stays the same."""

    def around(setup: Setup, call: Call) -> Call:
        kept: dict[Any, Tensor] = {}

        def cached(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            found = key(q, k, v)
            if found not in kept:
                kept.clear()
                kept[found] = call(q, k, v)
            return kept[found].clone()

        return cached

    return around


def _sum(x: Tensor) -> float:
    # Rounded, so that another order of the same numbers has the same sum.
    return round(float(x.double().abs().sum()), 6)


def _sampled(x: Tensor) -> tuple[float, ...]:
    return tuple(x.reshape(-1)[::STRIDE].double().tolist())


def _ends(x: Tensor) -> tuple[float, float]:
    flat = x.reshape(-1)
    return float(flat[0]), float(flat[-1])


def _first_row(x: Tensor) -> tuple[float, ...]:
    return tuple(x.reshape(-1, x.shape[-1])[0].double().tolist())


def _version(x: Tensor) -> int:
    # Tensors of inference mode have no counter: then the address is all there is.
    return 0 if x.is_inference() else x._version


def _bytes(x: Tensor) -> bytes:
    import torch

    return x.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()


KEYS: dict[str, tuple[str, Key]] = {
    "by_address": ("the addresses of its inputs", lambda q, k, v: (q.data_ptr(), k.data_ptr(), v.data_ptr())),
    "by_identity": ("id() of its inputs", lambda q, k, v: (id(q), id(k), id(v))),
    "by_version": (
        "addresses and version counters",
        lambda q, k, v: tuple((x.data_ptr(), _version(x)) for x in (q, k, v)),
    ),
    "by_shape": ("the shapes of its inputs", lambda q, k, v: (q.shape, k.shape, v.shape)),
    "by_sums": ("the sums of magnitudes in q, k and v", lambda q, k, v: (_sum(q), _sum(k), _sum(v))),
    "by_sum_of_keys": ("the sum of magnitudes in k", lambda q, k, v: _sum(k)),
    "by_first_elements": (
        "the first elements",
        lambda q, k, v: tuple(float(x.reshape(-1)[0]) for x in (q, k, v)),
    ),
    "by_first_rows": ("the first rows", lambda q, k, v: (_first_row(q), _first_row(k), _first_row(v))),
    "by_both_ends": ("the first and last elements", lambda q, k, v: (_ends(q), _ends(k), _ends(v))),
    "by_a_sample": (f"every {STRIDE}th element", lambda q, k, v: (_sampled(q), _sampled(k), _sampled(v))),
    "by_content_of_queries": ("all of the first input", lambda q, k, v: _bytes(q)),
    "by_content_of_keys": ("all of the first two inputs", lambda q, k, v: (_bytes(q), _bytes(k))),
    "by_content_of_values": ("all of the last input", lambda q, k, v: _bytes(v)),
}
"""The keys of the caches. In a layer they are made of the sources of queries, keys and values."""

ALL_THERE_IS = ("by_content_of_queries", "by_content_of_keys", "by_content_of_values")
"""In a layer these may be all that the answer depends on, and it's right to keep it."""


def _weights_kept(setup: Setup) -> Call:
    """Weights by address; the values are looked at in every call."""
    added = plus_bias(setup, mask_of(RIGHT, setup))
    kept: dict[tuple[int, int], Tensor] = {}

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        key = q.data_ptr(), k.data_ptr()
        if key not in kept:
            scores = RIGHT.scores(setup, q, RIGHT.spread(setup, k))
            kept[key] = RIGHT.weights(setup, scores, added)
        return RIGHT.mix(setup, kept[key], RIGHT.spread(setup, v))

    return attend


def _packed(which: int) -> Callable[[Setup], Call]:
    """One of the inputs is packed in the first call and used ever after."""

    def prepare(setup: Setup) -> Call:
        attend = heads_of(RIGHT, setup)
        packed: list[Tensor] = []

        def with_packed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            inputs = [q, k, v]
            if not packed:
                packed.append(inputs[which].clone())
            inputs[which] = packed[0]
            return attend(*inputs)

        return with_packed

    return prepare


def _warm_start(setup: Setup, call: Call) -> Call:
    """Sums go on from what the last call left in the workspace."""
    left: list[Tensor] = []

    def summed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = call(q, k, v)
        total = out + left[0] if left else out
        left[:] = [total]
        return total.clone()

    return summed


def _kept(name: str, summary: str, prepare: Callable[[Setup], Call]) -> Mutant:
    return Mutant(
        name=name,
        summary=summary,
        prepare=prepare,
        trait="timed",
        applies=scores_matter,
        operations=("attention",),
    )


def _zeros(setup: Setup, like: Tensor) -> Tensor:
    return like.new_zeros(output_shape(setup.case))


def _right_when(right: Callable[[int], bool]) -> Callable[[Setup, Call], Call]:
    """Zeros in calls, counted from 1, that are not right."""

    def around(setup: Setup, call: Call) -> Call:
        calls = 0

        def counted(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            nonlocal calls
            calls += 1
            return call(q, k, v) if right(calls) else _zeros(setup, q)

        return counted

    return around


def _last_again(setup: Setup, call: Call) -> Call:
    """Computes in every fourth call; gives copies of that in the three that follow."""
    calls = 0
    kept: list[Tensor] = []

    def lazily(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        nonlocal calls
        if calls % 4 == 0:
            kept[:] = [call(q, k, v)]
        calls += 1
        return kept[0].clone()

    return lazily


def _last_in_a_burst(setup: Setup, call: Call) -> Call:
    """Compute after a pause of 0.5 ms, as before a timed segment; copy the answer in other calls."""
    return _kept_without_pause(call, lambda q, k, v: None)


def _by_nine_elements(setup: Setup, call: Call) -> Call:
    """Compute after a pause of 0.5 ms, or where one of nine elements changed; copy the answer otherwise."""
    return _kept_without_pause(
        call, lambda q, k, v: [float(x.reshape(-1)[at]) for x in (q, k, v) for at in (0, x.numel() // 2, -1)]
    )


def _kept_without_pause(call: Call, key: Key) -> Call:
    ended_ns = 0
    keys: list[Any] = []
    kept: list[Tensor] = []

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        nonlocal ended_ns
        now = key(q, k, v)
        if keys != [now] or time.perf_counter_ns() - ended_ns > PAUSE_NS:
            keys[:], kept[:] = [now], [call(q, k, v)]
        out = kept[0].clone()
        ended_ns = time.perf_counter_ns()
        return out

    return attend


def _one_behind(setup: Setup, call: Call) -> Call:
    """Gives what a thread has made of the inputs of the call before, and starts one for the next."""
    ready: list[Tensor] = []
    started: list[threading.Thread] = []

    def behind(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        for thread in started:
            thread.join()
        out = ready.pop() if ready else call(q, k, v)
        copies = [x.clone() for x in (q, k, v)]
        started[:] = [threading.Thread(target=lambda: ready.append(call(*copies)), daemon=True)]
        started[0].start()
        return out

    return behind


def _filled_later(setup: Setup, call: Call) -> Call:
    """Returns at once; a thread writes the output a moment after."""

    def later(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = _zeros(setup, q)
        copies = [x.clone() for x in (q, k, v)]

        def fill() -> None:
            time.sleep(0.02)
            out.copy_(call(*copies))

        threading.Thread(target=fill, daemon=True).start()
        return out

    return later


def _takes_time(case: Case, rule: Rule) -> bool:
    long = case.Lq * case.Lk >= LONG
    return case.pass_ == "forward" and not case.dropout and long and scores_matter(case, rule)


TURNS: dict[str, tuple[str, Callable[[Setup, Call], Call]]] = {
    "zeros_every_other_call": ("zeros in every other call", _right_when(lambda calls: calls % 2 == 1)),
    "zeros_every_7th_call": ("zeros in every seventh call", _right_when(lambda calls: calls % 7 != 0)),
    "zeros_in_the_first_call": ("zeros in the first call", _right_when(lambda calls: calls > 1)),
    "zeros_after_3_calls": ("right three times, then zeros", _right_when(lambda calls: calls <= 3)),
    "zeros_after_20_calls": ("right twenty times, then zeros", _right_when(lambda calls: calls <= 20)),
    "zeros_after_40_calls": ("right forty times, then zeros", _right_when(lambda calls: calls <= 40)),
    "filled_by_a_thread_later": ("returns at once, a thread fills the output later", _filled_later),
}

MUTANTS: tuple[Mutant, ...] = (
    *(
        around_call(
            f"cache_{name}",
            f"an answer kept for {words}",
            _kept_by(key),
            "timed",
            scores_matter,
            operations=("attention",) if name in ALL_THERE_IS else BOTH,
        )
        for name, (words, key) in KEYS.items()
    ),
    _kept("keeps_weights", "weights kept by address, only the value product computed", _weights_kept),
    _kept("keeps_packed_keys", "packs the keys of the first call and goes on with them", _packed(1)),
    _kept("keeps_packed_values", "packs the values of the first call and goes on with them", _packed(2)),
    around_call(
        "never_clears_its_sums", "adds to what the call before left", _warm_start, "timed", keeps_a_key
    ),
    *(around_call(name, words, around, "timed", keeps_a_key) for name, (words, around) in TURNS.items()),
    around_call(
        "last_answer_three_times_more", "computes in every fourth call", _last_again, "timed", scores_matter
    ),
    around_call(
        "last_answer_in_a_turn",
        "computes in the first of calls that follow each other without a pause",
        _last_in_a_burst,
        "timed",
        scores_matter,
    ),
    around_call(
        "answers_by_nine_elements",
        "computes after pauses, and where one of nine elements of its inputs changed",
        _by_nine_elements,
        "timed",
        _takes_time,
        operations=("attention",),
    ),
    around_call("one_call_behind", "a thread works for the next call", _one_behind, "timed", scores_matter),
)
