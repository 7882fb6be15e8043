"""Making a failing case small: what is left is needed, and the words say what and from which size on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from attnbench.trial.point import Point, parse_point
from attnbench.trial.shrink import needed, shrink, thresholds

LARGE = parse_point(
    "attention/scaled_dot/B3-H12-Hkv3-Lq513-Lk513-D128-Dv64/causal+window:300+padding:513,0,7/float16/cpu/both"
    "/threads2 values:large_logits q:slice k:offset before:larger upstream:expanded"
)


def causal_window(point: Point) -> bool:
    mask = point.case.mask
    return mask.causal is not None and mask.window is not None and point.case.Lk >= 66


def long_half(point: Point) -> bool:
    return point.case.dtype == "float16" and point.case.D > 64


def expanded_gradient(point: Point) -> bool:
    return point.case.pass_ == "both" and point.way.upstream == "expanded" and point.case.group > 1


def empty_element(point: Point) -> bool:
    padding = point.case.mask.padding
    return isinstance(padding, tuple) and 0 in padding and point.case.B > 1


@pytest.mark.parametrize(
    ("is_wrong", "words", "since"),
    [
        (causal_window, ("a causal mask", "a window of 1"), "from Lq = Lk = 66 on"),
        (long_half, ("the dtype float16",), "from D = 65 on"),
        (
            expanded_gradient,
            ("gradients", "groups of 2 query heads", "an expanded gradient of the output (stride 0)"),
            "",
        ),
        (empty_element, ("padding", "a batch element without keys", "several batch elements"), ""),
    ],
)
def test_what_is_left_is_needed(
    is_wrong: Callable[[Point], bool], words: tuple[str, ...], since: str
) -> None:
    found = shrink(LARGE, is_wrong)
    assert found.done
    assert is_wrong(found.point)
    assert found.needed == words
    assert thresholds(found.point, is_wrong) == since


def test_a_fault_that_shows_everywhere_ends_at_the_plainest_case() -> None:
    found = shrink(LARGE, lambda point: True)
    assert found.done
    case = found.point.case
    assert (case.B, case.H, case.Hkv, case.Lq, case.Lk, case.D, case.Dv) == (1, 1, 1, 1, 1, 1, 1)
    assert needed(found.point) == ()


def test_shrinking_ends_after_so_many_trials() -> None:
    asked: list[Point] = []

    def is_wrong(point: Point) -> bool:
        asked.append(point)
        return causal_window(point)

    assert not shrink(LARGE, is_wrong, most=5).done
    assert len(asked) == 5
